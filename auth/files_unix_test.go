//go:build unix

package auth

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/private"
)

// The lock of a file is no link, and belongs to the user: whoever could put it there would else
// choose which file of the user is opened or created.
//
// Guarantees: G-0044.12
func TestALockThatIsALink(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "elsewhere")
	s, k := NewFiles(dir, nil), Key{Issuer: "https://as"}
	lock := s.path(k) + ".lock"
	if err := os.Symlink(elsewhere, lock); err != nil {
		t.Fatal(err)
	}
	save := func() error {
		return s.Locked(t.Context(), k, func(*Entry) (*Entry, error) { return new(Entry), nil })
	}
	if err := save(); !errors.As(err, new(*StoreError)) || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("with a link in the place of the lock, Locked returned %v, want a *StoreError that names the link", err)
	}
	if _, err := os.Lstat(elsewhere); err == nil {
		t.Error("the target of the link was created")
	}
	if err := errors.Join(os.Remove(lock), os.Mkdir(lock, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := save(); !errors.As(err, new(*StoreError)) {
		t.Errorf("with a folder in the place of the lock, Locked returned %v, want a *StoreError", err)
	}
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if err := save(); err != nil {
		t.Errorf("without the link, Locked returned %v", err)
	}
}

// A folder that others can write to is refused, for reading and for writing.
//
// Guarantees: G-0044.12
func TestAFolderThatOthersCanWriteTo(t *testing.T) {
	dir := t.TempDir()
	s, k := NewFiles(dir, nil), Key{Issuer: "https://as"}
	save := func() error {
		return s.Locked(t.Context(), k, func(*Entry) (*Entry, error) { return new(Entry), nil })
	}
	for mode, refused := range map[os.FileMode]bool{0o777: true, 0o770: true, 0o702: true, 0o777 | os.ModeSticky: true, 0o700: false, 0o755: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		_, loadErr := s.Load(t.Context(), k)
		_, keysErr := s.Keys()
		for what, err := range map[string]error{"Load": loadErr, "Locked": save(), "Keys": keysErr} {
			if refused != errors.As(err, new(*StoreError)) || refused && !strings.Contains(err.Error(), "chmod 700 "+dir) || !refused && err != nil {
				t.Errorf("mode %o: %s returned %v; want it refused, with what to do: %v", mode, what, err, refused)
			}
		}
	}
}

// When an entry is deleted, and a file that was left beside it cannot be, the error says so.
//
// Guarantees: G-0044.12
func TestAnUnfinishedFileThatCannotBeRemoved(t *testing.T) {
	dir := t.TempDir()
	s, k := NewFiles(dir, nil), Key{Issuer: "https://as"}
	if err := s.Locked(t.Context(), k, put(new(Entry))); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, strings.ReplaceAll(private.Unfinished, "*", "left"))
	if err := os.MkdirAll(filepath.Join(left, "within"), 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	var failed *StoreError
	if err := s.Locked(t.Context(), k, put(nil)); !errors.As(err, &failed) || !strings.Contains(err.Error(), left) {
		t.Errorf("Locked: %v", err)
	}
	if e, err := s.Load(t.Context(), k); e != nil || err != nil {
		t.Errorf("the entry is %+v, %v", e, err)
	}
}
