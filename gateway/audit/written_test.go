package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever wants a copy of a trail hears of what is in its files, in their order, and of nothing else: also of its beginning, of its end, and over files.
//
// Guarantees: G-0099.15
func TestACopyIsOfWhatIsInTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	log := new(bytes.Buffer)
	var heard []Record
	for range 2 {
		trail := open(t, path, Options{Sync: true, MaxSize: 1500, Node: "n", Log: slog.New(slog.NewTextHandler(log, nil)), Written: func(r Record) { heard = append(heard, r) }})
		write(trail, 0, 10)
		d := &fullDisk{disk: trail.file}
		trail.file = d // nobody writes now
		d.full.Store(true)
		write(trail, 10, 2)
		d.full.Store(false)
		write(trail, 12, 1)
		d = &fullDisk{disk: trail.file} // another file may have been begun
		trail.file = d
		d.full.Store(true)
		write(trail, 13, 1)
		d.full.Store(false)
		trail.Write(t.Context(), Record{Shown: json.RawMessage("{")}) // which cannot be encoded
		if lost := trail.Lost(); lost != 4 {
			t.Errorf("%d records are lost, want 4", lost)
		}
		if err := trail.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for said, want := range map[string]int{"cannot be encoded": 2, "cannot be written": 4} { // in two processes: once each, and each time that it begins
		if n := strings.Count(log.String(), said); n != want {
			t.Errorf("%q is said %d times, want %d:\n%s", said, n, want, log)
		}
	}
	var inFile []Record
	files, err := oldFiles(path)
	files = append(files, path)
	if err != nil || len(files) < 3 {
		t.Fatalf("%q: %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			r, err := unseal(testKey, strings.TrimSuffix(line, "\n"))
			if err != nil {
				t.Fatal(err)
			}
			inFile = append(inFile, r)
		}
	}
	if !slices.EqualFunc(heard, inFile, func(a, b Record) bool { return reflect.DeepEqual(a, b) }) {
		t.Errorf("it hears of %+v, want %+v", heard, inFile)
	}
}

// A trail verifies at any time while it is written: also while a full file makes room for the next one, and while the oldest is removed.
//
// Guarantees: G-0099.9
func TestATrailThatIsWrittenVerifies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	trail := open(t, path, Options{Block: true, MaxSize: 1500, Keep: 3})
	written := make(chan struct{})
	go func() {
		defer close(written)
		write(trail, 0, 2000)
	}()
	for running := true; running; {
		select {
		case <-written:
			running = false
		default:
		}
		if s, err := Verify(path, testKey); err != nil {
			t.Errorf("%+v: %v", s, err)
			break
		}
	}
	<-written
	if err := trail.Close(); err != nil {
		t.Error(err)
	}
}

// A file whose place cannot be given to the next one stays, with all its records.
//
// Guarantees: G-0099.3
func TestAFullFileThatCannotBeRenamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	trail := open(t, path, Options{Sync: true, MaxSize: 1000, Log: slog.New(slog.DiscardHandler)})
	if err := os.Mkdir(nameOfOld(path, 1), 0o700); err != nil {
		t.Fatal(err)
	}
	write(trail, 0, 20)
	if err := errors.Join(trail.Close(), os.Remove(nameOfOld(path, 1))); err != nil {
		t.Fatal(err)
	}
	if s, err := Verify(path, testKey); err != nil || s != (Summary{First: 1, Last: 22, Files: 1}) {
		t.Errorf("%+v, %v", s, err)
	}
}

// A record is written although the request that it is about has ended meanwhile, and does not count as lost.
//
// Guarantees: G-0099.5
func TestARecordWhoseContextHasEnded(t *testing.T) {
	going := make(chan struct{})
	trail := open(t, filepath.Join(t.TempDir(), "a"), Options{Sync: true, Written: func(r Record) {
		if r.Name == "tool0" {
			<-going
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trail.Write(ctx, Record{Name: "tool0"})
	trail.Write(ctx, Record{Name: "tool1"})
	close(going)
	if err := trail.Close(); err != nil {
		t.Fatal(err)
	}
	records, _ := trail.Recent()
	if lost := trail.Lost(); lost != 0 || len(records) != 4 || records[2].Name != "tool1" {
		t.Errorf("%d are lost, and the trail has %+v", lost, records)
	}
}

// What a process that was killed has left of the next file is not in that one.
//
// Guarantees: G-0099.3
func TestWhatIsLeftOfTheNextFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path+".new", bytes.Repeat([]byte("x"), 10000), 0o600); err != nil {
		t.Fatal(err)
	}
	trail := open(t, path, Options{Sync: true, MaxSize: 1000})
	write(trail, 0, 10)
	if err := trail.Close(); err != nil {
		t.Error(err)
	}
	if s, err := Verify(path, testKey); err != nil || s.Files < 2 {
		t.Errorf("%+v, %v", s, err)
	}
}

// Who opens the files of a trail that is not there need not wait, as where one makes room for the next.
//
// Guarantees: G-0099.9
func TestFilesOfNoTrail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if _, _, err := OpenFiles(filepath.Join(t.TempDir(), "a")); !errors.Is(err, fs.ErrNotExist) || !time.Now().Equal(began) {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
	})
}
