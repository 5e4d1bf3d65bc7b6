package relay

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestTheLogIsBounded writes to a log for longer than it may be: what was written last is there. One that a gateway has left too long begins again.
//
// Guarantees: G-0092.6
func TestTheLogIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log", "a.log")
	file, began, err := openLog(path)
	if err != nil || began != 0 {
		t.Fatal(began, err)
	}
	log := &BoundedLog{File: file}
	line := append(bytes.Repeat([]byte("x"), 1<<10), '\n')
	for range 5 * mostLog / 2 / len(line) {
		if _, err := log.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := log.Write([]byte("the last one\n")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || len(text) > mostLog || len(text) < mostLog/4 || !bytes.HasSuffix(text, []byte("x\nthe last one\n")) {
		t.Errorf("the log has %d bytes, %v", len(text), err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct{ size, began int64 }{{mostLog, mostLog}, {mostLog + 1, 0}} {
		if err := os.WriteFile(path, make([]byte, of.size), 0o600); err != nil {
			t.Fatal(err)
		}
		file, began, err := openLog(path)
		if err != nil || began != of.began {
			t.Errorf("of %d bytes, it begins at %d, %v", of.size, began, err)
		}
		file.Close()
	}
}
