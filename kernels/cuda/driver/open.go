//go:build !cu

package driver

// Open opens the machine's driver: libcuda.so.1, found while the program runs. Its errors are ErrNoLibrary and those
// of cuInit.
func Open() (Driver, error) { return OpenLibrary("libcuda.so.1") }
