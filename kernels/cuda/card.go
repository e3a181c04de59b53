package cuda

import (
	"errors"
	"fmt"

	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
)

// Card is what the driver says of a card.
type Card struct {
	Name            string
	BusID           string // where NVML finds it
	Major, Minor    int    // compute capability
	Multiprocessors int
	MemoryBytes     int64
	// Bandwidth in bytes a second and Rate, of products in fp16 with sums in fp32, in operations a second, from clocks and
	// widths as the driver states them; 0: it does not.
	Bandwidth, Rate float64
}

func (c Card) String() string {
	return fmt.Sprintf("%s, compute capability %d.%d, %d multiprocessors", c.Name, c.Major, c.Minor, c.Multiprocessors)
}

// usable says why the kernels do not run on a card.
func (c Card) usable() error {
	if c.Major < 8 {
		return fmt.Errorf("%s has compute capability %d.%d; 8.0 is the least", c.Name, c.Major, c.Minor)
	}
	return nil
}

// Cards lists the cards of a driver, in its order, each with the reason that it cannot be used for, or nil. The error is
// of the driver.
func Cards(drv driver.Driver) (cards []Card, unusable []error, err error) {
	n, err := drv.DeviceCount()
	if err != nil {
		return nil, nil, err
	}
	for i := range n {
		c, err := describe(drv, driver.Device(i))
		if err == nil {
			err = c.usable()
		}
		cards, unusable = append(cards, c), append(unusable, err)
	}
	return cards, unusable, nil
}

func describe(drv driver.Driver, card driver.Device) (c Card, err error) {
	var errs [5]error
	c.Name, errs[0] = drv.DeviceName(card)
	c.MemoryBytes, errs[1] = drv.DeviceBytes(card)
	c.Major, errs[2] = drv.DeviceAttribute(card, driver.ComputeCapabilityMajor)
	c.Minor, errs[3] = drv.DeviceAttribute(card, driver.ComputeCapabilityMinor)
	c.Multiprocessors, errs[4] = drv.DeviceAttribute(card, driver.Multiprocessors)
	if err := errors.Join(errs[:]...); err != nil {
		return c, err
	}
	// What follows helps and is not needed: newer drivers may not say it.
	c.BusID, _ = drv.DeviceBusID(card)
	attribute := func(a driver.Attribute) float64 {
		v, _ := drv.DeviceAttribute(card, a)
		return float64(v)
	}
	c.Bandwidth = attribute(driver.MemoryClockRate) * 1000 * 2 * attribute(driver.MemoryBusWidth) / 8 // two transfers a clock
	c.Rate = attribute(driver.ClockRate) * 1000 * float64(c.Multiprocessors) * operations(c.Major, c.Minor)
	return c, nil
}

// operations is how many a multiprocessor of a GeForce card, or of a data centre's, does in a clock in products of fp16 with
// sums in fp32: the rates of NVIDIA's white papers over clock and multiprocessors.
func operations(major, minor int) float64 {
	switch {
	case major == 8 && minor == 0:
		return 2048
	case major == 9 || major == 10:
		return 4096
	}
	return 512
}
