//go:build linux && (amd64 || arm64)

package driver

import (
	"errors"
	"math"
	"unsafe"
)

// NVML is NVIDIA's management library: it says what cards are there and what they do, and opens no context on them. All
// methods may be called from any goroutine.
type NVML struct {
	lib *library

	init, errorString, driverVersion, count, byIndex, byBusID, name          symbol
	memoryInfo, utilization, power, powerLimit, clock, maxClock, temperature symbol
}

// Return values and clocks of nvml.h.
const (
	nvmlNotSupported = 3
	nvmlLacking      = 13 // NVML_ERROR_FUNCTION_NOT_FOUND
	nvmlClockSM      = 1
	nvmlClockMemory  = 2
)

// OpenNVML opens libnvidia-ml.so.1. Its errors are ErrNoLibrary and those of nvmlInit.
func OpenNVML() (*NVML, error) { return openNVML("libnvidia-ml.so.1") }

func openNVML(path string) (*NVML, error) {
	lib, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	n := &NVML{lib: lib}
	for _, s := range []struct {
		to   *symbol
		name string
	}{
		{&n.init, "nvmlInit_v2"},
		{&n.errorString, "nvmlErrorString"},
		{&n.driverVersion, "nvmlSystemGetDriverVersion"},
		{&n.count, "nvmlDeviceGetCount_v2"},
		{&n.byIndex, "nvmlDeviceGetHandleByIndex_v2"},
		{&n.byBusID, "nvmlDeviceGetHandleByPciBusId_v2"},
		{&n.name, "nvmlDeviceGetName"},
		{&n.memoryInfo, "nvmlDeviceGetMemoryInfo"},
		{&n.utilization, "nvmlDeviceGetUtilizationRates"},
		{&n.power, "nvmlDeviceGetPowerUsage"},
		{&n.powerLimit, "nvmlDeviceGetEnforcedPowerLimit"},
		{&n.clock, "nvmlDeviceGetClockInfo"},
		{&n.maxClock, "nvmlDeviceGetMaxClockInfo"},
		{&n.temperature, "nvmlDeviceGetTemperature"},
	} {
		*s.to = lib.find(s.name)
	}
	return n, n.call(&n.init)
}

// call runs a function of the library and turns its nvmlReturn_t into an error.
//
//go:uintptrescapes
func (n *NVML) call(s *symbol, args ...uintptr) error {
	if s.at == 0 {
		return &NVMLError{Call: s.name, Code: nvmlLacking, Text: "the function is not in " + n.lib.path}
	}
	code := s.call(args...)
	if code == 0 {
		return nil
	}
	e := &NVMLError{Call: s.name, Code: code, Text: "unknown error"}
	if n.errorString.at != 0 {
		e.Text = text(n.errorString.pointer(uintptr(code)))
	}
	return e
}

// DriverVersion is of the installed driver, such as 535.183.01.
func (n *NVML) DriverVersion() (string, error) {
	b := make([]byte, 80)
	err := n.call(&n.driverVersion, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return upTo(b), err
}

// Names lists the machine's cards, whether or not this process may compute on them.
func (n *NVML) Names() ([]string, error) {
	var count uint32
	if err := n.call(&n.count, uintptr(unsafe.Pointer(&count))); err != nil {
		return nil, err
	}
	names := make([]string, count)
	for i := range names {
		var handle uintptr
		if err := n.call(&n.byIndex, uintptr(i), uintptr(unsafe.Pointer(&handle))); err != nil {
			return names, err
		}
		b := make([]byte, 96)
		if err := n.call(&n.name, handle, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))); err != nil {
			return names, err
		}
		names[i] = upTo(b)
	}
	return names, nil
}

// Card is one card.
type Card struct {
	nvml   *NVML
	handle uintptr
}

// Card finds the card at a place of the PCI bus (Driver.DeviceBusID).
func (n *NVML) Card(busID string) (*Card, error) {
	c := &Card{nvml: n}
	zero := append([]byte(busID), 0)
	return c, n.call(&n.byBusID, uintptr(unsafe.Pointer(&zero[0])), uintptr(unsafe.Pointer(&c.handle)))
}

// Sample says what the card does now. Numbers that cannot be had are NaN, and unless that is because the card has no such
// thing the error says why.
func (c *Card) Sample() (Sample, error) {
	n := c.nvml
	var errs []error
	ok := func(err error) bool {
		var e *NVMLError
		if err != nil && !(errors.As(err, &e) && e.Code == nvmlNotSupported) {
			errs = append(errs, err)
		}
		return err == nil
	}
	nan := math.NaN()
	s := Sample{nan, nan, nan, nan, nan, nan, nan, nan, nan}

	var memory struct{ total, free, used uint64 }
	if ok(n.call(&n.memoryInfo, c.handle, uintptr(unsafe.Pointer(&memory)))) {
		s.MemoryBytes, s.UsedBytes = float64(memory.total), float64(memory.used)
	}
	var percent struct{ gpu, memory uint32 }
	if ok(n.call(&n.utilization, c.handle, uintptr(unsafe.Pointer(&percent)))) {
		s.Utilization = float64(percent.gpu) / 100
	}
	var v uint32
	if ok(n.call(&n.power, c.handle, uintptr(unsafe.Pointer(&v)))) {
		s.PowerWatts = float64(v) / 1000
	}
	if ok(n.call(&n.powerLimit, c.handle, uintptr(unsafe.Pointer(&v)))) {
		s.LimitWatts = float64(v) / 1000
	}
	if ok(n.call(&n.clock, c.handle, nvmlClockSM, uintptr(unsafe.Pointer(&v)))) {
		s.ClockHz = float64(v) * 1e6
	}
	if ok(n.call(&n.maxClock, c.handle, nvmlClockSM, uintptr(unsafe.Pointer(&v)))) {
		s.MaxClockHz = float64(v) * 1e6
	}
	if ok(n.call(&n.clock, c.handle, nvmlClockMemory, uintptr(unsafe.Pointer(&v)))) {
		s.MemoryClockHz = float64(v) * 1e6
	}
	if ok(n.call(&n.temperature, c.handle, 0, uintptr(unsafe.Pointer(&v)))) {
		s.TemperatureCelsius = float64(v)
	}
	return s, errors.Join(errs...)
}
