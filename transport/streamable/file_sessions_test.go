package streamable

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// openSessions opens the sessions of a folder, and closes them at the end of the test.
func openSessions(t *testing.T, dir string, o FileSessionsOptions) *FileSessions {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s, err := OpenFileSessions(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) // the test has closed it, or does not care
	return s
}

func awaitStored(s *FileSessions) {
	for s.Report().Pending > 0 {
		runtime.Gosched()
	}
}

// storedRecord returns a record of about so many bytes.
func storedRecord(n, size int) SessionRecord {
	return SessionRecord{Identity: "identity", Initialize: bytes.Repeat([]byte("i"), size), Version: "v", Streams: uint64(n)}
}

// wantStored takes a session, and compares the number of its record; -1 stands for none.
func wantStored(t *testing.T, s *FileSessions, session string, n int) {
	t.Helper()
	r, err := s.Take(t.Context(), session, "identity")
	switch {
	case n < 0 && !errors.Is(err, ErrNoSession):
		t.Errorf("%s: got record %d, %v, want none", session, r.Streams, err)
	case n >= 0 && (err != nil || r.Streams != uint64(n)):
		t.Errorf("%s: got record %d, %v, want %d", session, r.Streams, err, n)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Nothing of a session can be read in the folder without the key, and the key opens nothing
// under the name of another session.
//
// Guarantees: G-0080.1, G-0080.6
func TestStoredSessionsCannotBeRead(t *testing.T) {
	made := map[string]bool{hex.EncodeToString(make([]byte, 32)): true} // that of no random bits
	for range 2 {
		dir := testenv.Dir(t)
		openSessions(t, dir, FileSessionsOptions{})
		if key := string(readFile(t, filepath.Join(dir, "key"))); len(key) != 64 || made[key] {
			t.Errorf("the key of a folder is %s, as another one", key)
		} else {
			made[key] = true
		}
	}
	dir, key := testenv.Dir(t), bytes.Repeat([]byte{7}, 32)
	keys := func() [][]byte { return [][]byte{key} }
	s := openSessions(t, dir, FileSessionsOptions{Key: keys})
	secrets := []string{"session-of-alice", "identity-of-alice", "init-of-alice", "version-of-alice", "state-of-alice"}
	record := SessionRecord{Identity: secrets[1], Initialize: json.RawMessage(secrets[2]), Version: secrets[3], State: json.RawMessage(secrets[4])}
	s.Save(secrets[0], record)
	record.Identity = "identity"
	s.Save("other", record)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text := readFile(t, filepath.Join(dir, file.Name()))
		for _, secret := range append(secrets, string(key)) {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s contains %q", file.Name(), secret)
			}
		}
		info, err := file.Info()
		if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", file.Name(), info.Mode(), err)
		}
	}
	other := openSessions(t, testenv.Dir(t), FileSessionsOptions{Key: keys})
	var moved sessionFrame
	for name, p := range s.stored {
		s.file.file, err = os.Open(s.file.path)
		if err != nil {
			t.Fatal(err)
		}
		if moved, err = s.file.read(p); err != nil {
			t.Fatal(err)
		}
		if _, err := other.unseal(name, moved); err != nil {
			t.Errorf("the record does not open: %v", err)
		}
		moved.name[0]++
		moved.body = append([]byte{moved.body[0] + 1}, moved.body[1:]...)
		if _, err := other.unseal(moved.name, moved); err == nil {
			t.Error("the record opens under another name")
		}
		s.file.file.Close()
	}
}

