package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/openinfer-go/openinfer/api"
	"github.com/openinfer-go/openinfer/engine"
	"github.com/openinfer-go/openinfer/internal/agentcheck"
	"github.com/openinfer-go/openinfer/internal/config"
)

func serveCommand() *cobra.Command {
	c := config.Serve{Listen: "127.0.0.1:8080", MaxBodySize: 32 << 20, Drain: config.Duration(30 * time.Second)}
	var m modelFlags
	var file string
	var prefixCaching, checkOnly bool
	var origins []string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve models over an OpenAI-compatible HTTP API",
		Long: `Serve models over an OpenAI-compatible HTTP API.

Without --models the two embedded models are served. A MODEL is an embedded model, a checkpoint folder
(safetensors), a .gguf file, or a model that "openinfer pull" has fetched: org/name, or org/name:Q4_K_M
of several GGUF files. On a simulated card (--device sim:CARD) a config.json without weights will do, and
those of seven models are embedded: ` + strings.Join(engine.SimulatedModels(), ", ") + `.
NAME=MODEL gives it another id in the API. A flag that takes N or NAME=N sets a
value for all models or for one.`,
		Example: `  openinfer serve
  openinfer serve --models demo-tales,smol=SmolLM2-135M-Instruct.Q4_1.gguf --max-num-seqs 16,smol=64
  openinfer serve --models Qwen/Qwen3-1.7B-GPTQ-Int8,phi=unsloth/phi-4-GGUF:Q4_K_M
  openinfer serve --device sim:rtx3090 --models qwen3.5-27b,llama-3.2-1b
  openinfer serve --config openinfer.yaml --listen 0.0.0.0:8080 --api-key-file keys.txt`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return nil
			case slices.Contains(engine.EmbeddedModels(), args[0]):
				return fmt.Errorf("serve takes no arguments, only flags: write --models %s", args[0])
			}
			return fmt.Errorf("serve takes no arguments, only flags: if %q is a model, write --models %[1]s", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" {
				if err := readUnderFlags(cmd, &c, file); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("models") {
				var err error
				if c.Models, err = config.ParseModels(m.models); err != nil {
					return err
				}
				if err := locate(c.Models); err != nil {
					return fmt.Errorf("--models: %w", err)
				}
			}
			if len(c.Models) == 0 {
				for _, name := range engine.EmbeddedModels() {
					c.Models = append(c.Models, config.Model{Name: name})
				}
			}
			if err := m.apply(&c); err != nil {
				return err
			}
			if cmd.Flags().Changed("prefix-caching") {
				c.PrefixCaching = &prefixCaching
			}
			if cmd.Flags().Changed("cors-origin") {
				c.CORSOrigins = origins
			}
			if checkOnly {
				return checkConfig(c)
			}
			return serve(cmd.Context(), c)
		},
	}
	deviceFlags(cmd, &c, &m)
	limitFlags(cmd, &c, &m)
	f := cmd.Flags()
	f.StringSliceVar(&m.models, "models", nil, "MODEL or NAME=MODEL, separated by commas (default: the embedded models)")
	f.StringVar(&file, "config", "", "YAML `FILE` with these settings, names written with _, paths from the working directory; flags win over it")
	f.StringVar(&c.Listen, "listen", c.Listen, "address to listen on; :8080 is every interface")
	f.StringVar(&c.AgentCheck, "agent-check", "", "address where a balancer asks by HAProxy's agent-check what is free, of a model that it names or at all (default: nowhere)")
	f.StringVar(&c.APIKeyFile, "api-key-file", "", "`FILE` of API keys: one a line, or YAML with names and limits (README); read again on SIGHUP (default: no key is asked for)")
	f.StringVar(&c.TLSCert, "tls-cert", "", "PEM `FILE` of a certificate chain: the API speaks HTTPS alone; read again on SIGHUP (needs --tls-key)")
	f.StringVar(&c.TLSKey, "tls-key", "", "PEM `FILE` of the certificate's key")
	f.StringSliceVar(&origins, "cors-origin", nil, "origins whose pages may ask from a browser, such as https://chat.example.org, or * for all (default: none)")
	f.Var(&c.LogText, "log-text", "write prompts and answers to the log, the first SIZE of each: for finding faults, not for other people's texts (default: never)")
	f.BoolVar(&checkOnly, "check-config", false, "check the settings, the files that they name and the API keys, and exit")
	f.Var(&c.MaxBodySize, "max-body-size", "largest request body")
	f.StringSliceVar(&m.keepAlive, "keep-alive", nil, "idle time after which a model is parked: 5m, seconds, 0 at once, -1 never, for all models or NAME=TIME (default never)")
	f.StringSliceVar(&m.weight, "weight", nil, "NAME=NUMBER: the model's share of the device's time beside others (default 1)")
	f.IntVar(&c.MaxWaiting, "max-waiting", 0, "requests that may wait for each model; more get 429 (default 256)")
	f.BoolVar(&prefixCaching, "prefix-caching", true, "reuse the KV cache of prompts that begin alike")
	f.DurationVar((*time.Duration)(&c.Drain), "drain-timeout", time.Duration(c.Drain), "how long running answers may go on after SIGTERM")
	f.StringVar(&c.LogFormat, "log-format", "text", "text or json")
	return cmd
}

