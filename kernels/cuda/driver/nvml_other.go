//go:build !linux || !(amd64 || arm64)

package driver

// NVML is the management library, which is not looked for here.
type NVML struct{}

// OpenNVML says that there is none.
func OpenNVML() (*NVML, error) { return nil, ErrNoLibrary }

// DriverVersion is of the installed driver.
func (n *NVML) DriverVersion() (string, error) { return "", ErrNoLibrary }

// Names lists the cards.
func (n *NVML) Names() ([]string, error) { return nil, ErrNoLibrary }

// Card finds the card at a place of the PCI bus.
func (n *NVML) Card(busID string) (*Card, error) { return nil, ErrNoLibrary }

// Card is one card.
type Card struct{}

// Sample says what the card does now.
func (c *Card) Sample() (Sample, error) { return Sample{}, ErrNoLibrary }
