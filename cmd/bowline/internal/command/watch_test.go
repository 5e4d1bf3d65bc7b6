//go:build unix

package command

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAFileThatIsNotReadAgain puts something else in place of the file of a running gateway, each time beside a watch, which must see it.
//
// Guarantees: G-0088.13
func TestAFileThatIsNotReadAgain(t *testing.T) {
	const good = `{"mcpServers": {"a": {"command": "x"}}}`
	put := func(text string) func(string) error {
		return func(path string) error { return os.WriteFile(path, []byte(text), 0o600) }
	}
	for what, c := range map[string]struct {
		replace func(path string) error
		want    string // in the error; "": it is read
	}{
		"another file": {put(good + "\n"), ""},
		"a link": {func(path string) error {
			return errors.Join(put(good)(path+".real"), os.Symlink(path+".real", path))
		}, "another kind"},
		"a folder":         {func(path string) error { return os.Mkdir(path, 0o700) }, "another kind"},
		"a pipe":           {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "another kind"},
		"100 MiB":          {func(path string) error { return errors.Join(put(good)(path), os.Truncate(path, 100<<20)) }, "above the limit"},
		"half of it":       {put(good[:len(good)/2]), ":1:"},
		"nothing":          {put(""), "is empty"},
		"one that is away": {func(string) error { return nil }, "no such file"},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "mcp.json")
			if err := put(good)(path); err != nil {
				t.Fatal(err)
			}
			w := watchOf(path)
			for range 2 {
				if w.look() {
					t.Error("it has changed before it has")
				}
			}
			if err := errors.Join(os.Remove(path), c.replace(path)); err != nil {
				t.Fatal(err)
			}
			if w.look() {
				t.Error("it may still be written")
			}
			if !w.look() || w.look() {
				t.Error("it is not reported once")
			}
			_, err := w.read()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "mcp.json")) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A link that was there from the start is followed: so are files that a program keeps elsewhere.
//
// Guarantees: G-0088.13
func TestALinkFromTheStart(t *testing.T) {
	real, path := filepath.Join(t.TempDir(), "real.json"), filepath.Join(t.TempDir(), "mcp.json")
	if err := errors.Join(os.WriteFile(real, []byte(`{"mcpServers": {}}`), 0o600), os.Symlink(real, path)); err != nil {
		t.Fatal(err)
	}
	w := watchOf(path)
	if err := os.WriteFile(real, []byte(`{"mcpServers": {"a": {"command": "x"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	w.look()
	if !w.look() {
		t.Error("the change is not seen")
	}
	if file, err := w.read(); err != nil || len(file.Names()) != 1 {
		t.Errorf("%v, %v", file, err)
	}
}

// TestUpWatchesItsFile changes the file of a running gateway, and tells it nothing.
//
// Guarantees: G-0088.13
func TestUpWatchesItsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one")
	up := startUp(t, path, "--watch")
	defer up.end()
	if err := os.WriteFile(path, []byte(`{"mcpServers": {`), 0o600); err != nil {
		t.Fatal(err)
	}
	up.await("nothing is changed")
	mcpFile(t, path, "one", "two")
	up.await("starting two")
}
