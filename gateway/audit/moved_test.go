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

// What somebody else has put in the place of the trail is left alone, also when the file of the trail is full, and the log says so each hour.
//
// Guarantees: G-0099.13
func TestAnotherFileInThePlaceOfTheTrail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path, log := filepath.Join(t.TempDir(), "a"), new(bytes.Buffer)
		trail := open(t, path, Options{Sync: true, MaxSize: 5000, Log: slog.New(slog.NewTextHandler(io.Writer(log), nil))})
		write(trail, 0, 1)
		if err := errors.Join(os.Rename(path, path+".1"), os.WriteFile(path, []byte("mine"), 0o600)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			<-time.NewTimer(2 * lookInterval).C
			write(trail, 1, 1)
		}
		if n := strings.Count(log.String(), "another file"); n != 1 {
			t.Errorf("it was said %d times:\n%s", n, log)
		}
		<-time.NewTimer(foreignInterval + lookInterval).C
		write(trail, 1, 30) // more than one file takes
		if err := trail.Close(); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
			t.Errorf("%q, %v", text, err)
		}
		if err := os.Rename(path+".1", path); err != nil {
			t.Fatal(err)
		}
		if s, err := Verify(path, testKey); err != nil || s.Last != 36 || s.Files != 1 {
			t.Errorf("%+v, %v", s, err)
		}
		if n := strings.Count(log.String(), "another file"); n != 2 {
			t.Errorf("an hour later, it was said %d times:\n%s", n, log)
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
		for i := range deniedPerMinute + 3 {
			if i == deniedPerMinute {
				synctest.Wait() // each record says what was counted before
			}
			trail.Write(t.Context(), Record{Outcome: outcomeDenied})
		}
		<-time.NewTimer(2 * sayInterval).C
		if _, denied := said(); denied != 10 {
			t.Errorf("%d denied are said later", denied)
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

// A trail whose newest file is moved says how many records of that file are not where they were, and goes on with its chain when the next file is full.
//
// Guarantees: G-0099.3, G-0099.13
func TestTheNewestOfSeveralFilesIsMoved(t *testing.T) {
	for how, move := range aside {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path, log := filepath.Join(t.TempDir(), "a"), new(bytes.Buffer)
				trail := open(t, path, Options{Sync: true, MaxSize: 2000, Log: slog.New(slog.NewTextHandler(log, nil))})
				write(trail, 0, 20)
				before, err := oldFiles(path)
				if err := errors.Join(err, move(path)); err != nil || len(before) == 0 {
					t.Fatal(before, err)
				}
				<-time.NewTimer(2 * lookInterval).C
				write(trail, 20, 1)
				text, err := os.ReadFile(path + ".1")
				if err != nil {
					t.Fatal(err)
				}
				records, _ := trail.Recent()
				n := len(records)
				moved, first := bytes.Count(text, []byte("\n")), records[n-2].Number-records[n-2].Count
				if said := records[n-2]; said.Event != EventMoved || said.Count != uint64(moved) {
					t.Errorf("it says %s of %d records, of %d that were moved", said.Event, said.Count, moved)
				}
				if want := fmt.Sprintf("records=%d", moved); !strings.Contains(log.String(), want) {
					t.Errorf("the log has no %q:\n%s", want, log)
				}
				write(trail, 21, 20)
				if err := errors.Join(trail.Close(), os.Rename(path+".1", nameOfOld(path, first))); err != nil {
					t.Fatal(err)
				}
				if s, err := Verify(path, testKey); err != nil || s.First != 1 || s.Last != 44 || s.Files < len(before)+3 {
					t.Errorf("with it, behind %d files: %+v, %v", len(before), s, err)
				}
			})
		})
	}
}

// While a trail cannot look at its path, or can make no file there, it goes on in the file that it has, and the log says so.
//
// Guarantees: G-0099.13
func TestTheFolderOfATrailIsAway(t *testing.T) {
	for want, inTheWay := range map[string]bool{"cannot be looked at": true, "goes on in the file that was moved": false} {
		synctest.Test(t, func(t *testing.T) {
			folder, log := filepath.Join(t.TempDir(), "a"), new(bytes.Buffer)
			path := filepath.Join(folder, "a")
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			trail := open(t, path, Options{Sync: true, Log: slog.New(slog.NewTextHandler(log, nil))})
			write(trail, 0, 3)
			err := os.Rename(folder, folder+".away")
			if inTheWay {
				err = errors.Join(err, os.WriteFile(folder, nil, 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			<-time.NewTimer(2 * lookInterval).C
			write(trail, 3, 1)
			if inTheWay {
				err = os.Remove(folder)
			}
			if err := errors.Join(err, os.Rename(folder+".away", folder), trail.Close()); err != nil {
				t.Fatal(err)
			}
			if s, err := Verify(path, testKey); err != nil || s != (Summary{First: 1, Last: 6, Files: 1}) {
				t.Errorf("%s: %+v, %v", want, s, err)
			}
			for _, said := range []string{"cannot be looked at", "goes on in the file that was moved"} {
				if got := strings.Contains(log.String(), said); got != (said == want) {
					t.Errorf("it said %q: %t\n%s", said, got, log)
				}
			}
		})
	}
}

// A file of which somebody has cut off a part is no empty one: what is left of it stays.
//
// Guarantees: G-0099.13
func TestAPartOfAFileIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "a")
		trail := open(t, path, Options{Sync: true, Log: slog.New(slog.DiscardHandler)})
		write(trail, 0, 3)
		text, err := os.ReadFile(path)
		if err := errors.Join(err, os.Truncate(path, int64(len(text)/2))); err != nil {
			t.Fatal(err)
		}
		<-time.NewTimer(2 * lookInterval).C
		write(trail, 3, 1)
		if err := trail.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(got, text[:len(text)/2]) {
			t.Errorf("what was left is overwritten: %q, %v", got, err)
		}
	})
}
