//go:build unix

package streamable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// fillDisk saves sessions although the system lets no file grow beyond 256 KiB, as on a disk
// that is full, and says how that went.
func fillDisk(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	limit := unix.Rlimit{Cur: 256 << 10, Max: 256 << 10}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	s, err := OpenFileSessions(dir, FileSessionsOptions{Log: slog.New(slog.NewTextHandler(os.Stdout, nil))})
	if err != nil {
		return err
	}
	save := func(n, record int) {
		s.Save(fmt.Sprint("session ", n), storedRecord(record, 10_000))
		awaitStored(s)
	}
	for n := range 40 { // 25 of them fit
		save(n, 1)
	}
	for n := range 10 {
		save(n, 2) // the older record must not stay
	}
	s.Forget("session 10")
	awaitStored(s)
	r := s.Report()
	fmt.Println("full", r.Stored, r.Failed, r.Err != nil)
	for n := range 40 {
		s.Free(fmt.Sprint("session ", n))
		if _, err := s.Take(context.Background(), fmt.Sprint("session ", n), "identity"); err == nil {
			fmt.Println("taken", n)
		}
	}
	fmt.Println("closed", s.Close() != nil)
	os.Exit(0)
	return nil
}

// When the disk is full, sessions are not stored. That is logged once, records that were stored
// before stay, and no older record of a session that was saved again.
//
// Guarantees: G-0080.10
func TestAFullDisk(t *testing.T) {
	dir := t.TempDir()
	child, output := startSessionsChild(t, "fill", dir)
	logged, taken, report, closed := 0, 0, "", ""
	for output.Scan() {
		switch text := output.Text(); {
		case strings.Contains(text, "cannot be stored"):
			logged++
		case strings.HasPrefix(text, "taken"):
			taken++
		case strings.HasPrefix(text, "full"):
			report = text
		case strings.HasPrefix(text, "closed"):
			closed = text
		}
	}
	if err := child.Wait(); err != nil || logged != 1 || report != "full 14 25 true" || taken != 14 || closed != "closed true" {
		t.Errorf("%v: logged %d times, took %d sessions, %q, %q; want once, 14, 14 stored and 25 failed, an error of Close", err, logged, taken, report, closed)
	}
	if info, err := os.Stat(filepath.Join(dir, "sessions")); err != nil || info.Size() >= 256<<10 {
		t.Errorf("a part of a record is left: %d bytes, %v", info.Size(), err)
	}
	s := openSessions(t, dir, FileSessionsOptions{})
	for n := range 40 {
		if n >= 11 && n < 25 {
			wantStored(t, s, fmt.Sprint("session ", n), 1)
		} else {
			wantStored(t, s, fmt.Sprint("session ", n), -1)
		}
	}
}

// Links, folders that others can write to, and files of others are refused. Files that others
// can read are made private.
//
// Guarantees: G-0080.7
func TestFilesOfOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	openSessions(t, dir, FileSessionsOptions{}).Close()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %v, %v", info.Mode(), err)
	}
	refused := func(what, path string) {
		t.Helper()
		s, err := OpenFileSessions(dir, FileSessionsOptions{})
		if err == nil {
			s.Close()
		}
		var failed *SessionFileError
		if !errors.As(err, &failed) || failed.Path != path {
			t.Errorf("%s: got %v, want a SessionFileError of %s", what, err, path)
		}
	}
	for _, mode := range []os.FileMode{0o777, 0o720} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		refused(fmt.Sprintf("a folder of mode %o", mode), dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lock", "key", "sessions"} {
		path := filepath.Join(dir, name)
		if err := os.Rename(path, path+".elsewhere"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path+".elsewhere", path); err != nil {
			t.Fatal(err)
		}
		refused("a link", path)
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
			t.Fatal(err)
		}
		refused("a folder in the place of a file", path)
		if err := errors.Join(os.Remove(path), os.Rename(path+".elsewhere", path)); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() == 0 {
			if err := os.Chown(path, 4711, 4711); err != nil {
				t.Fatal(err)
			}
			refused("a file of another user", path)
			if err := os.Chown(path, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	openSessions(t, dir, FileSessionsOptions{}).Close()
	for _, name := range []string{"key", "sessions"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
		}
	}
}

// A compaction that fails leaves no file, which would be in the way of the next one.
func TestACompactionThatFailsLeavesNoFile(t *testing.T) {
	dir := testenv.Dir(t)
	path := filepath.Join(dir, "sessions")
	s := openSessions(t, dir, FileSessionsOptions{Log: slog.New(slog.DiscardHandler)})
	const records = 30
	for n := range records {
		s.Save(fmt.Sprint(n), storedRecord(n, 60_000))
		awaitStored(s)
	}
	s.Save("damaged", storedRecord(records, 100))
	awaitStored(s)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-10); err != nil {
		t.Fatal(err)
	}
	for n := range records { // more than half of the file, so that it is compacted on the way
		s.Forget(fmt.Sprint(n))
		awaitStored(s)
	}
	if info, err = os.Stat(path); err != nil || info.Size() < compactAbove {
		t.Errorf("the file has %d bytes, %v; want it as long as before", info.Size(), err)
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of the compaction is left: %v", err)
	}
	_ = s.Close()
}
