//go:build linux && (amd64 || arm64)

package driver

import (
	"fmt"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is a shared library opened while the program runs, with or without cgo. It is never closed: what it started
// may still run.
type library struct {
	path   string
	handle uintptr
}

// symbol is a function of a library; at is 0 when the library does not have it.
type symbol struct {
	name string
	at   uintptr
}

func openLibrary(path string) (*library, error) {
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrNoLibrary, err)
	}
	return &library{path, h}, nil
}

// find looks a function up.
func (l *library) find(name string) symbol {
	at, err := purego.Dlsym(l.handle, name)
	if err != nil {
		at = 0
	}
	return symbol{name, at}
}

// lacking is the error of a call to a function that the library does not have.
func (l *library) lacking(s *symbol) error {
	return &Error{Call: s.name, Code: codeNotFound, Text: "the function is not in " + l.path + ": the driver is older or newer than what calls it"}
}

// call runs a function that returns a C int or an enum. Arguments are whole numbers and pointers; those converted in the call
// itself are kept where they are until it returns.
//
//go:uintptrescapes
func (s *symbol) call(args ...uintptr) int {
	r, _, _ := purego.SyscallN(s.at, args...)
	return int(int32(r))
}

// pointer is call for a function that returns a pointer to what is not Go's.
func (s *symbol) pointer(arg uintptr) unsafe.Pointer {
	r, _, _ := purego.SyscallN(s.at, arg)
	return *(*unsafe.Pointer)(unsafe.Pointer(&r))
}

// text copies a string of C.
func text(p unsafe.Pointer) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// upTo is the part of b before its first zero byte.
func upTo(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
