// Package testdata finds reference data that tests compare with: results of other
// implementations, which are not part of this repository.
package testdata

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Shared returns the path of a file or folder of the reference data, whose root is the
// environment variable OPENINFER_SHARED, or ../shared beside the repository.
//
// A test that cannot find its reference fails: a skipped comparison reads like a pass. Setting
// OPENINFER_SHARED_OPTIONAL=1 turns that into a skip for machines without the data.
func Shared(tb testing.TB, elem ...string) string {
	tb.Helper()
	root := os.Getenv("OPENINFER_SHARED")
	if root == "" {
		root = filepath.Join(Repo(), "..", "shared")
	}
	path := filepath.Join(append([]string{root}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("OPENINFER_SHARED_OPTIONAL") == "1" {
			tb.Skipf("no reference data at %s", path)
		}
		tb.Fatalf("no reference data at %s (set OPENINFER_SHARED, or OPENINFER_SHARED_OPTIONAL=1 to skip)", path)
	}
	return path
}

// Repo returns the root folder of this repository.
func Repo() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Cache returns the path of something that `make deps` puts into the ignored .cache folder, or
// fails the test with the command that makes it. Under OPENINFER_SHARED_OPTIONAL=1 it skips.
func Cache(tb testing.TB, elem ...string) string {
	tb.Helper()
	root := os.Getenv("OPENINFER_CACHE")
	if root == "" {
		root = filepath.Join(Repo(), ".cache")
	}
	path := filepath.Join(append([]string{root}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("OPENINFER_SHARED_OPTIONAL") == "1" {
			tb.Skipf("%s is missing (run `make deps`)", path)
		}
		tb.Fatalf("%s is missing: run `make deps`", path)
	}
	return path
}
