package ptx

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestWhatIsNotUnderstoodIsRefusedWithItsLine: nothing unknown is skipped or guessed at.
func TestWhatIsNotUnderstoodIsRefusedWithItsLine(t *testing.T) {
	const head = ".version 7.8\n.target sm_80\n.address_size 64\n.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
	const decl = ".entry k(.param .u64 p)\n{\n.reg .pred %p<4>;\n.reg .b16 %h<4>;\n.reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .b64 %rd<9>;\n.reg .f64 %d<4>;\n"
	line := strings.Count(head+decl, "\n") + 1
	for _, c := range []struct{ text, says string }{
		{"tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [p, {%f5,%f6}];", "tex"},
		{"bogus.u32 %r1, %r2;", "unknown instruction"},
		{"add.rq.f32 %f1, %f2, %f3;", ".rq"},
		{"add.cc.f32 %f1, %f2, %f3;", "add.cc.f32"},
		{"add.u32 %r1, %r2;", "operands"},
		{"add.u32 %r1, %r2, %r3, %r4;", "operands"},
		{"add.u64 %rd1, %rd2, %r3;", "32 bits where 64 belong"},
		{"add.u32 %r1, %r2, %r99;", "%r99"},
		{"fma.f32 %f1, %f2, %f3, %f4;", "fma.f32"},
		{"mul.f32.lo %f1, %f2, %f3;", "mul.f32.lo"},
		{"mul.u32 %r1, %r2, %r3;", "mul.u32"},
		{"cvt.f32.f64 %f1, %d1;", "cvt.f32.f64"},
		{"cvt.u32.f32 %r1, %f1;", "cvt.u32.f32"},
		{"ld.global.v3.f32 {%f1,%f2,%f3}, [%rd1];", ".v3"},
		{"ld.global.f32 %f1, [%r1];", "address"},
		{"ld.shared.f32 %f1, [p];", "state space"},
		{"st.const.f32 [%rd1], %f1;", "st.const"},
		{"st.param.f32 [p], %f1;", "parameter"},
		{"ld.global.mmio.f32 %f1, [%rd1];", ".mmio"},
		{"atom.global.add.s64 %rd1, [%rd2], %rd3;", "atom.global.add.s64"},
		{"bra $nowhere;", "$nowhere"},
		{"call.uni (p), vprintf, (p, p);", "vprintf"},
		{"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1,%d2}, {%d3}, {%d1}, {%d1,%d2};", "mma"},
		{"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r3,%r4}, {%f1,%f2,%f3,%f4};", "registers"},
		{"wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1}, [%rd1], %r2;", "unknown instruction"},
		{"mbarrier.init.shared.b64 [%r1], %r2;", "unknown instruction"},
		{"shfl.down.b32 %r1, %r2, %r3, %r4;", "shfl"},
		{"bar.sync;", "operands"},
		{"cp.async.cg.shared.global [%r1], [%rd1], 8;", "8 bytes"},
		{"setp.lo.s32 %p1, %r1, %r2;", "setp.lo.s32"},
		{"setp.ltu.u32 %p1, %r1, %r2;", "setp.ltu.u32"},
		{"@%p9 add.u32 %r1, %r1, 1;", "%p9"},
		{"mov.u32 %r1, %envreg0;", "%envreg0"},
		{".surfref s;", ".surfref"},
		{"lop3.b32 %r1, %r2, %r3, %r4;", "lop3"},
		{"ex2.f32 %f1, %f2;", "ex2"},
		{"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1,%r2}, [%r3];", "4 registers"},
	} {
		text := head + decl + c.text + "\nret;\n}\n"
		err := compileText(text)
		var bad *Error
		switch {
		case err == nil:
			t.Errorf("%s is accepted", c.text)
		case !errors.As(err, &bad) || bad.Line != line || !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: %v; want line %d and %q", c.text, err, line, c.says)
		}
	}
	// And the frame around them is fine.
	if err := compileText(head + decl + "add.u32 %r1, %r2, 1;\nret;\n}\n"); err != nil {
		t.Error(err)
	}
	for _, c := range []struct{ from, to string }{{".version 7.8", ".version 9.9"}, {"sm_80", "sm_10"}, {".address_size 64", ".address_size 32"}} {
		if err := compileText(strings.Replace(head, c.from, c.to, 1) + decl + "ret;\n}\n"); err == nil {
			t.Errorf("%s is accepted", c.to)
		}
	}
}

func TestRecursionIsRefused(t *testing.T) {
	err := compileText(`.version 7.8
.target sm_80
.address_size 64
.func f(.param .b32 a)
{
	.param .b32 x;
	call.uni f, (x);
	ret;
}
.entry k()
{
	.param .b32 x;
	call.uni f, (x);
	ret;
}
`)
	if err == nil || !strings.Contains(err.Error(), "line 7") || !strings.Contains(err.Error(), "recursion") {
		t.Errorf("error %v", err)
	}
}

func compileText(text string) error {
	src, err := Parse([]byte(text))
	if err != nil {
		return err
	}
	in, err := Load(NewMemory(), src)
	if err != nil {
		return err
	}
	if len(src.Entries()) != 1 {
		return fmt.Errorf("%d entries", len(src.Entries()))
	}
	_, err = in.Kernel(src.Entries()[0])
	return err
}