// Keys rotate while the store is in use. A record that none of the keys opens counts as none.
//
// Guarantees: G-0080.1
func TestKeysOfSessionsRotate(t *testing.T) {
	dir := testenv.Dir(t)
	var mu sync.Mutex
	keys := [][]byte{bytes.Repeat([]byte{1}, 32)}
	use := func(now ...byte) {
		mu.Lock()
		defer mu.Unlock()
		keys = nil
		for _, k := range now {
			keys = append(keys, bytes.Repeat([]byte{k}, 32))
		}
	}
	o := FileSessionsOptions{Key: func() [][]byte { mu.Lock(); defer mu.Unlock(); return keys }}
	s := openSessions(t, dir, o)
	s.Save("first", storedRecord(1, 10))
	awaitStored(s)
	use(2, 1)
	s.Save("second", storedRecord(2, 10))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	use(2)
	s = openSessions(t, dir, o)
	wantStored(t, s, "first", -1)
	wantStored(t, s, "second", 2)
	if r := s.Report(); r.Unopened != 1 || r.Stored != 2 {
		t.Errorf("got %+v, want one record that does not open", r)
	}
	use()
	s.Save("third", storedRecord(3, 10))
	s.Save("second", storedRecord(4, 10))
	awaitStored(s)
	if r := s.Report(); r.Failed != 2 || r.Err == nil {
		t.Errorf("without a key: got %+v, want two records that failed", r)
	}
	use(2)
	s.Close()
	s = openSessions(t, dir, o)
	wantStored(t, s, "second", -1) // the older record is not true any more
}

// A folder that another process uses, a short key, and a file or key that is none are refused
// with an error that names it, and nothing is overwritten.
//
// Guarantees: G-0080.7
func TestFoldersThatAreRefused(t *testing.T) {
	dir := testenv.Dir(t)
	s := openSessions(t, dir, FileSessionsOptions{})
	refused := func(o FileSessionsOptions, path, text string) {
		t.Helper()
		var failed *SessionFileError
		other, err := OpenFileSessions(dir, o)
		if err == nil {
			other.Close()
		}
		if !errors.As(err, &failed) || failed.Path != path || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want a SessionFileError of %s with %q", err, path, text)
		}
	}
	if _, err := OpenFileSessions(dir, FileSessionsOptions{}); !errors.Is(err, ErrSessionsInUse) {
		t.Errorf("a folder in use: got %v", err)
	}
	refused(FileSessionsOptions{}, dir, "another process")
	s.Close()
	refused(FileSessionsOptions{Key: func() [][]byte { return nil }}, dir, "no key")
	refused(FileSessionsOptions{Key: func() [][]byte { return [][]byte{make([]byte, 31)} }}, dir, "31 bytes")
	for name, texts := range map[string][]string{
		"sessions": {"something else", "bowline sessions 2\n"},
		"key":      {"", "0123", strings.Repeat("x", 64), strings.Repeat("0", 66), strings.Repeat("0", 1<<20)},
	} {
		path := filepath.Join(dir, name)
		good := readFile(t, path)
		for _, text := range texts {
			writeFile(t, path, []byte(text))
			refused(FileSessionsOptions{}, path, "remove it")
			if got := readFile(t, path); string(got) != text {
				t.Errorf("%s was overwritten", name)
			}
		}
		writeFile(t, path, good)
	}
	path := filepath.Join(dir, "sessions")
	if err := os.Truncate(path, 4<<20); err != nil { // zeros follow
		t.Fatal(err)
	}
	refused(FileSessionsOptions{MaxBytes: 1 << 19}, path, "raise MaxBytes")
	s = openSessions(t, dir, FileSessionsOptions{MaxBytes: 1 << 20})
	s.Save("s", storedRecord(1, 10))
	awaitStored(s)
	wantStored(t, s, "other", -1)
}

