package hostmem

import (
	"os"
	"syscall"
	"unsafe"
)

// Zero clears b, part of what Alloc returned. Whole OS pages of it go back to the system and are zeros when they are
// touched again.
func Zero(b []byte) {
	page := uintptr(os.Getpagesize())
	head := min(uintptr(len(b)), -uintptr(unsafe.Pointer(unsafe.SliceData(b)))&(page-1))
	pages := (uintptr(len(b)) - head) &^ (page - 1)
	if pages == 0 || syscall.Madvise(b[head:head+pages], syscall.MADV_DONTNEED) != nil {
		clear(b)
		return
	}
	clear(b[:head])
	clear(b[head+pages:])
}
