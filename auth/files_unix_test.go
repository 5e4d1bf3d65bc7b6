//go:build unix

package auth

import (
	"os"
	"path/filepath"
	"testing"
)

// A file of another user is refused, with any mode. As root, the test changes the owner of
// a file; otherwise it uses a file of root.
//
// Guarantees: G-0044.12
func TestAFileOfAnotherUser(t *testing.T) {
	path := "/etc/passwd"
	if os.Geteuid() == 0 {
		path = filepath.Join(t.TempDir(), "entry")
		if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, 4711, 4711); err != nil {
			t.Fatal(err)
		}
	}
	file, err := openPrivate(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if repaired, err := makePrivate(file); err == nil || repaired {
		t.Errorf("repaired: %v, %v", repaired, err)
	}
}
