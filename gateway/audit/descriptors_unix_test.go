//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package audit

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A trail has two descriptors, however many files it has begun, and none after its end, nor after an Open that has failed.
//
// Guarantees: G-0099.3
func TestDescriptorsOfATrail(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which would close what was forgotten
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a")
		before := descriptors(t)
		wantMore := func(when string, more int) {
			t.Helper()
			if got := descriptors(t) - before; got != more {
				t.Errorf("%s: %d more descriptors, want %d", when, got, more)
			}
		}
		log := new(strings.Builder)
		trail := open(t, path, Options{Sync: true, MaxSize: 1000, Log: slog.New(slog.NewTextHandler(log, nil))})
		const ofTrail = 2 // the file and its lock
		wantMore("open", ofTrail)
		write(trail, 0, 50)
		wantMore("after several files", ofTrail)
		inTheWay := nameOfOld(path, trail.first) // of the goroutine that writes, which has nothing to do
		if err := os.Mkdir(inTheWay, 0o700); err != nil {
			t.Fatal(err)
		}
		write(trail, 0, 10)
		if !strings.Contains(log.String(), "goes on in the same file") {
			t.Errorf("a file was begun:\n%s", log)
		}
		wantMore("after a file that cannot be begun", ofTrail)
		if err := errors.Join(os.Remove(inTheWay), os.Rename(path, path+".1")); err != nil {
			t.Fatal(err)
		}
		<-time.NewTimer(2 * lookInterval).C
		write(trail, 0, 1)
		wantMore("after its file was moved", ofTrail)
		if err := trail.Close(); err != nil {
			t.Fatal(err)
		}
		wantMore("closed", 0)
		if err := errors.Join(os.Rename(path, nameOfOld(path, 1000)), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		trailOf(t, path, 1)
		wantMore("after a process that has read the file before", 0)
		if err := os.WriteFile(path, []byte("no record\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if trail, err := Open(path, Options{Key: testKey}); err == nil {
			t.Error("it is opened", trail.Close())
		}
		wantMore("after a trail with a broken record", 0)
		if _, err := Verify(path, testKey); err == nil {
			t.Error("it verifies")
		}
		wantMore("verified", 0)
	})
}

// Whoever opens a trail while its file is replaced has no descriptor more after that has failed.
func TestDescriptorsOfAFileThatIsReplaced(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	path := filepath.Join(t.TempDir(), "a")
	replace := func() error {
		return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
	}
	if err := replace(); err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	var seen atomic.Bool
	var replacing sync.WaitGroup
	replacing.Go(func() {
		for !seen.Load() {
			if err := replace(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	var err error
	for !errors.Is(err, errReplaced) && !t.Failed() {
		var newest *os.File
		if _, newest, err = openFiles(path); err == nil {
			newest.Close()
		}
	}
	seen.Store(true)
	replacing.Wait()
	if more := descriptors(t) - before; more != 0 {
		t.Errorf("%d more descriptors", more)
	}
}

// descriptors counts the open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
