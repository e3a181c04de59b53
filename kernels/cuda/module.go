package cuda

import (
	"embed"
	"fmt"

	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
)

//go:embed *.ptx
var code embed.FS

// entry is a kernel's function on the card.
type entry struct {
	fn     driver.Function
	shared int // dynamic shared memory that it is allowed
}

// room allows the function that much dynamic shared memory; more than 48 KiB must be asked for.
func (e *entry) room(drv driver.Driver, bytes int) error {
	if bytes <= e.shared || bytes <= 48<<10 {
		return nil
	}
	if err := drv.SetFunctionAttribute(e.fn, driver.MaxDynamicSharedBytes, bytes); err != nil {
		return err
	}
	e.shared = bytes
	return nil
}

// entry finds entry name of file.ptx and loads the module when it is the first of it.
func (d *Device) entry(file, name string) (*entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.entries[name]; e != nil {
		return e, nil
	}
	m, ok := d.modules[file]
	if !ok {
		text, err := code.ReadFile(file + ".ptx")
		if err != nil {
			return nil, err
		}
		if m, err = d.drv.LoadModule(text); err != nil {
			return nil, fmt.Errorf("%s.ptx: %w", file, err)
		}
		d.modules[file] = m
	}
	fn, err := d.drv.Function(m, name)
	if err != nil {
		return nil, fmt.Errorf("%s.ptx: %w", file, err)
	}
	d.entries[name] = &entry{fn: fn}
	return d.entries[name], nil
}
