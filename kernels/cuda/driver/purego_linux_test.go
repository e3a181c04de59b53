//go:build amd64 || arm64

package driver

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// compile makes a shared library of a C file in testdata.
func compile(t *testing.T, source string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c")+".so")
	args := append([]string{"-shared", "-fPIC", "-O1", "-o", out, filepath.Join("testdata", source)}, flags...)
	if b, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, b)
	}
	return out
}

// fake is the C file that writes calls down.
type fake struct{ lib *library }

func openFake(t *testing.T, flags ...string) (*cuda, fake) {
	t.Helper()
	d, err := OpenLibrary(compile(t, "fakecuda.c", flags...))
	if err != nil {
		t.Fatal(err)
	}
	return d.(*cuda), fake{d.(*cuda).lib}
}

// calls returns what was called since the last time.
func (f fake) calls() string {
	log, clear := f.lib.find("fake_log"), f.lib.find("fake_clear")
	s := text(log.pointer(0))
	clear.call()
	return s
}

func (f fake) fail(call string, code int) {
	name, fail := append([]byte(call), 0), f.lib.find("fake_fail")
	fail.call(uintptr(unsafe.Pointer(&name[0])), uintptr(code))
}

const (
	fakeContext = 0xc0de000000000001
	fakeModule  = 0xd0d0000000000002
	fakeFunc    = 0xf00d000000000003
	fakeStream  = 0x5000000000000004
	fakeEvent   = 0xe000000000000005
	fakeGraph   = 0x6000000000000006
	fakeExec    = 0x7000000000000007
)

func TestPuregoPassesArguments(t *testing.T) {
	d, f := openFake(t)
	passesArguments(t, d, f)
}

