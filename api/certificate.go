package api

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"
)

// Certificate is a TLS certificate that can be replaced while connections are open: those go on, new ones get the new.
type Certificate struct {
	certFile, keyFile string
	now               atomic.Pointer[tls.Certificate]
}

// NewCertificate reads a certificate chain and its key, PEM files.
func NewCertificate(certFile, keyFile string) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile}
	return c, c.Reload()
}

// Reload reads the files again. After an error the old certificate stays.
func (c *Certificate) Reload() error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("--tls-cert %s, --tls-key %s: %w", c.certFile, c.keyFile, err)
	}
	c.now.Store(&pair)
	return nil
}

// Config is for http.Server.TLSConfig: TLS 1.2 and later, HTTP/2 where a client has it.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.now.Load(), nil },
	}
}
