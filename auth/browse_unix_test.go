//go:build unix

package auth

import (
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The browser gets any address as one argument, and its process is reaped when it has
// ended.
//
// Guarantees: G-0044.14
func TestABrowserIsOpenedAndCollected(t *testing.T) {
	dir := t.TempDir()
	output := filepath.Join(dir, "told")
	script := "#!/bin/sh\nprintf '%s\\n%s\\n%s\\n' $$ $# \"$1\" > '" + output + ".new'\n/bin/mv '" + output + ".new' '" + output + "'\n"
	for _, name := range []string{"xdg-open", "open"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if err := Browse(t.Context(), &url.URL{Scheme: "https", Host: "as.test"}); !errors.Is(err, exec.ErrNotFound) || !strings.HasPrefix(err.Error(), "auth: open a browser: ") {
		t.Errorf("without a browser: %v", err)
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
		if text, err := os.ReadFile(output); err == nil {
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
	for syscall.Kill(process, 0) == nil { // it also succeeds while the process has ended and is not reaped
		pause(t.Context(), time.Millisecond)
	}
}