// passesArguments compares what a driver calls with what it was asked for.
func passesArguments(t *testing.T, d Driver, f fake) {
	if got := f.calls(); got != "cuInit 0\n" {
		t.Errorf("opening: %q", got)
	}
	host, hostAddr, err := d.AllocHost(4096)
	must(t, err)
	if hostAddr != uint64(uintptr(unsafe.Pointer(&host[0])))+1 || len(host) != 4096 || host[4095] != 0 {
		t.Errorf("host memory: %d bytes, at %x for kernels, last byte %x", len(host), hostAddr, host[len(host)-1])
	}
	if got := f.calls(); got != "cuMemHostAlloc 4096 3\ncuMemHostGetDevicePointer_v2 0\n" {
		t.Errorf("host memory: %q", got)
	}
	into := make([]byte, 3)
	cases := []struct {
		name string
		run  func() (any, error)
		want any
		log  string
	}{
		{"version", func() (any, error) { return d.Version() }, 12040, "cuDriverGetVersion "},
		{"count", func() (any, error) { return d.DeviceCount() }, 3, "cuDeviceGetCount "},
		{"name", func() (any, error) { return d.DeviceName(2) }, "Fake 102", "cuDeviceGet 2\ncuDeviceGetName 256 102"},
		{"bus", func() (any, error) { return d.DeviceBusID(1) }, "0000:65:00.0", "cuDeviceGet 1\ncuDeviceGetPCIBusId 32 101"},
		{"bytes", func() (any, error) { return d.DeviceBytes(1) }, int64(24 << 30), "cuDeviceGet 1\ncuDeviceTotalMem_v2 101"},
		{"attribute", func() (any, error) { return d.DeviceAttribute(0, Multiprocessors) }, 82, "cuDeviceGet 0\ncuDeviceGetAttribute 16 100"},
		{"context", func() (any, error) { return d.OpenContext(1) }, Context(fakeContext), "cuDeviceGet 1\ncuCtxCreate_v2 0 101"},
		{"set context", func() (any, error) { return nil, d.SetContext(fakeContext) }, nil, "cuCtxSetCurrent c0de000000000001"},
		{"free memory", func() (any, error) { free, total, err := d.MemInfo(); return [2]int64{free, total}, err }, [2]int64{20 << 30, 24 << 30}, "cuMemGetInfo_v2 "},
		{"alloc", func() (any, error) { return d.Alloc(5 << 32) }, uint64(0x7f0000000100), "cuMemAlloc_v2 21474836480"},
		{"free", func() (any, error) { return nil, d.Free(0x7f0000000100) }, nil, "cuMemFree_v2 7f0000000100"},
		{"to device", func() (any, error) { return nil, d.CopyToDevice(0xabc000000001, []byte("hello"), fakeStream) }, nil, "cuMemcpyHtoDAsync_v2 abc000000001 hello 5 5000000000000004"},
		{"to host", func() (any, error) { err := d.CopyToHost(into, 0xabc000000002, 0); return string(into), err }, "hhh", "cuMemcpyDtoHAsync_v2 abc000000002 3 0"},
		{"on device", func() (any, error) { return nil, d.CopyOnDevice(0xa, 0xb, 3<<32, fakeStream) }, nil, "cuMemcpyDtoDAsync_v2 a b 12884901888 5000000000000004"},
		{"fill", func() (any, error) { return nil, d.Fill(0xd, 0xfe, 1<<33, fakeStream) }, nil, "cuMemsetD8Async d 254 8589934592 5000000000000004"},
		{"module", func() (any, error) { return d.LoadModule([]byte("some ptx")) }, Module(fakeModule), "cuModuleLoadDataEx some ptx 2 5 6 8192"},
		{"function", func() (any, error) { return d.Function(fakeModule, "gemm") }, Function(fakeFunc), "cuModuleGetFunction d0d0000000000002 gemm"},
		{"function attribute", func() (any, error) { return d.FunctionAttribute(fakeFunc, Registers) }, 2004, "cuFuncGetAttribute 4 f00d000000000003"},
		{"set function attribute", func() (any, error) {
			return nil, d.SetFunctionAttribute(fakeFunc, MaxDynamicSharedBytes, 99<<10)
		}, nil, "cuFuncSetAttribute f00d000000000003 8 101376"},
		{"unload", func() (any, error) { return nil, d.UnloadModule(fakeModule) }, nil, "cuModuleUnload d0d0000000000002"},
		{"stream", func() (any, error) { return d.NewStream() }, Stream(fakeStream), "cuStreamCreate 1"},
		{"sync", func() (any, error) { return nil, d.SyncStream(fakeStream) }, nil, "cuStreamSynchronize 5000000000000004"},
		{"event", func() (any, error) { return d.NewEvent() }, Event(fakeEvent), "cuEventCreate 0"},
		{"record", func() (any, error) { return nil, d.RecordEvent(fakeEvent, fakeStream) }, nil, "cuEventRecord e000000000000005 5000000000000004"},
		{"sync event", func() (any, error) { return nil, d.SyncEvent(fakeEvent) }, nil, "cuEventSynchronize e000000000000005"},
		{"wait", func() (any, error) { return nil, d.WaitEvent(fakeStream, fakeEvent) }, nil, "cuStreamWaitEvent 5000000000000004 e000000000000005 0"},
		{"elapsed", func() (any, error) { return d.ElapsedMS(fakeEvent, fakeEvent+1) }, 1.5, "cuEventElapsedTime e000000000000005 e000000000000006"},
		{"close event", func() (any, error) { return nil, d.CloseEvent(fakeEvent) }, nil, "cuEventDestroy_v2 e000000000000005"},
		{"launch", func() (any, error) {
			return nil, d.Launch(fakeFunc, [3]int{70000, 2, 3}, [3]int{128, 4, 1}, 65536, fakeStream,
				[]uint64{0x7fabcdef01234567, 42, uint64(math.Float32bits(-0.25))})
		}, nil, "cuLaunchKernel f00d000000000003 70000,2,3 128,4,1 65536 5000000000000004 7fabcdef01234567 2a -0.25 1"},
		{"capture", func() (any, error) { return nil, d.BeginCapture(fakeStream) }, nil, "cuStreamBeginCapture_v2 5000000000000004 2"},
		{"end capture", func() (any, error) { return d.EndCapture(fakeStream) }, Graph(fakeGraph), "cuStreamEndCapture 5000000000000004"},
		{"instantiate", func() (any, error) { return d.Instantiate(fakeGraph) }, GraphExec(fakeExec), "cuGraphInstantiateWithFlags 6000000000000006 0"},
		{"launch graph", func() (any, error) { return nil, d.LaunchGraph(fakeExec, fakeStream) }, nil, "cuGraphLaunch 7000000000000007 5000000000000004"},
		{"close graph", func() (any, error) { return nil, d.CloseGraph(fakeGraph) }, nil, "cuGraphDestroy 6000000000000006"},
		{"close exec", func() (any, error) { return nil, d.CloseGraphExec(fakeExec) }, nil, "cuGraphExecDestroy 7000000000000007"},
		{"close stream", func() (any, error) { return nil, d.CloseStream(fakeStream) }, nil, "cuStreamDestroy_v2 5000000000000004"},
		{"free host", func() (any, error) { return nil, d.FreeHost(host) }, nil, "cuMemFreeHost "},
		{"close context", func() (any, error) { return nil, d.CloseContext(fakeContext) }, nil, "cuCtxDestroy_v2 c0de000000000001"},
	}
	for _, c := range cases {
		got, err := c.run()
		if err != nil || got != c.want {
			t.Errorf("%s: got %v, %v, want %v", c.name, got, err, c.want)
		}
		if log := f.calls(); log != c.log+"\n" {
			t.Errorf("%s: called\n%swant\n%s", c.name, log, c.log)
		}
		// Each call's failure is its error.
		calls := strings.Split(c.log, "\n")
		name, _, _ := strings.Cut(calls[len(calls)-1], " ")
		if name == "cuMemFreeHost" {
			continue // its memory is gone
		}
		f.fail(name, 700)
		_, err = c.run()
		var e *Error
		if !errors.As(err, &e) || e.Call != name || e.Code != 700 || !strings.HasPrefix(e.Text, "an illegal memory access was encountered") {
			t.Errorf("%s failing: %v", c.name, err)
		}
		f.calls()
	}
}

