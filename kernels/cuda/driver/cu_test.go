//go:build cu && linux && (amd64 || arm64)

package driver

import "testing"

// TestLinkedPassesArguments runs on the libcuda of testdata; TestCuPassesArguments sees to that.
func TestLinkedPassesArguments(t *testing.T) {
	lib, err := openLibrary("libcuda.so.1")
	must(t, err)
	if s := lib.find("fake_log"); s.at == 0 {
		t.Skip("this is another libcuda than that of testdata")
	}
	d, err := Open()
	must(t, err)
	passesArguments(t, d, fake{lib})
}
