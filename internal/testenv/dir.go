package testenv

import (
	"os"
	"testing"
)

// Dir returns an empty folder for a test that makes the system write files to its disk thousands of times: it
// is in memory, where Linux has such a place with enough room, and otherwise what t.TempDir returns. What a disk
// does when the power fails no test knows anyway.
func Dir(t testing.TB) string {
	t.Helper()
	if !hasRoom(inMemory) {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(inMemory, "bowline-test")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("removing a folder: %v", err)
		}
	})
	return dir
}

const inMemory = "/dev/shm"