func TestPuregoErrors(t *testing.T) {
	d, f := openFake(t)
	f.fail("cuModuleLoadDataEx", 218)
	if _, err := d.LoadModule([]byte("x")); err == nil || !strings.Contains(err.Error(), "some error: line 4: nonsense (218)") {
		t.Errorf("the compiler's words are lost: %v", err)
	}
	f.fail("cuStreamSynchronize", 999)
	if err := d.SyncStream(0); err == nil || err.Error() != "cuStreamSynchronize: unknown error (999)" {
		t.Errorf("%v", err)
	}
	if err := d.Launch(fakeFunc, [3]int{1, 1, 1}, [3]int{1, 1, 1}, 0, 0, make([]uint64, maxParams+1)); err == nil || !strings.Contains(err.Error(), "65 arguments") {
		t.Errorf("%v", err)
	}
	_, err := OpenLibrary(filepath.Join(t.TempDir(), "libcuda.so.1"))
	if !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "libcuda.so.1") {
		t.Errorf("%v", err)
	}
	notALibrary := filepath.Join(t.TempDir(), "libcuda.so.1")
	must(t, os.WriteFile(notALibrary, []byte("text"), 0o600))
	if _, err := OpenLibrary(notALibrary); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("%v", err)
	}
}

func TestPuregoNamesAFunctionThatIsMissing(t *testing.T) {
	d, _ := openFake(t, "-DOLD")
	if _, err := d.Version(); err != nil {
		t.Errorf("what does not need it: %v", err)
	}
	if _, err := d.Instantiate(fakeGraph); err == nil || !strings.Contains(err.Error(), "cuGraphInstantiateWithFlags") || !strings.Contains(err.Error(), "fakecuda.so") {
		t.Errorf("%v", err)
	}
}

