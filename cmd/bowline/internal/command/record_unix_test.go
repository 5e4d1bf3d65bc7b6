//go:build unix

package command

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestRecordIsForItsOwnerAlone checks that a transcript that replaces a file does not keep the
// file's mode.
func TestRecordIsForItsOwnerAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "talk.txt")
	write(t, file, strings.Repeat("earlier ", 10_000))
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	bowline(t, "", withBundled(t, "call", "echo", "message=hi", "--record", file)...).want(t, 0, "hi\n", "")
	written, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(written), "= opened\n") || strings.Contains(string(written), "earlier") {
		t.Errorf("the file contains %.80q, %v, want the transcript alone", written, err)
	}
	wantMode(t, file, 0o600)
}

// TestRecordToAPipe checks that only regular files are changed before a transcript is written.
func TestRecordToAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(pipe, os.O_RDWR, 0) // so that opening does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	bowline(t, "", withBundled(t, "call", "echo", "message=hi", "--record", pipe)...).want(t, 0, "hi\n", "")
	begin := make([]byte, len("= opened\n"))
	if _, err := reader.Read(begin); err != nil || string(begin) != "= opened\n" {
		t.Errorf("the pipe has %q, %v, want the transcript", begin, err)
	}
	wantMode(t, pipe, 0o644)
}

func wantMode(t *testing.T, path string, want os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("the mode of %s is %v, want %v", filepath.Base(path), got, want)
	}
}
