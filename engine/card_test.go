package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels/cuda"
	"github.com/openinfer-go/openinfer/kernels/cuda/driver"
	"github.com/openinfer-go/openinfer/kernels/cuda/ptx"
)

func TestNamesOfCards(t *testing.T) {
	for name, want := range map[string]int{"cuda": 0, "cuda:0": 0, "cuda:1": 1, "cuda:12": 12} {
		if n, ok := cardOrdinal(name); !ok || n != want || !isCard(name) {
			t.Errorf("%s: card %d, %v", name, n, ok)
		}
		if card, err := checkDevice(name); !card || err != nil {
			t.Errorf("%s: card %v, %v", name, card, err)
		}
	}
	for _, name := range []string{"cuda:", "cuda:-1", "cuda:01", "cuda:x", "cuda1", "cuda:99999999999999999999", "ptx"} {
		if _, err := checkDevice(name); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenDevice(ptxDevice, 0, false); err == nil || !strings.Contains(err.Error(), "only serve and run use cards") {
		t.Errorf("%v", err)
	}
}

// oldCards is a driver with cards of these compute capabilities.
type oldCards struct {
	*driver.Interpreter
	major []int
}

func (d oldCards) DeviceCount() (int, error)                  { return len(d.major), nil }
func (d oldCards) DeviceName(c driver.Device) (string, error) { return fmt.Sprintf("Card %d", c), nil }
func (d oldCards) DeviceBytes(driver.Device) (int64, error)   { return 24 << 30, nil }
func (d oldCards) DeviceAttribute(c driver.Device, a driver.Attribute) (int, error) {
	if a == driver.ComputeCapabilityMajor {
		return d.major[c], nil
	}
	return d.Interpreter.DeviceAttribute(0, a)
}

func TestAutoTakesACardThatCanBeUsed(t *testing.T) {
	noDevice := &driver.Error{Call: "cuInit", Code: driver.CodeNoDevice, Text: "no CUDA-capable device is detected"}
	for _, c := range []struct {
		name string
		drv  driver.Driver
		err  error
		want string // Options.Device
		log  string // "": silence
	}{
		{"no driver", nil, fmt.Errorf("%w: libcuda.so.1: not found", driver.ErrNoLibrary), "auto", ""},
		{"a driver without a card", nil, noDevice, "auto", "no CUDA-capable device is detected (100)"},
		{"an old card", oldCards{driver.NewInterpreter(1), []int{7}}, nil, "auto", "Card 0 has compute capability 7.6; 8.0 is the least"},
		{"no card", oldCards{driver.NewInterpreter(1), nil}, nil, "auto", "the driver has no card"},
		{"the second can be used", oldCards{driver.NewInterpreter(1), []int{7, 9}}, nil, "cuda:1", ""},
		{"a card", driver.NewInterpreter(1), nil, "cuda:0", ""},
	} {
		var log bytes.Buffer
		o, err := Options{
			Models: []ModelSpec{{Name: "demo-tales"}}, Log: slog.New(slog.NewTextHandler(&log, nil)),
			openDriver: func() (driver.Driver, error) { return c.drv, c.err },
		}.withDefaults()
		if err != nil || o.Device != c.want {
			t.Errorf("%s: device %q, %v", c.name, o.Device, err)
		}
		if card := c.want != "auto"; (o.MaxBatchedTokens == 2048) != card {
			t.Errorf("%s: %d tokens a step", c.name, o.MaxBatchedTokens)
		}
		switch {
		case c.log == "" && log.Len() > 0:
			t.Errorf("%s: logged %s", c.name, &log)
		case !strings.Contains(log.String(), c.log) || c.log != "" && !strings.Contains(log.String(), "models run on the processor"):
			t.Errorf("%s: logged %q", c.name, &log)
		}
	}
}

func TestACardThatIsAskedForIsNeededToServe(t *testing.T) {
	small := driver.NewInterpreter(1)
	small.Bytes = 384 << 20
	tiny := driver.NewInterpreter(1)
	tiny.Bytes = 200 << 20
	for _, c := range []struct {
		device string
		drv    driver.Driver
		err    error
		want   []string
	}{
		{"cuda", nil, driver.ErrNoLibrary, []string{"device cuda", "no NVIDIA driver"}},
		{"cuda:1", driver.NewInterpreter(1), nil, []string{"device cuda:1", "no card 1", "has 1"}},
		{"cuda", oldCards{driver.NewInterpreter(1), []int{7}}, nil, []string{"compute capability 7.6"}},
		// 82 MiB go to the device's own buffers, 256 to the driver.
		{"cuda", tiny, nil, []string{"bytes are free of 209715200"}},
		{"cuda", small, nil, []string{"46.0 MiB free", "KV cache"}},
	} {
		_, err := Open(t.Context(), Options{
			Models: []ModelSpec{{Name: "demo-tales"}}, Device: c.device, loadModel: fakeOptions().loadModel,
			openDriver: func() (driver.Driver, error) { return c.drv, c.err },
		})
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v does not say %q", c.device, err, want)
			}
		}
	}
}

