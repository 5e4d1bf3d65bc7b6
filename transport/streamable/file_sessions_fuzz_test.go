package streamable

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Whatever a file contains, it is refused or opened. If it is opened, a whole record in it is
// found, the store can be used, and the file opens again with the same sessions.
//
// Guarantees: G-0080.8
func FuzzFileOfSessions(f *testing.F) {
	whole := func(name byte) []byte {
		frame, _ := frameOf(aboutOf(sessionName{name}, time.UnixMilli(1e12)), make([]byte, 40))
		return frame
	}
	first := whole(1)
	f.Add([]byte(""), uint(100))
	f.Add([]byte(sessionsMagic[:5]), uint(100))
	f.Add([]byte(sessionsMagic), uint(100))
	f.Add(append([]byte(sessionsMagic), first...), uint(100))
	f.Add(append(append([]byte(sessionsMagic), first...), first[:20]...), uint(30))
	f.Add(append(append([]byte(sessionsMagic), first[1:]...), first...), uint(25))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte, where uint) {
		at := int(min(where, uint(len(content))))
		content = slices.Concat(content[:at], whole(2), content[at:])
		if err := os.WriteFile(filepath.Join(dir, "sessions"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		o := FileSessionsOptions{MaxAge: 1 << 62, MaxBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)}
		s, err := OpenFileSessions(dir, o)
		if err != nil {
			return
		}
		if _, found := s.stored[sessionName{2}]; !found {
			t.Fatal("the whole record was not found")
		}
		stored := s.Report().Stored
		s.Save("s", SessionRecord{Identity: "identity", Streams: 5})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = OpenFileSessions(dir, o); err != nil {
			t.Fatalf("it did not open again: %v", err)
		}
		defer s.Close()
		if again := s.Report(); again.Stored != stored+1 || again.Damaged > 0 {
			t.Fatalf("there were %d sessions and one more, and now there are %+v", stored, again)
		}
		if r, err := s.Take(t.Context(), "s", "identity"); err != nil || r.Streams != 5 {
			t.Fatalf("the session that was saved then: %+v, %v", r, err)
		}
	})
}

// Whatever a record contains, it is refused or decoded, and encoded as it was.
//
// Guarantees: G-0080.8
func FuzzSessionRecord(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeSessionRecord(SessionRecord{}))
	f.Add(encodeSessionRecord(storedRecord(300, 200)))
	f.Add([]byte{recordVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeSessionRecord(b)
		if err != nil {
			return
		}
		again, err := decodeSessionRecord(encodeSessionRecord(r))
		if err != nil || again.Identity != r.Identity || string(again.Initialize) != string(r.Initialize) ||
			again.Version != r.Version || string(again.State) != string(r.State) || again.Streams != r.Streams {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}
