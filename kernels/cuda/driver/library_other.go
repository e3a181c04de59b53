//go:build !linux || !(amd64 || arm64)

package driver

import (
	"fmt"
	"runtime"
)

// OpenLibrary says that there is no driver here.
func OpenLibrary(path string) (Driver, error) {
	return nil, fmt.Errorf("%w: %s is not looked for on %s/%s", ErrNoLibrary, path, runtime.GOOS, runtime.GOARCH)
}
