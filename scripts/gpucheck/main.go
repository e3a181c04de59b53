// Command gpucheck is `make gpu-check`: what to run on the day that a card is there.
//
// The conformance suite runs on the card, in full (go test ./kernels/cuda with OPENINFER_CARD). Steps of synthetic models, at
// the real shapes of models/configs and with random weights, are timed whole, and each kernel of a step by itself with the
// driver's events, beside the card's own copy and matrix rates (rates.cu). The same steps are counted on the interpreter, and
// the formula of docs/kernels.md says what they should take. One Markdown table goes to standard output, one JSON file to --out.
//
// Exit status 1: no card, or something on it failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/models/configs"
	"github.com/openinfer-go/openinfer/scripts/kernelreport/cost"
)

func main() {
	log.SetFlags(log.Ltime)
	out := flag.String("out", "gpu-check.json", "JSON `file` to write")
	card := flag.Int("card", 0, "`ordinal` of the card, as the driver counts")
	only := flag.String("models", strings.Join(configs.Names(), ","), "`names` of configs")
	flag.Parse()
	p := plan{steps: []stepShape{{"decode, 1 stream", cost.Decoding(1, 1024)}, {"decode, 8 streams", cost.Decoding(8, 1024)}, {"prefill, 512 tokens", []cost.Row{{N: 512}}}},
		headBits: 8, copyBytes: 256 << 20, cold: 128 << 20, loops: 4096, list: 64, ms: 20, budget: 400_000}
	for _, name := range strings.Split(*only, ",") {
		config, ok := configs.Open(name)
		if !ok {
			log.Fatalf("--models: %s is not one of %s", name, strings.Join(configs.Names(), ", "))
		}
		p.models = append(p.models, model{name, config})
	}
	drv, err := driver.Open()
	if err == nil {
		_, err = describe(drv, *card)
	}
	if err != nil {
		log.Fatal(missing(err))
	}
	r, err := check(drv, *card, p, conformance)
	if err := write(r, os.Stdout, *out); err != nil {
		log.Fatal(err)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// missing says what a machine needs that this one does not have.
func missing(err error) error {
	return fmt.Errorf("gpu-check needs an NVIDIA card of compute capability 8.0 or more and its driver (libcuda.so.1, version 520 or later); "+
		"nothing was checked: %w", err)
}

// check does all of it, and goes on after what fails, so that the report has what could be had.
func check(drv driver.Driver, card int, p plan, conform func(card int) error) (*report, error) {
	runtime.LockOSThread() // which has the context
	defer runtime.UnlockOSThread()
	start := time.Now()
	defer func() { log.Printf("%.0f s", time.Since(start).Seconds()) }()
	c, err := describe(drv, card)
	if err != nil {
		return nil, err
	}
	r := &report{Driver: drv.Name(), Card: c.String(), Predicted: cost.Card.Description, Conformance: "passed", Conformed: true}

	// Counting takes the processor, and so does the reference of the suite: both are done before anything is timed.
	counts := make([]counted, len(p.models))
	errs := make([]error, len(p.models)+1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, m := range p.models {
			log.Printf("counting %s", m.name)
			counts[i], errs[i] = count(m, p)
		}
	}()
	log.Print("conformance")
	if err := conform(card); err != nil {
		r.Conformance, r.Conformed = "FAILED", false
		errs = append(errs, fmt.Errorf("conformance: %w", err))
	}
	<-done
	log.Print("the card's rates")
	if r.Rates, err = measureRates(drv, driver.Device(card), p); err != nil {
		errs = append(errs, fmt.Errorf("rates: %w", err))
	}
	for i, m := range p.models {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%s: counting: %w", m.name, errs[i])
			continue
		}
		if time.Since(start) > modelsTime {
			errs[i] = fmt.Errorf("%s: not timed: %v are over", m.name, modelsTime)
			continue
		}
		log.Print(m.name)
		kernels, steps, err := checkModel(drv, card, m, counts[i], p)
		if err != nil {
			errs[i] = fmt.Errorf("%s: %w", m.name, err)
		}
		r.Kernels, r.Steps = append(r.Kernels, kernels...), append(r.Steps, steps...)
	}
	r.Seconds = time.Since(start).Seconds()
	return r, errors.Join(errs...)
}

func write(r *report, table io.Writer, out string) error {
	if r == nil {
		return nil
	}
	r.writeTable(table)
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(r.writeJSON(f), f.Close())
}

// Of the eight minutes of the check the suite has so many, and after so many no model is begun.
const (
	conformanceTime = 4 * time.Minute
	modelsTime      = 7 * time.Minute
)

// conformance runs the suite on the card in a process of its own: a kernel that faults takes its context along.
func conformance(card int) error {
	ctx, cancel := context.WithTimeout(context.Background(), conformanceTime+time.Minute) // for compiling
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "./kernels/cuda", "-run", "^TestConformance$", "-count=1", "-timeout", conformanceTime.String())
	cmd.Env = append(os.Environ(), "OPENINFER_CARD="+strconv.Itoa(card))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}
