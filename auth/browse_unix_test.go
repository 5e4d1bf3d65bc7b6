//go:build unix

package auth

import (
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A browser gets the address as one argument, whatever is in it, and nothing remains of
// its process when it has ended.
//
// Guarantees: G-0044.14
func TestABrowserIsOpenedAndCollected(t *testing.T) {
	dir := t.TempDir()
	told := filepath.Join(dir, "told")
	script := "#!/bin/sh\nprintf '%s\\n%s\\n%s\\n' $$ $# \"$1\" > '" + told + ".new'\n/bin/mv '" + told + ".new' '" + told + "'\n"
	for _, name := range []string{"xdg-open", "open"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	address := "https://as.test/authorize?state=$(touch%20x);a&b='c'"
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := Browse(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for lines == nil {
		if text, err := os.ReadFile(told); err == nil {
			lines = strings.Split(string(text), "\n")
		}
		pause(t.Context(), time.Millisecond)
	}
	if lines[1] != "1" || lines[2] != address {
		t.Errorf("the browser was given %q", lines[1:])
	}
	process, err := strconv.Atoi(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	for syscall.Kill(process, 0) == nil { // also while it has ended and nobody has collected it
		pause(t.Context(), time.Millisecond)
	}
}
