package audit

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The note of the newest record is never far behind while a trail is written, also after a disk was full when it was to be written.
//
// Guarantees: G-0099.2
func TestTheNoteFollowsTheRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	synctest.Test(t, func(t *testing.T) {
		log := new(bytes.Buffer)
		trail := open(t, path, Options{Sync: true, Log: slog.New(slog.NewTextHandler(log, nil))})
		noted := func(when string, want uint64) {
			t.Helper()
			synctest.Wait()
			if h, err := readHead(path, testKey); err != nil || h.Number != want {
				t.Errorf("%s: record %d is noted as the newest, want %d: %v", when, h.Number, want, err)
			}
		}
		for n := range uint64(3) {
			write(trail, 0, 1)
			<-time.NewTimer(2 * headInterval).C
			noted("soon after a record", n+2) // after that of the start
		}
		inTheWay := path + headEnd + ".new"
		for n := range uint64(2) {
			if err := os.Mkdir(inTheWay, 0o700); err != nil {
				t.Fatal(err)
			}
			write(trail, 0, 1)
			<-time.NewTimer(5 * againTime).C
			noted("it cannot be noted", n+4)
			if said := strings.Count(log.String(), "cannot be noted"); said != int(n)+1 {
				t.Errorf("the %dth time, that was said %d times in all", n+1, said)
			}
			if err := os.Remove(inTheWay); err != nil {
				t.Fatal(err)
			}
			<-time.NewTimer(2 * againTime).C
			noted("it can be noted again", n+5)
		}
		trail.lose()
		<-time.NewTimer(2 * sayInterval).C
		noted("it says what was lost", 7)
		if err := trail.Close(); err != nil {
			t.Error(err)
		}
		noted("closed", 8)
	})
}

// Equal texts have equal digests, whatever came between, and others have others.
//
// Guarantees: G-0099.7
func TestDigestsOfEqualTexts(t *testing.T) {
	digest, other := Digest(testKey), Digest([]byte("another key, of as many bytes....."))
	first := digest([]byte("a"))
	if digest([]byte("b")) == first || digest([]byte("a")) != first || other([]byte("a")) == first || len(first) != 2*digestSize {
		t.Errorf("%s, %s, %s, %s", first, digest([]byte("b")), digest([]byte("a")), other([]byte("a")))
	}
}

// The end that is missing is named also if it was in a file without records.
//
// Guarantees: G-0099.2
func TestTheEndIsMissingInANewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	lines := trailOf(t, path, 5)
	if err := errors.Join(os.Rename(path, nameOfOld(path, 1)), os.WriteFile(path, nil, 0o600), os.WriteFile(nameOfOld(path, 1), []byte(strings.Join(lines[:4], "")), 0o600)); err != nil {
		t.Fatal(err)
	}
	var broken *BrokenError
	if s, err := Verify(path, testKey); !errors.As(err, &broken) || broken.Path != path || broken.Line != 1 || broken.Number != 4 || !strings.Contains(broken.Why, "the newest record was 7:") {
		t.Errorf("%+v, %v", s, err)
	}
}
