package ptx

import "testing"

// TestRegistersThatShareKeepTheirValues: x is written in the first round of a loop alone, under a predicate, and needed in
// all; y is needed only between the end of one x and the next. They may not have one place.
func TestRegistersThatShareKeepTheirValues(t *testing.T) {
	r := loadText(t, []byte(`.version 7.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .pred %p<3>;
.reg .b32 %t, %i, %s, %x, %y, %u<3>;
.reg .b64 %a<4>;
mov.u32 %t, %tid.x;
mov.u32 %i, 0;
mov.u32 %s, 0;
LOOP:
setp.eq.s32 %p1, %i, 0;
@%p1 add.s32 %x, %t, 100;
add.s32 %s, %s, %x;
mul.lo.s32 %y, %i, 3;
add.s32 %s, %s, %y;
add.s32 %i, %i, 1;
setp.lt.s32 %p2, %i, 4;
@%p2 bra LOOP;
add.s32 %u1, %s, 1;
add.s32 %u2, %u1, 1;
ld.param.u64 %a0, [out];
mul.wide.u32 %a1, %t, 4;
add.s64 %a2, %a0, %a1;
st.global.u32 [%a2], %u2;
ret;
}
`))
	y := r.alloc(4 * 32)
	r.clean(r.run("k", x(1), x(32), 0, 0, y))
	for lane, got := range read[uint32](r, y, 32) {
		if want := uint32(4*(lane+100) + 18 + 2); got != want {
			t.Fatalf("thread %d: %d, want %d", lane, got, want)
		}
	}
	k, err := r.in.Kernel("k")
	if err != nil {
		t.Fatal(err)
	}
	if named, have := 10, k.prog.nVecs-len(k.prog.fixed); have >= named {
		t.Errorf("%d named registers have %d places: none is shared", named, have)
	}
}
