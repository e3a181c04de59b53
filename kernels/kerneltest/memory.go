package kerneltest

import (
	"bytes"
	"fmt"

	"github.com/openinfer-go/openinfer/kernels"
)

// copier is a device whose memory the host does not see.
type copier interface {
	CopyIn(dst kernels.Buffer, src []byte) error
	CopyOut(dst []byte, src kernels.Buffer) error
}

// deviceMemory shows the host the memory of a device. Where the device has none that the host sees, a buffer's Host is
// an image of it, copied in before a step and out after it.
type deviceMemory struct {
	d      kernels.Device
	images []image
}

type image struct {
	kernels.Buffer
	known []byte // what the device holds
}

// see returns b with its bytes in Host.
func (m *deviceMemory) see(b kernels.Buffer) (kernels.Buffer, error) {
	if b.Host != nil || b.Len == 0 {
		return b, nil
	}
	b.Host = make([]byte, b.Len)
	i := image{b, make([]byte, b.Len)}
	m.images = append(m.images, i)
	return b, m.out(i)
}

func (m *deviceMemory) free(b kernels.Buffer) {
	for i, image := range m.images {
		if image.Addr == b.Addr {
			m.images = append(m.images[:i], m.images[i+1:]...)
			break
		}
	}
	m.d.Free(b)
}

// copyIn gives the device what the host has written.
func (m *deviceMemory) copyIn() error {
	for _, i := range m.images {
		if bytes.Equal(i.Host, i.known) {
			continue
		}
		if err := m.d.(copier).CopyIn(i.Buffer, i.Host); err != nil {
			return err
		}
		copy(i.known, i.Host)
	}
	return nil
}

// copyOut takes over what the device has written.
func (m *deviceMemory) copyOut() error {
	for _, i := range m.images {
		if err := m.out(i); err != nil {
			return err
		}
	}
	return nil
}

func (m *deviceMemory) out(i image) error {
	c, ok := m.d.(copier)
	if !ok {
		return fmt.Errorf("%s: memory that the host neither sees nor can copy", m.d.Info().Name)
	}
	if err := c.CopyOut(i.Host, i.Buffer); err != nil {
		return err
	}
	copy(i.known, i.Host)
	return nil
}
