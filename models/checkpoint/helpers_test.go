package checkpoint

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func itoa(i int) string { return strconv.Itoa(i) }

func osDirFS(dir string) fs.FS { return os.DirFS(dir) }

// readDir returns the files of a folder.
func readDir(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}