// After damage anywhere, every other record is still there, and the damage is counted. An end
// that was cut off is no damage.
//
// Guarantees: G-0080.8
func TestDamagedFiles(t *testing.T) {
	dir := testenv.Dir(t)
	path := filepath.Join(dir, "sessions")
	s := openSessions(t, dir, FileSessionsOptions{})
	const records = 5
	for n := range records {
		s.Save(fmt.Sprint("session ", n), storedRecord(n, 100+n))
		awaitStored(s) // so that they are in this order
	}
	s.Close()
	whole := readFile(t, path)
	begins := []int{len(sessionsMagic)} // where each frame begins
	for n := range records {
		f, _, err := frameAt(whole[begins[n]:])
		if err != nil {
			t.Fatal(err)
		}
		begins = append(begins, begins[n]+f.size())
	}
	check := func(what string, damaged []byte, lost, places int) {
		t.Helper()
		writeFile(t, path, damaged)
		for range 2 { // the second time, the file was repaired or is as before
			s := openSessions(t, dir, FileSessionsOptions{})
			if r := s.Report(); r.Damaged != places {
				t.Errorf("%s: %d places are damaged, want %d", what, r.Damaged, places)
			}
			for n := range records {
				if n == lost {
					wantStored(t, s, fmt.Sprint("session ", n), -1)
				} else {
					wantStored(t, s, fmt.Sprint("session ", n), n)
				}
			}
			s.Save("further", storedRecord(9, 10))
			awaitStored(s)
			s.Forget("further")
			s.Close()
			places = 0 // since the file was compacted
		}
	}
	check("whole", whole, -1, 0)
	for n := range records {
		for offset := begins[n]; offset < begins[n+1]; offset += 13 {
			for _, change := range []byte{1, 0x80} {
				damaged := bytes.Clone(whole)
				damaged[offset] ^= change
				if offset == begins[n]+frameState {
					continue // whether the frame is live
				}
				places := 1
				if n == records-1 {
					places = 0 // an end that was not written whole
				}
				check(fmt.Sprintf("byte %d of record %d", offset-begins[n], n), damaged, n, places)
			}
		}
	}
	last := begins[records-1]
	writeFile(t, path, whole[:last+20])
	openSessions(t, dir, FileSessionsOptions{}).Close()
	if got := readFile(t, path); len(got) != last {
		t.Errorf("after the end was damaged, the file has %d bytes, want %d", len(got), last)
	}
	for end := last; end < len(whole); end += 11 {
		check(fmt.Sprintf("%d bytes of the last record", end-last), whole[:end], records-1, 0)
	}
	middle := append(bytes.Clone(whole[:begins[2]]), append([]byte("\xb0wS\xff\x01\x00\x00\xff\xff12345678 \xb0wS"), whole[begins[2]:]...)...)
	check("bytes that are no record", middle, -1, 1)
	twice := append(bytes.Clone(whole), whole[begins[1]:begins[2]]...)
	check("a record that is there twice", twice, -1, 0)
	writeFile(t, path, twice)
	s = openSessions(t, dir, FileSessionsOptions{})
	wantStored(t, s, "session 1", 1)
	s.Forget("session 1")
	s.Close()
	wantStored(t, openSessions(t, dir, FileSessionsOptions{}), "session 1", -1)
}

// Damage, and an end that was cut off, are logged once, when the file is opened. A whole file is not.
//
// Guarantees: G-0080.8
func TestDamageIsLogged(t *testing.T) {
	dir := testenv.Dir(t)
	path := filepath.Join(dir, "sessions")
	s := openSessions(t, dir, FileSessionsOptions{})
	for n := range 2 {
		s.Save(fmt.Sprint("session ", n), storedRecord(n, 10))
		awaitStored(s)
	}
	s.Close()
	whole := readFile(t, path)
	damaged := bytes.Clone(whole)
	damaged[len(sessionsMagic)+frameHead]++
	for _, test := range []struct {
		what string
		file []byte
		want string
	}{
		{"whole", whole, ""},
		{"damaged", damaged, `places=1 "bytes cut off"=0`},
		{"cut", whole[:len(whole)-1], fmt.Sprintf(`places=0 "bytes cut off"=%d`, (len(whole)-len(sessionsMagic))/2-1)},
	} {
		var log bytes.Buffer
		writeFile(t, path, test.file)
		openSessions(t, dir, FileSessionsOptions{Log: slog.New(slog.NewTextHandler(&log, nil))}).Close()
		if text := log.String(); strings.Count(text, "was damaged") != map[bool]int{true: 1}[test.want != ""] || !strings.Contains(text, test.want) {
			t.Errorf("%s: logged %q, want %q", test.what, text, test.want)
		}
	}
}

