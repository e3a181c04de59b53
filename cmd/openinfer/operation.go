package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/config"
)

// secrets are what is read from files that change while the server runs: API keys and the certificate.
type secrets struct {
	keyFile     string
	keys        []config.Key
	certificate *api.Certificate // nil: plain HTTP
}

func readSecrets(c config.Serve) (*secrets, error) {
	s := &secrets{keyFile: c.APIKeyFile}
	var err error
	if s.keyFile != "" {
		if s.keys, err = config.ReadKeys(s.keyFile); err != nil {
			return nil, err
		}
	}
	if c.TLSCert != "" {
		if s.certificate, err = api.NewCertificate(c.TLSCert, c.TLSKey); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// reload reads the files again. What is wrong with one leaves what was there before, and says so.
func (s *secrets) reload(h *api.Handler, log *slog.Logger) {
	notify(log, daemon.SdNotifyReloading+"\n"+daemon.SdNotifyMonotonicUsec())
	defer notify(log, daemon.SdNotifyReady)
	if s.keyFile != "" {
		if keys, err := config.ReadKeys(s.keyFile); err != nil {
			log.Error("the API keys stay as they were", "error", err)
		} else {
			s.keys = keys
			h.SetKeys(keys)
			log.Info("API keys read", "keys", len(keys))
		}
	}
	if s.certificate != nil {
		if err := s.certificate.Reload(); err != nil {
			log.Error("the certificate stays as it was", "error", err)
		} else {
			log.Info("certificate read")
		}
	}
}

func (s *secrets) scheme() string {
	if s.certificate != nil {
		return "https"
	}
	return "http"
}

func (s *secrets) serve(server *http.Server, l net.Listener) error {
	if s.certificate == nil {
		return server.Serve(l)
	}
	server.TLSConfig = s.certificate.Config()
	return server.ServeTLS(l, "", "")
}

// listen takes the socket that systemd holds for the service, else opens one.
func listen(address string) (net.Listener, error) {
	given, err := activation.Listeners()
	switch {
	case err != nil:
		return nil, fmt.Errorf("sockets from systemd: %w", err)
	case len(given) == 1 && given[0] != nil:
		return given[0], nil
	case len(given) > 0:
		return nil, fmt.Errorf("sockets from systemd: want one stream socket, got %d", len(given))
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen %s: %w", address, err)
	}
	return l, nil
}

// notify tells systemd, if it has started this process.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd is not told", "state", state, "error", err)
	}
}

// watchdog tells systemd that the server lives for as long as the step loop does; silence makes it start another.
// Models that load are signs of life, too: health has its own say when they are there.
func watchdog(ctx context.Context, e *engine.Engine, log *slog.Logger) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return // nobody watches
	}
	ready := false
	for tick := time.NewTicker(every / 3); ; {
		h := e.Health()
		ready = ready || h.Ready
		if h.OK || !ready {
			notify(log, daemon.SdNotifyWatchdog)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// checkSetting is engine's check, and ours of the log.
func checkSetting(field, value string) error {
	if field == "log_format" {
		_, err := logger(value)
		return err
	}
	return engine.CheckSetting(field, value)
}

// checkConfig checks what can be checked without a device.
func checkConfig(c config.Serve) error {
	if _, err := logger(c.LogFormat); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	if _, err := engineOptions(c); err != nil {
		return err
	}
	for name, value := range map[string]string{"device": c.Device, "kv_cache_dtype": c.KVCacheDType, "quantize": c.Quantize} {
		if value == "" {
			continue
		}
		if err := engine.CheckSetting(name, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, m := range c.Models {
		path := m.Path
		if path == "" {
			path = m.Name
		}
		if _, err := engine.Locate(path); err != nil {
			return fmt.Errorf("model %s: %w", m.Name, err)
		}
	}
	s, err := readSecrets(c)
	if err != nil {
		return err
	}
	for _, k := range s.keys {
		for _, name := range k.Models {
			if !served(c.Models, name) {
				return fmt.Errorf("--api-key-file %s: key %s: models: no served model is named %q", c.APIKeyFile, k.Name, name)
			}
		}
	}
	fmt.Printf("The settings are good: %d models, %d API keys.\n", len(c.Models), len(s.keys))
	return nil
}

func served(models []config.Model, name string) bool {
	for _, m := range models {
		if m.Name == name {
			return true
		}
	}
	return false
}