func TestMemoryOfACardIsOneArena(t *testing.T) {
	drv := driver.NewInterpreter(1)
	drv.Bytes = 1 << 30
	d, err := cuda.Open(drv, cuda.Options{Arena: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	free, _, err := drv.MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	info := d.Info()
	if !info.Dedicated || info.MemoryBytes < 640<<20 {
		t.Errorf("%+v", info)
	}
	b, err := d.Alloc(info.MemoryBytes)
	if err != nil {
		t.Fatal(err)
	}
	if now, _, _ := drv.MemInfo(); now != free {
		t.Errorf("an allocation took %d bytes of the driver's", free-now)
	}
	if _, err := d.Alloc(1); err == nil || !strings.Contains(err.Error(), "0 of") {
		t.Errorf("a byte more: %v", err)
	}
	d.Free(b)
	if _, err := d.Alloc(info.MemoryBytes / 2); err != nil {
		t.Error(err)
	}
	var e *driver.Error
	if _, err := cuda.Open(drv, cuda.Options{Arena: true}); err == nil || errors.As(err, &e) && e.Code != driver.CodeOutOfMemory {
		t.Errorf("a second device on a full card: %v", err)
	}
}

func TestLoadingIsTold(t *testing.T) {
	var told [][2]int64
	e, err := Open(t.Context(), Options{
		Models: []ModelSpec{{Name: "demo-tales"}, {Name: "demo-bard"}}, Device: "cpu",
		Loading: func(done, all int64) { told = append(told, [2]int64{done, all}) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if len(told) < 10 {
		t.Fatalf("told %v", told)
	}
	last := int64(0)
	for _, n := range told {
		if n[0] < last || n[0] > n[1] || n[1] != told[0][1] {
			t.Fatalf("told %v", told)
		}
		last = n[0]
	}
	if last != told[0][1] || last == 0 {
		t.Errorf("ends at %d of %d", last, told[0][1])
	}
}

// A card runs what it is given when it likes. One that does nothing before somebody waits shows what is changed too
// early, and one that works at once what is read too early.
func TestAnswersDoNotDependOnWhenACardWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("interprets kernels")
	}
	var texts [2]string
	for i, late := range []bool{false, true} {
		drv := driver.NewInterpreter(uint64(i))
		drv.Bytes, drv.Late = 2<<30, late
		e, err := Open(t.Context(), Options{
			Models: []ModelSpec{{Name: "llama", Path: testdata.Shared(t, "golden", "models", "llama")}}, Device: "cuda",
			KVMemory: 8 << 20, MaxBatchedTokens: 8, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			openDriver: func() (driver.Driver, error) { return drv, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		answers := make([]string, 3)
		for k := range answers {
			wg.Go(func() {
				seed := int64(k)
				r := Request{Model: "llama", Prompt: []int32{20, 21, 22, 23, 24, 25, 26, 27, 28, int32(30 + k)}, MaxTokens: 12, IgnoreEOS: true,
					Sampling: SamplingParams{Temperature: float32(k), TopP: 1, RepetitionPenalty: 1.2, Seed: &seed}}
				events, err := e.Generate(t.Context(), r)
				if err != nil {
					t.Error(err)
					return
				}
				for ev := range events {
					if answers[k] += fmt.Sprint(ev.Tokens); ev.Err != nil {
						t.Error(ev.Err)
					}
				}
			})
		}
		wg.Wait()
		texts[i] = strings.Join(answers, "\n")
		if n := e.device.(*cuda.Device).GraphsLaunched(); n == 0 {
			t.Error("no step was launched as a graph")
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if texts[0] != texts[1] || !strings.Contains(texts[0], "{") {
		t.Errorf("at once:\n%s\nlate:\n%s", texts[0], texts[1])
	}
}

// Products are summed in fp16 when that was asked for, and only then; a device that cannot says so.
func TestFP16Accumulation(t *testing.T) {
	if testing.Short() {
		t.Skip("interprets kernels")
	}
	for _, half := range []bool{false, true} {
		drv := driver.NewInterpreter(1)
		drv.Bytes = 1 << 30
		var products, halves int // launches; the driver has one thread
		drv.Launched = func(kernel string, _, _ [3]int, _ *ptx.Result) {
			if strings.HasPrefix(kernel, "linear_decode_w4") || strings.HasPrefix(kernel, "linear_prefill_w4") {
				if products++; strings.HasSuffix(kernel, "_half") {
					halves++
				}
			}
		}
		e, err := Open(t.Context(), Options{
			Models: []ModelSpec{{Name: "qwen3", Path: testdata.Shared(t, "golden", "quant", "qwen3_ct_g32_asym")}},
			Device: "cuda", KVMemory: 8 << 20, FP16Accumulation: half, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			openDriver: func() (driver.Driver, error) { return drv, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		events, err := e.Generate(t.Context(), Request{Model: "qwen3", Prompt: []int32{20, 21, 22}, MaxTokens: 2, IgnoreEOS: true})
		if err != nil {
			t.Fatal(err)
		}
		for ev := range events {
			if ev.Err != nil {
				t.Fatal(ev.Err)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if products == 0 || half != (halves == products) || !half && halves > 0 {
			t.Errorf("asked for fp16 sums %v: %d of %d products of 4-bit weights have them", half, halves, products)
		}
	}
	for _, device := range []string{"cpu", "ref", "sim:rtx3090"} {
		_, err := Options{Models: []ModelSpec{{Name: "demo-tales"}}, Device: device, FP16Accumulation: true}.withDefaults()
		if err == nil || !strings.Contains(err.Error(), "fp16 accumulation is for cards that compute, not for device "+device) {
			t.Errorf("%s: %v", device, err)
		}
	}
}

// Models that do not fit together take turns on a card as anywhere: what comes back answers as before.
func TestWeightsOnACardTakeTurns(t *testing.T) {
	if testing.Short() {
		t.Skip("interprets kernels")
	}
	drv := driver.NewInterpreter(1)
	drv.Bytes = 1 << 30
	e, err := Open(t.Context(), Options{
		Models: []ModelSpec{
			{Name: "llama", Path: testdata.Shared(t, "golden", "models", "llama")},
			{Name: "qwen3", Path: testdata.Shared(t, "golden", "quant", "qwen3_ct_g32_asym")},
		},
		Device: "cuda", KVMemory: 8 << 20, WeightMemory: 1 << 20, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		openDriver: func() (driver.Driver, error) { return drv, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	var first [2]string
	for round := range 2 {
		for i, name := range []string{"llama", "qwen3"} {
			events, err := e.Generate(t.Context(), Request{Model: name, Prompt: []int32{20, 21, 22}, MaxTokens: 3, IgnoreEOS: true})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for ev := range events {
				if got += fmt.Sprint(ev.Tokens); ev.Err != nil {
					t.Fatal(ev.Err)
				}
			}
			if round == 0 {
				first[i] = got
			} else if got != first[i] {
				t.Errorf("%s: %s, and before %s", name, got, first[i])
			}
		}
	}
	for _, m := range e.Stats().Models {
		if m.Loads == 0 {
			t.Errorf("%s was never brought back", m.Name)
		}
	}
}