// Without options, and with those that make no sense, the defaults of the documentation count.
func TestDefaultsOfFileSessions(t *testing.T) {
	for _, o := range []FileSessionsOptions{{}, {MaxAge: -1, MaxBytes: -1}} {
		s, err := OpenFileSessions(testenv.Dir(t), o)
		if err != nil {
			t.Fatal(err)
		}
		if s.o.MaxAge != time.Hour || s.o.MaxBytes != 64<<20 || s.o.Log == nil {
			t.Errorf("%+v: got a time of %v, %d bytes and the log %v, want an hour, 64 MiB and the default", o, s.o.MaxAge, s.o.MaxBytes, s.o.Log)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A file that consists of what looks like records costs no more time than some whole ones.
//
// Guarantees: G-0080.8
func TestHostileFile(t *testing.T) {
	head := []byte(frameMark + "\x01\x00\x00\xf0\x00crc.") // a body of 60 KiB
	file := bytes.Repeat(head, (32<<20)/len(head))
	s := newFrameScan(bytes.NewReader(file), 0, int64(len(file)))
	if f, _, err := s.next(); err == nil {
		t.Errorf("found a record of %d bytes", len(f.body))
	}
	if s.budget >= 0 || s.budget < -maxFrameBody || s.offset == int64(len(file)) {
		t.Errorf("gave up at byte %d of %d, with a budget of %d", s.offset, len(file), s.budget)
	}
}

// The file is made shorter when more than half of it is not needed, and keeps what is.
//
// Guarantees: G-0080.9
func TestFilesAreCompacted(t *testing.T) {
	dir := testenv.Dir(t)
	path := filepath.Join(dir, "sessions")
	s := openSessions(t, dir, FileSessionsOptions{MaxBytes: 1 << 20})
	kept := map[string]int{}
	largest := int64(0)
	for n := range 2000 {
		session := fmt.Sprint("session ", n%40)
		s.Save(session, storedRecord(n, 10_000))
		kept[session] = n
		if n%3 == 0 {
			s.Forget(session)
			delete(kept, session)
		}
		awaitStored(s)
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, info.Size())
	}
	if report := s.Report(); report.Err != nil || report.Stored != len(kept) || report.Bytes > 1<<20 {
		t.Errorf("got %+v, want %d sessions", report, len(kept))
	}
	if largest > compactAbove+20_000 {
		t.Errorf("the file had %d bytes, for records of %d bytes in total", largest, s.Report().Bytes)
	}
	s.Close()
	if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of the compaction is left: %v", err)
	}
	writeFile(t, path+".new", []byte("left by a process that was killed"))
	s = openSessions(t, dir, FileSessionsOptions{MaxBytes: 1 << 20})
	if _, err := os.Stat(path + ".new"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file of a compaction that was killed is left: %v", err)
	}
	for n := range 40 {
		session := fmt.Sprint("session ", n)
		if record, stored := kept[session]; stored {
			wantStored(t, s, session, record)
		} else {
			wantStored(t, s, session, -1)
		}
	}
}

// Sessions are taken while the file is compacted, again and again.
//
// Guarantees: G-0080.9
func TestSessionsAreTakenDuringCompactions(t *testing.T) {
	s := openSessions(t, testenv.Dir(t), FileSessionsOptions{})
	for n := range 20 {
		s.Save(fmt.Sprint("session ", n), storedRecord(n, 10_000))
	}
	awaitStored(s)
	done := make(chan struct{})
	go func() { // one of 17 saves leads to a compaction, which moves all records
		defer close(done)
		for n := range 340 {
			s.Save("busy", storedRecord(n, 60_000))
			awaitStored(s)
		}
	}()
	for n := 0; ; n++ {
		session := fmt.Sprint("session ", n%20)
		s.Free(session)
		wantStored(t, s, session, n%20)
		select {
		case <-done:
			return
		default: // it goes on
		}
	}
}

// What does not fit is not stored, and neither is an older record of the same session. The log
// says so once, and once when there is room again.
//
// Guarantees: G-0080.10
func TestAFullStore(t *testing.T) {
	var log bytes.Buffer
	dir := testenv.Dir(t)
	o := FileSessionsOptions{MaxBytes: 10_000, Log: slog.New(slog.NewTextHandler(&log, nil))}
	s := openSessions(t, dir, o)
	for n := range 4 {
		s.Save(fmt.Sprint("session ", n), storedRecord(1, 2_000))
		awaitStored(s)
	}
	s.Save("session 0", storedRecord(2, 9_000))
	awaitStored(s)
	s.Save("session 9", storedRecord(2, 9_000))
	awaitStored(s)
	s.Save("session 8", storedRecord(2, maxFrameBody))
	awaitStored(s)
	if r := s.Report(); r.Failed != 3 || r.Err == nil || r.Stored != 3 {
		t.Errorf("got %+v, want three records that failed", r)
	}
	s.Free("session 0") // it works on, and is not stored
	wantStored(t, s, "session 0", -1)
	s.Forget("session 1")
	awaitStored(s)
	if n := strings.Count(log.String(), "cannot be stored"); n != 1 {
		t.Errorf("logged %d times that sessions cannot be stored, want 1:\n%s", n, &log)
	}
	s.Save("session 2", storedRecord(2, 7_000))
	awaitStored(s)
	s.Save("session 2", storedRecord(3, 7_500)) // it replaces the one before
	awaitStored(s)
	if r := s.Report(); r.Failed != 3 || r.Err != nil || r.Bytes > 10_000 {
		t.Errorf("got %+v, want no further record that failed", r)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if n := strings.Count(log.String(), "stored again"); n != 1 {
		t.Errorf("logged %d times that sessions are stored again, want 1:\n%s", n, &log)
	}
	s = openSessions(t, dir, o)
	for session, n := range map[string]int{"session 0": -1, "session 1": -1, "session 2": 3, "session 3": 1, "session 8": -1, "session 9": -1} {
		wantStored(t, s, session, n)
	}
}

// A store is full when one byte more would be too much, also after a restart. A record that replaces another one needs only
// the room beyond that, and one that is in the file twice counts once.
//
// Guarantees: G-0080.10
func TestBoundOfAStore(t *testing.T) {
	path := func(dir string) string { return filepath.Join(dir, "sessions") }
	single := testenv.Dir(t)
	s := openSessions(t, single, FileSessionsOptions{})
	s.Save("a", storedRecord(1, 2000))
	s.Close()
	size, once := s.Report().Bytes, readFile(t, path(single))
	if want := int64(len(once) - len(sessionsMagic)); size != want {
		t.Fatalf("the record has %d bytes, want %d, as in the file", size, want)
	}
	for _, test := range []struct {
		short int64 // so many bytes less than two records
		twice bool  // the first record is in the file twice
		saved string
		fails uint64
	}{
		{0, false, "b", 0}, {1, false, "b", 1}, {0, false, "a", 0}, {size, false, "a", 0}, {size + 1, false, "a", 1},
		{0, true, "b", 0}, {1, true, "b", 1}, {size, true, "a", 0}, {0, false, "bc", 1}, {0, true, "bc", 1}, {0, true, "aba", 0},
	} {
		dir := testenv.Dir(t)
		writeFile(t, filepath.Join(dir, "key"), readFile(t, filepath.Join(single, "key")))
		file := bytes.Clone(once)
		if test.twice {
			file = append(file, once[len(sessionsMagic):]...)
		}
		writeFile(t, path(dir), file)
		s := openSessions(t, dir, FileSessionsOptions{MaxBytes: 2*size - test.short})
		for _, session := range test.saved {
			s.Save(string(session), storedRecord(2, 2000))
			awaitStored(s)
		}
		if r := s.Report(); r.Failed != test.fails {
			t.Errorf("%+v: %d records failed, want %d", test, r.Failed, test.fails)
		}
		s.Close()
	}
}

// A file that cannot be made shorter is used on, and the next attempt comes when it has grown by another MiB. A file in the way of
// the attempt is named by the next start.
//
// Guarantees: G-0080.9
func TestAFileThatCannotBeCompacted(t *testing.T) {
	var log bytes.Buffer
	dir := testenv.Dir(t)
	s := openSessions(t, dir, FileSessionsOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	inTheWay := filepath.Join(dir, "sessions.new")
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	attempts, next := 0, int64(compactAbove+1)
	for n := range 60 {
		s.Save("s", storedRecord(n, 60_000))
		awaitStored(s)
		if r := s.Report(); int64(len(sessionsMagic))+int64(n+1)*r.Bytes >= next {
			attempts, next = attempts+1, int64(len(sessionsMagic))+int64(n+1)*r.Bytes+compactAbove
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got := strings.Count(log.String(), "cannot be made shorter"); got != attempts || attempts != 3 {
		t.Errorf("logged %d times that the file cannot be made shorter, want %d and 3", got, attempts)
	}
	var failed *SessionFileError
	if _, err := OpenFileSessions(dir, FileSessionsOptions{}); !errors.As(err, &failed) || failed.Path != inTheWay {
		t.Errorf("got %v, want a SessionFileError of %s", err, inTheWay)
	}
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	s = openSessions(t, dir, FileSessionsOptions{})
	wantStored(t, s, "s", 59)
	s.Save("s", storedRecord(60, 10))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "sessions")); err != nil || info.Size() != int64(len(sessionsMagic))+s.Report().Bytes {
		t.Errorf("the file has %d bytes, %v, want only its record", info.Size(), err)
	}
}

// A damaged file is compacted once, and not with each record that comes.
func TestADamagedFileIsCompactedOnce(t *testing.T) {
	dir := testenv.Dir(t)
	path := filepath.Join(dir, "sessions")
	s := openSessions(t, dir, FileSessionsOptions{})
	for _, session := range []string{"a", "b"} {
		s.Save(session, storedRecord(1, 100))
		awaitStored(s)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := readFile(t, path)
	damaged[len(sessionsMagic)+frameHead+bodyHead] ^= 1
	writeFile(t, path, damaged)
	s = openSessions(t, dir, FileSessionsOptions{})
	if n := s.Report().Damaged; n != 1 {
		t.Errorf("%d places are damaged, want one", n)
	}
	file := func(session string) os.FileInfo {
		for n := range 2 { // what follows the first record is over when the second one is stored
			s.Save(session, storedRecord(n, 100))
			awaitStored(s)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	if first, later := file("c"), file("d"); !os.SameFile(first, later) {
		t.Error("the file was replaced again")
	}
	if n := s.Report().Damaged; n != 1 {
		t.Errorf("after that %d places were damaged when the file was opened, want one", n)
	}
}

// A session that has ended takes no more room.
func TestForgottenSessionsTakeNoRoom(t *testing.T) {
	s := openSessions(t, testenv.Dir(t), FileSessionsOptions{})
	for n := range 10 {
		s.Save(fmt.Sprint(n), storedRecord(n, 10))
		s.Forget(fmt.Sprint(n))
	}
	awaitStored(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.owned)+len(s.pending)+len(s.stored) > 0 {
		t.Errorf("%d sessions are owned, %d pending and %d stored, want none", len(s.owned), len(s.pending), len(s.stored))
	}
}

// A file is compacted when it is longer than a MiB and more than half of it is dead, or if it is damaged, unless the last attempt
// has failed at about that length.
//
// Guarantees: G-0080.9
func TestWhenAFileIsCompacted(t *testing.T) {
	for _, test := range []struct {
		log  *sessionLog
		want bool
	}{
		{&sessionLog{end: compactAbove + 1, live: compactAbove / 2}, true},
		{&sessionLog{end: compactAbove, live: 0}, false},
		{&sessionLog{end: compactAbove + 2, live: compactAbove/2 + 1}, false}, // just half of it
		{&sessionLog{end: 3 * compactAbove, live: 2 * compactAbove}, false},
		{&sessionLog{end: 100, live: 100, damaged: 1}, true},
		{&sessionLog{end: 100, live: 100}, false},
		{&sessionLog{end: 2 * compactAbove, retry: 2 * compactAbove}, true},
		{&sessionLog{end: 2 * compactAbove, retry: 2*compactAbove + 1}, false},
		{&sessionLog{end: 100, damaged: 1, retry: 101}, false},
	} {
		if got := test.log.wantsCompaction(); got != test.want {
			t.Errorf("%d bytes, %d of them live, %d places damaged, not before %d: got %t, want %t", test.log.end, test.log.live, test.log.damaged, test.log.retry, got, test.want)
		}
	}
}

// Records expire, in the file and for Take, also if the clock was set back.
//
// Guarantees: G-0080.9
func TestStoredSessionsExpire(t *testing.T) {
	dir := testenv.Dir(t)
	synctest.Test(t, func(t *testing.T) {
		s := openSessions(t, dir, FileSessionsOptions{MaxAge: time.Minute})
		pass(time.Second) // so that nothing is swept when a record expires
		s.Save("old", storedRecord(1, 10))
		pass(30 * time.Second)
		s.Save("young", storedRecord(2, 10))
		pass(30*time.Second - 1)
		s.Free("old")
		wantStored(t, s, "old", 1)
		s.Free("old")
		pass(time.Millisecond)
		wantStored(t, s, "old", -1)
		pass(time.Minute / 8)
		synctest.Wait()
		if r := s.Report(); r.Stored != 1 {
			t.Errorf("%d sessions are stored, want one", r.Stored)
		}
		s.Close()
		s = openSessions(t, dir, FileSessionsOptions{MaxAge: time.Minute})
		wantStored(t, s, "old", -1)
		wantStored(t, s, "young", 2)
		s.Close()
	})
	long := testenv.Dir(t)
	synctest.Test(t, func(t *testing.T) { // what has expired leaves the file, too, although nothing is stored any more
		s := openSessions(t, long, FileSessionsOptions{MaxAge: time.Minute})
		for n := range 30 {
			s.Save(fmt.Sprint(n), storedRecord(n, 60_000))
		}
		pass(2 * time.Minute)
		synctest.Wait()
		if info, err := os.Stat(filepath.Join(long, "sessions")); err != nil || info.Size() != int64(len(sessionsMagic)) {
			t.Errorf("the file has %d bytes, %v, want none of a record", info.Size(), err)
		}
		s.Close()
	})
	synctest.Test(t, func(t *testing.T) { // the clock of a bubble begins in 2000
		frame, _ := frameOf(aboutOf(sessionName{}, time.Now().Add(1000*time.Hour)), make([]byte, 40))
		writeFile(t, filepath.Join(dir, "sessions"), append([]byte(sessionsMagic), frame...))
		s := openSessions(t, dir, FileSessionsOptions{MaxAge: time.Minute})
		pass(2 * time.Minute)
		synctest.Wait()
		if r := s.Report(); r.Stored != 0 {
			t.Errorf("%d sessions are stored, want none", r.Stored)
		}
		s.Close()
	})
}

// After Close, nothing is stored and nothing is taken.
//
// Guarantees: G-0080.7
func TestClosedSessions(t *testing.T) {
	dir := testenv.Dir(t)
	s := openSessions(t, dir, FileSessionsOptions{})
	s.Save("s", storedRecord(1, 10))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	before := readFile(t, filepath.Join(dir, "sessions"))
	s.Save("s", storedRecord(2, 10))
	s.Save("t", storedRecord(2, 10))
	s.Forget("s")
	s.Free("s")
	for _, session := range []string{"s", "t", "none"} {
		if r, err := s.Take(t.Context(), session, "identity"); err == nil || errors.Is(err, ErrNoSession) {
			t.Errorf("Take of %s got %v, %v, want another error", session, r, err)
		}
	}
	if n := s.Report().Pending; n != 0 {
		t.Errorf("%d records wait after Close, want none", n)
	}
	if !bytes.Equal(before, readFile(t, filepath.Join(dir, "sessions"))) {
		t.Error("the file was changed after Close")
	}
	s = openSessions(t, dir, FileSessionsOptions{})
	wantStored(t, s, "s", 1)
	wantStored(t, s, "t", -1)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("shutting down")
	cancel(why)
	if _, err := s.Take(ctx, "s", "identity"); !errors.Is(err, why) {
		t.Errorf("Take got %v, want %v", err, why)
	}
}

// What a process that was killed has left of a key is replaced.
func TestHalfAKeyIsReplaced(t *testing.T) {
	dir := testenv.Dir(t)
	writeFile(t, filepath.Join(dir, "key.new"), []byte("00"))
	s := openSessions(t, dir, FileSessionsOptions{})
	s.Save("s", storedRecord(1, 10))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantStored(t, openSessions(t, dir, FileSessionsOptions{}), "s", 1)
}

// While the writer cannot go on, Save, Free and Forget return, and one record of each session
// waits. Then the newest ones are stored.
//
// Guarantees: G-0080.11
func TestSavingDoesNotWait(t *testing.T) {
	dir, key, stuck := testenv.Dir(t), bytes.Repeat([]byte{1}, 32), make(chan struct{})
	var mu sync.Mutex
	var waits bool
	o := FileSessionsOptions{Key: func() [][]byte {
		mu.Lock()
		wait := waits
		mu.Unlock()
		if wait {
			<-stuck // as a disk that does not answer
		}
		return [][]byte{key}
	}}
	s := openSessions(t, dir, o)
	s.Save("session 0", storedRecord(0, 10))
	awaitStored(s)
	mu.Lock()
	waits = true
	mu.Unlock()
	for n := range 1000 {
		s.Save(fmt.Sprint("session ", n%10), storedRecord(n, 1000))
	}
	s.Free("session 1")
	wantStored(t, s, "session 1", 991)
	s.Forget("session 2")
	wantStored(t, s, "session 2", -1)
	if n := s.Report().Pending; n != 10 {
		t.Errorf("%d records wait, want one of each session", n)
	}
	close(stuck)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = openSessions(t, dir, o)
	for n := range 10 {
		if n == 2 {
			wantStored(t, s, "session 2", -1)
		} else {
			wantStored(t, s, fmt.Sprint("session ", n), 990+n)
		}
	}
}

// A record that was replaced, or whose session ended, while a Take read it, is not returned.
//
// Guarantees: G-0080.2
func TestATakeReturnsTheNewestRecord(t *testing.T) {
	s := openSessions(t, testenv.Dir(t), FileSessionsOptions{})
	s.Save("s", storedRecord(1, 10))
	awaitStored(s)
	s.Free("s")
	name := sessionName(sha256.Sum256([]byte("s")))
	for n, change := range []func(){
		func() { s.Save("s", storedRecord(2, 10)) },
		func() { s.Save("s", storedRecord(3, 10)); awaitStored(s) },
		func() { s.Forget("s") },
	} {
		_, found, err := s.find(name)
		if err != nil {
			t.Fatal(err)
		}
		change()
		if same, err := s.own(name, found); same {
			t.Errorf("change %d: an older record counts as the newest, %v", n, err)
		}
	}
}

// If a file cannot be changed at all, the sessions in it are not taken any more: an older record
// of one of them could be the newest in the file.
//
// Guarantees: G-0080.10
func TestAFileThatCannotBeWritten(t *testing.T) {
	s := openSessions(t, testenv.Dir(t), FileSessionsOptions{})
	for n := range 3 {
		s.Save(fmt.Sprint("session ", n), storedRecord(n, 10))
		s.Free(fmt.Sprint("session ", n))
	}
	awaitStored(s)
	readable, err := os.Open(s.file.path)
	if err != nil {
		t.Fatal(err)
	}
	s.file.file.Close()
	s.file.file = readable
	wantStored(t, s, "session 0", 0)
	s.Save("session 0", storedRecord(5, 10))
	awaitStored(s)
	for n := range 3 {
		wantStored(t, s, fmt.Sprint("session ", n), -1)
	}
	if r := s.Report(); r.Err == nil || r.Stored != 0 {
		t.Errorf("got %+v, want an error and no sessions", r)
	}
}
