package hostmem

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAvailable(t *testing.T) {
	const meminfo = "MemTotal:       32000 kB\nMemFree:         1000 kB\nMemAvailable:    8000 kB\n"
	for _, c := range []struct {
		name, max, current, stat string
		want                     int64
	}{
		{"no group", "", "", "", 8000 << 10},
		{"no limit", "max\n", "1000000\n", "", 8000 << 10},
		{"a limit beyond what there is", "100000000\n", "1000000\n", "", 8000 << 10},
		{"a limit", "3000000\n", "1000000\n", "", 2000000},
		{"a limit reached by cached files", "3000000\n", "3000000\n", "anon 900000\nfile 2050000\ninactive_file 1500000\nactive_file 500000\n", 2000000},
		{"a limit reached", "3000000\n", "3000000\n", "inactive_file 0\nactive_file 0\n", 1}, // 0 says unknown
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"meminfo": meminfo, "memory.max": c.max, "memory.current": c.current, "memory.stat": c.stat} {
			if text == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := available(filepath.Join(dir, "meminfo"), dir); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
	}
	if got := available("/no/such/file", "/no/such/folder"); got != 0 {
		t.Errorf("a system that says nothing: %d bytes, want 0", got)
	}
}

func TestAllocIsZeroedAndGoesBack(t *testing.T) {
	b, err := Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range b {
		if v != 0 {
			t.Fatalf("byte %d is %d", i, v)
		}
	}
	b[len(b)-1] = 1
	Free(b)
	defer func() {
		if recover() == nil {
			t.Error("freeing a piece of Go's memory: no panic")
		}
	}()
	Free(make([]byte, 10)[1:])
}
