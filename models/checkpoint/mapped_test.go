package checkpoint

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/openinfer-go/openinfer/internal/testdata"
	"github.com/openinfer-go/openinfer/kernels"
	"github.com/openinfer-go/openinfer/models/checkpoint/ggufwrite"
)

// large is a GGUF file on disk with one matrix of n rows of 1024 floats.
func large(t testing.TB, n int) string {
	b := ggufFile(t, func(f *ggufwrite.File) {
		x := make([]float32, n*1024)
		for i := range x {
			x[i] = float32(i / 1024)
		}
		f.Add(ggufTensor("output.weight", ggufwrite.F32, []int{n, 1024}, x))
	})
	return filepath.Join(writeDir(t, map[string][]byte{"m.gguf": b}), "m.gguf")
}

func TestAFileCutWhileItIsMappedIsAnError(t *testing.T) {
	path := large(t, 64)
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := c.Matrix("lm_head", 64, 1024)
	if err != nil {
		t.Fatal(err)
	}
	if v := values(t, m, 63, 1); v[0] != 63 {
		t.Fatalf("row 63 is %v", v[0])
	}
	if err := os.Truncate(path, 10000); err != nil {
		t.Fatal(err)
	}
	refused(t, m.Read(&kernels.Rows{}, 63, 1), "m.gguf", "10000 bytes")

	// The fault itself, when the size check comes too early to see the cut.
	f := c.files[0]
	early := &file{path: f.path, data: f.data}
	sum := byte(0)
	err = guarded(func() error {
		for _, b := range early.data {
			sum += b
		}
		return nil
	}, early)
	refused(t, err, "m.gguf", "cut")

	defer func() {
		if recover() == nil {
			t.Error("a panic that is no fault of the file was swallowed")
		}
	}()
	_ = guarded(func() error { panic("another") }, early)
}

func TestReadsAfterCloseAreErrors(t *testing.T) {
	c, err := Open(large(t, 4))
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Matrix("lm_head", 4, 1024)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(&kernels.Rows{}, 0, 1); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("Read: %v", err)
	}
	m.Release()
}

func TestReleaseGivesPagesBack(t *testing.T) {
	path := large(t, 1024) // 4 MiB
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := c.Matrix("lm_head", 1024, 1024)
	if err != nil {
		t.Fatal(err)
	}
	want := values(t, m, 0, 1024)
	before := resident(t, path)
	m.Release()
	after := resident(t, path)
	if before < 4096 || after > 256 { // the edges of a tensor share OS pages with others
		t.Errorf("%d KiB of the file resident after reading, %d after Release", before, after)
	}
	equal(t, "read again", values(t, m, 0, 1024), want)
}

// resident is how many KiB of a mapped file are in this process.
func resident(t *testing.T, path string) int {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Skip("needs /proc/self/smaps")
	}
	defer f.Close()
	total, in := 0, false
	for s := bufio.NewScanner(f); s.Scan(); {
		var kib int
		if strings.Contains(s.Text(), "-") && strings.Contains(s.Text(), " r") {
			in = strings.HasSuffix(s.Text(), path)
		}
		if _, err := fmt.Sscanf(s.Text(), "Rss: %d kB", &kib); err == nil && in {
			total += kib
		}
	}
	return total
}

func TestParallelReadsAgree(t *testing.T) {
	c, err := Open(testdata.Cache(t, "gguf/SmolLM2-135M-Instruct.Q4_1.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m, err := c.Matrix("model.layers.0.mlp.up_proj", 1536, 576)
	if err != nil {
		t.Fatal(err)
	}
	want := values(t, m, 0, m.N)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for row := g; row+7 <= m.N; row += 41 {
				got := values(t, m, row, 7)
				for i := range got {
					if got[i] != want[row*m.K+i] {
						t.Errorf("row %d: value %d differs", row, i)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestWhatIsNoFileIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "m.gguf")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	_, err := Open(pipe)
	refused(t, err, "m.gguf", "not a file")
	_, err = Open(filepath.Join(dir, "nowhere"))
	refused(t, err, "nowhere")
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Open(filepath.Join(dir, "model.safetensors"))
	refused(t, err, "folder")
}

// BenchmarkLoad reads every tensor of SmolLM2 once, as a device does that packs it.
func BenchmarkLoad(b *testing.B) {
	path := testdata.Cache(b, "gguf/SmolLM2-135M-Instruct.Q4_1.gguf")
	for b.Loop() {
		c, err := Open(path)
		if err != nil {
			b.Fatal(err)
		}
		total := 0
		var rows kernels.Rows
		for _, t := range c.order {
			total += len(t.data)
			if len(t.shape) == 1 {
				if _, err := c.Vector(t.name, t.shape[0]); err != nil {
					b.Fatal(err)
				}
				continue
			}
			m, err := c.Matrix(strings.TrimSuffix(t.name, ".weight"), t.shape[0], t.shape[1])
			if err != nil {
				b.Fatal(err)
			}
			for row := 0; row < m.N; row += 64 {
				if err := m.Read(&rows, row, min(64, m.N-row)); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.SetBytes(int64(total))
		if err := errors.Join(c.Finish(), c.Close()); err != nil {
			b.Fatal(err)
		}
	}
}