// The library that Debian ships, on a machine without a card.
func TestRealLibcudaSaysThatThereIsNoCard(t *testing.T) {
	path := filepath.Join(cacheDir(t), "libcuda.so.1")
	_, err := OpenLibrary(path)
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v", err)
	}
	if e.Call != "cuInit" || e.Code == 0 || e.Text == "" || e.Text == "unknown error" {
		t.Errorf("got %v", err)
	}
	// Each function that this package calls is there.
	lib, err := openLibrary(path)
	must(t, err)
	source, err := os.ReadFile("purego.go")
	must(t, err)
	n := 0
	for _, line := range strings.Split(string(source), "\n") {
		if _, rest, ok := strings.Cut(line, `, "cu`); ok {
			name := "cu" + rest[:strings.Index(rest, `"`)]
			n++
			if lib.find(name).at == 0 {
				t.Errorf("%s is not in %s", name, path)
			}
		}
	}
	if n < 40 {
		t.Errorf("only %d functions looked up", n)
	}
}

// cacheDir is a folder that scripts/libcuda.sh fills.
func cacheDir(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("OPENINFER_CACHE")
	if cache == "" {
		cache = "../../../.cache"
	}
	dir, err := filepath.Abs(filepath.Join(cache, "libcuda"))
	must(t, err)
	if _, err := os.Stat(filepath.Join(dir, "include", "cuda.h")); err != nil {
		t.Skipf("%v: run `make deps`", err)
	}
	return dir
}

// The same through gorgonia.org/cu: a program with build tag cu is linked with Debian's libcuda and runs on the one that
// writes calls down; and on Debian's it says that there is no card.
func TestCuPassesArguments(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a cgo package of 20 seconds")
	}
	dir := cacheDir(t)
	program := filepath.Join(t.TempDir(), "driver.test")
	build := exec.Command("go", "test", "-c", "-tags", "cu", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-I"+filepath.Join(dir, "include"), "CGO_LDFLAGS=-L"+dir)
	if b, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	run := func(libraries string) (string, error) {
		cmd := exec.Command(program, "-test.run=^TestLinkedPassesArguments$", "-test.v")
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries)
		b, err := cmd.CombinedOutput()
		return string(b), err
	}
	fake := filepath.Join(t.TempDir(), "libcuda.so.1")
	must(t, os.Rename(compile(t, "fakecuda.c"), fake))
	if out, err := run(filepath.Dir(fake)); err != nil || !strings.Contains(out, "--- PASS: TestLinkedPassesArguments") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := run(dir); err == nil || !strings.Contains(out, "no CUDA-capable device") && !strings.Contains(out, "NoDevice") {
		t.Errorf("without a card: %v\n%s", err, out)
	}
}

func TestNVML(t *testing.T) {
	n, err := openNVML(compile(t, "fakenvml.c"))
	must(t, err)
	if v, err := n.DriverVersion(); err != nil || v != "550.54.14" {
		t.Errorf("driver %q, %v", v, err)
	}
	if names, err := n.Names(); err != nil || len(names) != 2 || names[1] != "Fake 1" {
		t.Errorf("cards %q, %v", names, err)
	}
	card, err := n.Card("0000:64:00.0")
	must(t, err)
	got, err := card.Sample()
	if want := (Sample{24 << 30, 6 << 30, 0.75, 320.5, 350, 1695e6, 2100e6, 9751e6, 61}); err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	second, err := n.Card("0000:65:00.0")
	must(t, err)
	got, err = second.Sample()
	if err != nil || got.UsedBytes != 6<<30 || !math.IsNaN(got.PowerWatts) || !math.IsNaN(got.ClockHz) || got.TemperatureCelsius != 61 {
		t.Errorf("a card without a power meter: %+v, %v", got, err)
	}
	if _, err := n.Card("0000:66:00.0"); err == nil || err.Error() != "nvmlDeviceGetHandleByPciBusId_v2: Not Found (6)" {
		t.Errorf("%v", err)
	}
}

func TestNVMLNamesAFunctionThatIsMissing(t *testing.T) {
	n, err := openNVML(compile(t, "fakenvml.c", "-DOLD"))
	must(t, err)
	card, err := n.Card("0000:64:00.0")
	must(t, err)
	got, err := card.Sample()
	if err == nil || !strings.Contains(err.Error(), "nvmlDeviceGetTemperature") || got.PowerWatts != 320.5 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := openNVML(filepath.Join(t.TempDir(), "libnvidia-ml.so.1")); !errors.Is(err, ErrNoLibrary) {
		t.Errorf("%v", err)
	}
}
