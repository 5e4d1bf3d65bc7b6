//go:build unix

package private

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A file of another user is refused, with any mode. As root, the test changes the owner of
// a file; otherwise it uses a file of root.
//
// Guarantees: G-0044.12
func TestAFileOfAnotherUser(t *testing.T) {
	path := "/etc/passwd"
	if os.Geteuid() == 0 {
		path = filepath.Join(t.TempDir(), "entry")
		if err := errors.Join(os.WriteFile(path, []byte("{}"), 0o600), os.Chown(path, 4711, 4711)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(path, os.O_RDONLY); err == nil || !strings.Contains(err.Error(), "it belongs to another user") {
		t.Errorf("got %v, want it refused", err)
	}
}

// A link, a folder and a pipe are refused, without waiting and without creating anything.
//
// Guarantees: G-0044.12
func TestWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Symlink(at("elsewhere"), at("link")), os.Mkdir(at("folder"), 0o700), unix.Mkfifo(at("pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"link": "symbolic link: remove it", "folder": "", "pipe": "it is no file"} {
		for _, flag := range []int{os.O_RDONLY, os.O_CREATE | os.O_RDWR} {
			if _, err := Open(at(name), flag); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", name, err, want)
			}
		}
	}
	if _, err := os.Lstat(at("elsewhere")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the target of the link was created: %v", err)
	}
}

// A new file has mode 0600, and Restrict gives it to a file that others can read.
//
// Guarantees: G-0044.12
func TestModes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	file, err := Open(path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, mode := range []os.FileMode{0o600, 0o640, 0o604, 0o666} {
		want := mode != 0o600
		if info, err := file.Stat(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the mode is %v, %v, want 0600", info.Mode(), err)
		}
		if err := file.Chmod(mode); err != nil {
			t.Fatal(err)
		}
		if changed, err := Restrict(file); err != nil || changed != want {
			t.Errorf("mode %o: got %v, %v, want %v", mode, changed, err, want)
		}
	}
}

// A lock has one holder at a time, until the holder closes its file.
//
// Guarantees: G-0044.12
func TestOneHoldsALock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for range 2 {
		holder, err := Lock(path)
		if err != nil {
			t.Fatalf("a free lock: %v", err)
		}
		if _, err := Lock(path); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) {
			t.Fatalf("a lock that is held: %v", err)
		}
		holder.Close()
	}
}

func opened(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := Open(path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// A folder is refused if others can write to it, if it belongs to another user, or if it is
// no folder. A folder that does not exist is not.
//
// Guarantees: G-0044.12
func TestFolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	if err := CheckFolder(dir); err != nil {
		t.Errorf("no folder: %v", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for mode, refused := range map[os.FileMode]bool{0o777: true, 0o770: true, 0o702: true, 0o777 | os.ModeSticky: true, 0o700: false, 0o755: false} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if err := CheckFolder(dir); refused != (err != nil) || refused && !strings.Contains(err.Error(), "run chmod 700 "+dir) {
			t.Errorf("mode %o: got %v, want it refused: %v", mode, err, refused)
		}
	}
	if err := CheckFolder(opened(t, filepath.Join(dir, "f")).Name()); err == nil {
		t.Error("a file is taken for a folder")
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 4711, 4711); err != nil {
			t.Fatal(err)
		}
		if err := CheckFolder(dir); err == nil || !strings.Contains(err.Error(), "another user") {
			t.Errorf("another user's: got %v", err)
		}
	}
}

// A lock is free as soon as it is given back, also while a child that this process starts has a copy of the file.
//
// Guarantees: G-0044.12
func TestALockGivenBackWhileAChildStarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	file, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := unix.Dup(int(file.Fd())) // as fork does
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(inherited)
	if err := Unlock(file); err != nil {
		t.Fatal(err)
	}
	if file, err = Lock(path); err != nil {
		t.Fatal(err)
	}
	if err := Unlock(file); err != nil {
		t.Fatal(err)
	}
}
