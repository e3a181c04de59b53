package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kernel = `
.version 7.8
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n)
{
	.reg .pred %p<2>;
	.reg .f32 %f<4>;
	.reg .b32 %r<6>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [y];
	ld.param.u64 %rd2, [x];
	ld.param.f32 %f1, [a];
	ld.param.u32 %r1, [n];
	mov.u32 %r2, %ctaid.x;
	mov.u32 %r3, %ntid.x;
	mov.u32 %r4, %tid.x;
	mad.lo.s32 %r5, %r2, %r3, %r4;
	setp.ge.u32 %p1, %r5, %r1;
	@%p1 bra $end;
	mul.wide.u32 %rd3, %r5, 4;
	add.s64 %rd4, %rd2, %rd3;
	ld.global.f32 %f2, [%rd4];
	mul.f32 %f3, %f2, %f1;
	add.s64 %rd5, %rd1, %rd3;
	st.global.f32 [%rd5], %f3;
$end:
	ret;
}
`

func TestExitStatusAndOutput(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	in := make([]float32, 100)
	for i := range in {
		in[i] = float32(i)
	}
	raw, _ := binary.Append(nil, binary.LittleEndian, in)
	x, y := write("x.bin", raw), filepath.Join(dir, "y.bin")
	good := write("k.ptx", []byte(kernel))
	odd := write("odd.ptx", []byte(strings.Replace(kernel, "mul.f32 ", "mul.rx.f32 ", 1)))
	args := func(n int) string {
		return write(fmt.Sprintf("args%d.json", n), []byte(fmt.Sprintf(
			`[{"type":"ptr","size":400,"out":%q},{"type":"ptr","in":%q},{"type":"f32","value":1.5},{"type":"u32","value":%d}]`, y, x, n)))
	}
	for _, c := range []struct {
		name, ptx, args string
		status          int
		stderr          []string
	}{
		{"clean", good, args(100), 0, nil},
		{"overrun", good, args(104), 3, []string{"bounds: ", "line 23", "block (3,0,0) thread (4,0,0)"}},
		{"unknown modifier", odd, args(100), 2, []string{"line 24", "mul.rx.f32"}},
		{"no such file", filepath.Join(dir, "none"), args(100), 1, nil},
	} {
		var out, errs bytes.Buffer
		got := run([]string{"--ptx", c.ptx, "--entry", "scale", "--grid", "4,1,1", "--block", "32", "--args", c.args, "--counters", "--seed", "7"}, &out, &errs)
		if got != c.status {
			t.Errorf("%s: exit status %d, want %d; %s", c.name, got, c.status, errs.String())
		}
		for _, s := range c.stderr {
			if !strings.Contains(errs.String(), s) {
				t.Errorf("%s: standard error %q lacks %q", c.name, errs.String(), s)
			}
		}
		if c.status != 0 {
			continue
		}
		var counters map[string]any
		if err := json.Unmarshal(out.Bytes(), &counters); err != nil || counters["unique_write_bytes"] != 400.0 {
			t.Errorf("counters %v, error %v", counters["unique_write_bytes"], err)
		}
		b, err := os.ReadFile(y)
		if err != nil {
			t.Fatal(err)
		}
		got32 := make([]float32, 100)
		if _, err := binary.Decode(b, binary.LittleEndian, got32); err != nil {
			t.Fatal(err)
		}
		for i, v := range got32 {
			if v != float32(i)*1.5 {
				t.Fatalf("y[%d] = %v", i, v)
			}
		}
	}
}
