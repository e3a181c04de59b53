package driver

import "fmt"

// Sample is what NVML says of a card now. A number that the card does not give is NaN.
type Sample struct {
	MemoryBytes, UsedBytes float64
	Utilization            float64 // share of the last moments in which any kernel ran, 0 to 1
	PowerWatts, LimitWatts float64
	ClockHz, MaxClockHz    float64 // of the multiprocessors
	MemoryClockHz          float64
	TemperatureCelsius     float64
}

// NVMLError is what the management library answers instead of a result.
type NVMLError struct {
	Call string // nvmlInit
	Code int    // nvmlReturn_t
	Text string
}

func (e *NVMLError) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code) }