// readUnderFlags reads a file into c, but what a flag has set stays.
func readUnderFlags(cmd *cobra.Command, c *config.Serve, file string) error {
	given := map[*pflag.Flag]string{}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() != "stringSlice" { // lists are in modelFlags, which apply puts over c
			given[f] = f.Value.String()
		}
	})
	if err := c.Read(file, checkSetting); err != nil {
		return err
	}
	for f, value := range given {
		if err := f.Value.Set(value); err != nil {
			return err
		}
	}
	return nil
}

func serve(ctx context.Context, c config.Serve) error {
	log, err := logger(c.LogFormat)
	if err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	o, err := engineOptions(c)
	if err != nil {
		return err
	}
	o.Log = log
	secrets, err := readSecrets(c)
	if err != nil {
		return err
	}
	bar := newProgressBar(os.Stdout, "weights", true)
	o.Loading = bar.set
	e, err := engine.New(o)
	if err != nil {
		return err
	}
	defer e.Close()
	listener, err := listen(c.Listen)
	if err != nil {
		return err
	}
	handler := api.New(e, api.Options{Version: version(), BodyLimit: int64(c.MaxBodySize), CORSOrigins: c.CORSOrigins, LogText: int(c.LogText), Log: log})
	handler.SetKeys(secrets.keys)
	server := api.NewServer(handler)

	alive, dead := context.WithCancel(context.Background()) // to the end of the last answer
	defer dead()
	go watchdog(alive, e, log)
	// a signal that comes while models load is obeyed when they are
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	group, ctx := errgroup.WithContext(ctx)
	var stopping atomic.Bool
	if c.AgentCheck != "" {
		l, err := net.Listen("tcp", c.AgentCheck)
		if err != nil {
			return fmt.Errorf("--agent-check %s: %w", c.AgentCheck, err)
		}
		defer l.Close() // after the last answer: a balancer is told to send no more as long as there are some
		log.Info("agent check", "listen", l.Addr().String())
		go func() {
			err := agentcheck.Serve(l, func(model string) (agentcheck.State, error) { return agentState(e, model, stopping.Load()) })
			if err != nil {
				log.Error("balancers get no answer any more", "error", err)
			}
		}()
	}
	group.Go(func() error { // health and readiness answer while models load
		if err := secrets.serve(server, listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		defer server.Close()
		start := time.Now()
		err := e.Load(ctx)
		bar.close()
		if err != nil {
			return err
		}
		fmt.Printf("%v\nReady after %v: %s://%s (a page; the API is under /v1)\n", e.Plan(), time.Since(start).Round(time.Millisecond), secrets.scheme(), listener.Addr())
		notify(log, daemon.SdNotifyReady)
		for running := true; running; {
			select {
			case <-ctx.Done():
				running = false
			case <-reload:
				secrets.reload(handler, log)
			}
		}
		notify(log, daemon.SdNotifyStopping)
		stopping.Store(true)
		return shutdown(e, server, time.Duration(c.Drain), log)
	})
	return group.Wait()
}

// agentState is what a balancer is told of a model, or of the node: it has what any of its models has.
func agentState(e *engine.Engine, model string, stopping bool) (agentcheck.State, error) {
	s := agentcheck.State{Draining: stopping}
	if stopping {
		s.Why = "stopping"
		return s, nil
	}
	h := e.Health()
	if s.Up = h.Ready; !s.Up {
		s.Why = h.Reason
	}
	known := false
	for _, c := range e.Capacities() {
		if model == "" || c.Model == model {
			known = true
			s.Free = max(s.Free, c.Free)
		}
	}
	if !known {
		return s, fmt.Errorf("no model %q here", model)
	}
	return s, nil
}

// shutdown lets running answers end, up to a limit; a second signal stops at once, since the
// first one restored the signals' default.
func shutdown(e *engine.Engine, server *http.Server, limit time.Duration, log *slog.Logger) error {
	log.Info("stopping: no new requests, running ones may end; a second signal stops at once", "limit", limit)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := e.Drain(ctx); err != nil {
		log.Warn("requests were still running at the limit and are ended")
	}
	e.Close() // ends what is left with a final event, which the server then writes
	ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return server.Shutdown(ctx)
}

func logger(format string) (*slog.Logger, error) {
	switch format {
	case "", "text":
		return slog.New(slog.NewTextHandler(os.Stderr, nil)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, nil)), nil
	}
	return nil, fmt.Errorf("--log-format %s: there are text and json", format)
}
