package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// aside puts a trail out of the way as programs do that rotate logs.
var aside = map[string]func(path string) error{
	"moved": func(path string) error { return os.Rename(path, path+".1") },
	"moved, and made anew": func(path string) error {
		return errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, nil, 0o600))
	},
	"copied, and emptied": func(path string) error {
		text, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(path+".1", text, 0o600), os.Truncate(path, 0))
	},
}

// A trail whose file is moved or emptied goes on at its path, and says so. It does not verify, until the file that was moved is put back in its place.
//
// Guarantees: G-0099.3, G-0099.13
func TestAFileThatIsMoved(t *testing.T) {
	for how, move := range aside {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "a")
				trail := open(t, path, Options{Sync: true, Log: slog.New(slog.DiscardHandler)})
				write(trail, 0, 3)
				if err := move(path); err != nil {
					t.Fatal(err)
				}
				<-time.NewTimer(2 * lookInterval).C
				trail.lose()
				write(trail, 3, 1)
				if err := trail.Close(); err != nil {
					t.Fatal(err)
				}
				trailOf(t, path, 1) // the next process
				var broken *BrokenError
				name := fmt.Sprintf(".%012d", 1)
				if _, err := Verify(path, testKey); !errors.As(err, &broken) || !strings.Contains(broken.Why, "the 4 records before 5 were moved away") || !strings.Contains(broken.Why, name) {
					t.Errorf("without the file: %v", err)
				}
				if err := os.Rename(path+".1", path+name); err != nil {
					t.Fatal(err)
				}
				if s, err := Verify(path, testKey); err != nil || s != (Summary{First: 1, Last: 11, Files: 2, Lost: 1}) {
					t.Errorf("with it: %+v, %v", s, err)
				}
			})
		})
	}
}

// What somebody else has put in the place of the trail is left alone, and the log says so.
//
// Guarantees: G-0099.13
func TestAnotherFileInThePlaceOfTheTrail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, log := filepath.Join(t.TempDir(), "a"), new(bytes.Buffer)
		trail := open(t, path, Options{Sync: true, Log: slog.New(slog.NewTextHandler(io.Writer(log), nil))})
		write(trail, 0, 1)
		if err := errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, []byte("mine"), 0o600)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			<-time.NewTimer(2 * lookInterval).C
			write(trail, 1, 1)
		}
		if err := trail.Close(); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
			t.Errorf("%q, %v", text, err)
		}
		if err := os.Rename(path+".1", path); err != nil {
			t.Fatal(err)
		}
		if s, err := Verify(path, testKey); err != nil || s.Last != 6 {
			t.Errorf("%+v, %v", s, err)
		}
		if n := strings.Count(log.String(), "another file"); n != 1 {
			t.Errorf("it was said %d times:\n%s", n, log)
		}
	})
}

// What was counted is said within a minute, also if nobody asks for anything else.
//
// Guarantees: G-0099.5, G-0099.10
func TestCountsAreSaidWithoutARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a")
		trail := open(t, path, Options{Block: true})
		for range deniedPerMinute + 7 {
			trail.Write(t.Context(), Record{Outcome: outcomeDenied})
		}
		trail.lose()
		said := func() (lost, denied uint64) {
			synctest.Wait()
			records, _ := trail.Recent()
			for _, r := range records {
				switch r.Event {
				case EventLost:
					lost += r.Count
				case EventDenied:
					denied += r.Count
				}
			}
			return lost, denied
		}
		<-time.NewTimer(2 * sayInterval).C
		if lost, denied := said(); lost != 1 || denied != 7 {
			t.Errorf("%d lost and %d denied are said", lost, denied)
		}
		trail.lose()
		<-time.NewTimer(2 * sayInterval).C
		if lost, _ := said(); lost != 2 {
			t.Errorf("%d lost are said later", lost)
		}
		if err := trail.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A trail that ends right after its file was moved or emptied says so as well, and the next process goes on with it.
//
// Guarantees: G-0099.13
func TestATrailThatEndsAfterItsFileIsMoved(t *testing.T) {
	for how, move := range aside {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "a")
				trail := open(t, path, Options{Sync: true, Log: slog.New(slog.DiscardHandler)})
				write(trail, 0, 3)
				if err := move(path); err != nil {
					t.Fatal(err)
				}
				<-time.NewTimer(2 * lookInterval).C
				if err := trail.Close(); err != nil {
					t.Fatal(err)
				}
				if lines := trailOf(t, path, 1); !strings.Contains(lines[0], `"event":"moved","count":4`) || !strings.Contains(lines[1], `"event":"stopped"`) {
					t.Errorf("%q", lines)
				}
			})
		})
	}
}
