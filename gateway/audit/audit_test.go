package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerVariable); path != "" {
		writeForEver(path)
	}
	goleak.VerifyTestMain(m)
}

var testKey = []byte("0123456789abcdef0123456789abcdef")

func open(t testing.TB, path string, o Options) *Trail {
	t.Helper()
	o.Key = testKey
	trail, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return trail
}

func write(trail *Trail, from, n int) {
	for i := range n {
		trail.Write(context.Background(), Record{Time: time.Now(), Principal: "ada", Method: "tools/call", Name: fmt.Sprint("tool", from+i), Outcome: "answered"})
	}
}

// trailOf writes a trail of a few processes, and returns its lines.
func trailOf(t testing.TB, path string, perProcess ...int) []string {
	t.Helper()
	for _, n := range perProcess {
		trail := open(t, path, Options{Sync: true})
		write(trail, 0, n)
		if err := trail.Close(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(strings.Lines(string(text)))
}

// Over several processes a trail is one chain, with the beginning and the end of each.
//
// Guarantees: G-0099.1
func TestAChainOverProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	lines := trailOf(t, path, 3, 0, 2)
	if len(lines) != 5+2+4 {
		t.Errorf("%d lines", len(lines))
	}
	s, err := Verify(path, testKey)
	if err != nil || s != (Summary{First: 1, Last: 11, Files: 1}) {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Verify(path, []byte(strings.Repeat("x", keySize))); !errors.As(err, new(*BrokenError)) {
		t.Errorf("with another key: %v", err)
	}
}

// Whatever is changed in a trail, left out, added, moved or cut off is found, and the first line named that is not as it was, unless it was done with the key.
//
// Guarantees: G-0099.2
func TestTamperingIsFound(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	lines := trailOf(t, path, 6, 3)
	head, err := os.ReadFile(path + headEnd)
	if err != nil {
		t.Fatal(err)
	}
	other := trailOf(t, filepath.Join(dir, "b"), 6, 3)
	forged, err := newSealer([]byte(strings.Repeat("k", keySize))).seal(Record{Version: Version, Number: uint64(len(lines) + 1), Previous: hashOf([]byte(strings.TrimSuffix(lines[len(lines)-1], "\n")))})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		changed, end := slices.Clone(lines), string(head)
		i := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
		kind := rapid.SampledFrom([]string{"byte", "case", "remove", "double", "swap", "cut", "foreign", "forge", "head", "bit"}).Draw(t, "kind")
		switch kind {
		case "byte", "bit":
			at := rapid.IntRange(0, len(changed[i])-1).Draw(t, "byte")
			to := changed[i][at] ^ 1
			if kind == "byte" {
				to = byte(rapid.IntRange(0, 255).Draw(t, "to"))
			}
			changed[i] = changed[i][:at] + string([]byte{to}) + changed[i][at+1:]
		case "case": // the digits of the MAC
			at := strings.LastIndex(changed[i], mark) + len(mark)
			changed[i] = changed[i][:at] + strings.ToUpper(changed[i][at:])
		case "remove":
			changed = slices.Delete(changed, i, i+1)
		case "double":
			changed = slices.Insert(changed, i, changed[i])
		case "swap":
			j := rapid.IntRange(0, len(lines)-1).Draw(t, "other line")
			changed[i], changed[j] = changed[j], changed[i]
		case "cut":
			changed = changed[:i]
		case "foreign":
			changed[i] = other[i]
		case "forge":
			changed = slices.Insert(changed, i, string(forged)+"\n")
		case "head":
			at := rapid.IntRange(0, len(end)-2).Draw(t, "byte") // the last one is a line break
			end = end[:at] + string([]byte{end[at] ^ 1}) + end[at+1:]
		}
		if err := errors.Join(os.WriteFile(path, []byte(strings.Join(changed, "")), 0o600), os.WriteFile(path+headEnd, []byte(end), 0o600)); err != nil {
			t.Fatal(err)
		}
		s, err := Verify(path, testKey)
		right := 0
		for right < min(len(lines), len(changed)) && changed[right] == lines[right] {
			right++
		}
		want := BrokenError{Path: path, Line: right + 1, Number: uint64(right)}
		switch {
		case end != string(head):
			want.Path, want.Line = path+headEnd, 1
		case kind == "foreign" && i == 0: // it is right by itself, and only the next one is not
			want.Line, want.Number = 2, 1
		case right == len(lines) && len(changed) == len(lines):
			if err != nil || s.Last != uint64(len(lines)) {
				t.Fatalf("of a whole trail: %+v, %v", s, err)
			}
			return
		}
		broken := (*BrokenError)(nil)
		if !errors.As(err, &broken) || broken.Path != want.Path || broken.Line != want.Line || broken.Number != want.Number {
			t.Fatalf("%+v, %v, want %s:%d: after record %d", s, err, want.Path, want.Line, want.Number)
		}
	})
}

// A file that is full is followed by another one, and the chain goes on. Old files beyond those to keep go. What else is in the folder is nothing of the trail.
//
// Guarantees: G-0099.3
func TestRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "[a]*", "a")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	strange := []string{".2026-11-28.gz", ".20261128", ".0000000000001", ".000000000001.gz", "b.000000000001"}
	for _, name := range strange {
		if err := os.WriteFile(path+name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		trail := open(t, path, Options{Sync: true, MaxSize: 2000, Keep: 3})
		write(trail, 0, 100)
		if err := trail.Close(); err != nil {
			t.Fatal(err)
		}
	}
	old, err := oldFiles(path)
	if err != nil || len(old) != 3 {
		t.Errorf("%q, %v", old, err)
	}
	for _, name := range old { // one is begun when there is too much in the last, and not before
		text, err := os.ReadFile(name)
		last := bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1
		if err != nil || len(text) <= 2000 || last > 2000 {
			t.Errorf("%s has %d bytes, %d without its last record: %v", name, len(text), last, err)
		}
	}
	s, err := Verify(path, testKey)
	if err != nil || s.Last != 204 || s.First < 150 || s.Files != 4 {
		t.Errorf("%+v, %v", s, err)
	}
	for _, name := range strange {
		if _, err := os.Stat(path + name); err != nil {
			t.Error(err)
		}
	}
	if err := os.Remove(old[1]); err != nil {
		t.Fatal(err)
	}
	if s, err := Verify(path, testKey); err == nil {
		t.Errorf("without a file in the middle: %+v", s)
	}
	trail := open(t, path, Options{Sync: true, MaxSize: 2000, Keep: 1}) // fewer than before
	write(trail, 0, 20)
	if old, err := oldFiles(path); err != nil || len(old) != 1 {
		t.Errorf("one is kept: %q, %v", old, err)
	}
	if err := trail.Close(); err != nil {
		t.Error(err)
	}
}

// A trail for which no new file can be begun goes on in the same one, and does not try that again for each record.
//
// Guarantees: G-0099.3
func TestARotationThatFails(t *testing.T) {
	path, log := filepath.Join(t.TempDir(), "a"), new(bytes.Buffer)
	if err := os.Mkdir(path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	trail := open(t, path, Options{Sync: true, MaxSize: 1000, Log: slog.New(slog.NewTextHandler(log, nil))})
	write(trail, 0, 100)
	if err := trail.Close(); err != nil {
		t.Error(err)
	}
	if s, err := Verify(path, testKey); err != nil || s != (Summary{First: 1, Last: 102, Files: 1}) {
		t.Errorf("%+v, %v", s, err)
	}
	if n := strings.Count(log.String(), "goes on in the same file"); n == 0 || n > 8 {
		t.Errorf("it was said %d times", n)
	}
}

// A process that was killed right after a file was begun leaves a chain that goes on, and nothing of the file before is lost when the next one is full.
//
// Guarantees: G-0099.3
func TestANewFileWithoutRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	trailOf(t, path, 5)
	if err := errors.Join(os.Rename(path, path+".000000000001"), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	trail := open(t, path, Options{Sync: true, MaxSize: 1000}) // its first full file is another one
	write(trail, 0, 10)
	if err := trail.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := Verify(path, testKey); err != nil || s.First != 1 || s.Last != 19 || s.Files < 3 {
		t.Errorf("%+v, %v", s, err)
	}
	first, err := unseal(testKey, strings.TrimSuffix(trailOf(t, path, 1)[0], "\n"))
	if err := errors.Join(err, os.Rename(path, nameOfOld(path, first.Number)), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	trailOf(t, path, 1)
	if s, err := Verify(path, testKey); err != nil || s.First != 1 || s.Last != 25 {
		t.Errorf("behind several files: %+v, %v", s, err)
	}
}

// If the file before cannot be read, nobody knows how the chain goes on, so there is no trail.
//
// Guarantees: G-0099.3
func TestANewFileBehindOneThatCannotBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := errors.Join(os.Mkdir(path+".000000000001", 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if trail, err := Open(path, Options{Key: testKey}); err == nil {
		t.Error("it is opened", trail.Close())
	}
	if text, err := os.ReadFile(path); err != nil || len(text) > 0 {
		t.Errorf("the file has %q, %v", text, err)
	}
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// A fullDisk takes half of each write, and then says that it is full, until it is not.
type fullDisk struct {
	disk
	full  atomic.Bool
	tries atomic.Int64
}

func (d *fullDisk) WriteAt(text []byte, at int64) (int, error) {
	if !d.full.Load() {
		return d.disk.WriteAt(text, at)
	}
	defer d.tries.Add(1)
	n, err := d.disk.WriteAt(text[:len(text)/2], at)
	return n, errors.Join(err, errors.New("no space left"))
}

// A trail without the note of its newest record, or with half of it, goes on, and does not verify: its end may have been cut.
//
// Guarantees: G-0099.2, G-0099.4
func TestTheNoteOfTheNewestRecordIsMissing(t *testing.T) {
	for _, text := range []string{"", "{", `{"n":9,"hash":"","mac":""}`, "none"} {
		path := filepath.Join(t.TempDir(), "a")
		lines := trailOf(t, path, 5)
		if err := os.WriteFile(path, []byte(strings.Join(lines[:3], "")), 0o600); err != nil {
			t.Fatal(err)
		}
		err := os.Remove(path + headEnd)
		if text != "none" {
			err = os.WriteFile(path+headEnd, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, err := Verify(path, testKey); s.Last != 3 || err == nil || !strings.Contains(err.Error(), "whoever copies a trail copies this file, too") {
			t.Errorf("%q, as a copy without it: %+v, %v", text, s, err)
		}
		if again := trailOf(t, path, 1); !strings.Contains(again[3], `"event":"cut"`) || !strings.Contains(again[3], "the newest record is not known: ") || !strings.Contains(again[3], path+headEnd) {
			t.Errorf("%q: %s", text, again[3])
		}
		if s, err := Verify(path, testKey); !errors.As(err, new(*BrokenError)) {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
	path := filepath.Join(t.TempDir(), "a")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.WriteFile(path+headEnd, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if again := trailOf(t, path, 1); !strings.Contains(again[0], `"event":"cut"`) {
		t.Errorf("of an empty trail: %s", again[0])
	}
}

// What was lost at the end is said before the end, and who writes after it does not wait.
//
// Guarantees: G-0099.5
func TestTheEndOfATrail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	trail := open(t, path, Options{Sync: true})
	trail.mu.Lock()
	trail.lost = 3
	trail.mu.Unlock()
	if err := trail.Close(); err != nil {
		t.Fatal(err)
	}
	write(trail, 0, 20)
	if lost := trail.Lost(); lost != 0 {
		t.Errorf("%d that came after the end count as lost", lost)
	}
	if s, err := Verify(path, testKey); err != nil || s.Lost != 3 || s.Last != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	if records, _ := trail.Recent(); records[2].Event != EventStopped {
		t.Errorf("the last record is %+v", records[2])
	}
}

// While the disk takes nothing, records are dropped and counted, or wait, as the options say. None is half written.
//
// Guarantees: G-0099.5
func TestADiskThatIsFull(t *testing.T) {
	for _, block := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "a")
		trail := open(t, path, Options{Sync: true, Block: block})
		write(trail, 0, 2)
		d := &fullDisk{disk: trail.file}
		trail.file = d // nobody writes now
		d.full.Store(true)
		var waiting sync.WaitGroup
		waiting.Go(func() { write(trail, 2, 3) })
		if !block {
			waiting.Wait()
			if s, err := Verify(path, testKey); err != nil {
				t.Errorf("while the disk is full: %+v, %v", s, err)
			}
		}
		for d.tries.Load() == 0 {
			runtime.Gosched()
		}
		d.full.Store(false)
		waiting.Wait()
		write(trail, 5, 1)
		if lost := trail.Lost(); lost != 3 && !block || lost != 0 && block {
			t.Errorf("block: %t: it says that %d are lost", block, lost)
		}
		if err := trail.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := Verify(path, testKey)
		want := Summary{First: 1, Last: 6, Files: 1, Lost: 3}
		if block {
			want = Summary{First: 1, Last: 8, Files: 1}
		}
		if err != nil || s != want {
			t.Errorf("block: %t: %+v, %v, want %+v", block, s, err, want)
		}
	}
}

// A queue that is full drops records, and the trail says how many, or makes its callers wait until they give up.
//
// Guarantees: G-0099.5
func TestAQueueThatIsFull(t *testing.T) {
	for _, block := range []bool{false, true} {
		trail := &Trail{o: Options{Key: testKey, Block: block}, queue: make(chan entry, 1), closing: make(chan struct{}), ended: make(chan struct{})}
		ctx, cancel := context.WithCancel(context.Background())
		trail.Write(ctx, Record{})
		cancel()
		trail.Write(ctx, Record{})
		if trail.lost != 1 || len(trail.queue) != 1 {
			t.Errorf("%d are lost, %d wait", trail.lost, len(trail.queue))
		}
	}
	synctest.Test(t, func(t *testing.T) {
		trail := &Trail{o: Options{Key: testKey, Block: true}, queue: make(chan entry), closing: make(chan struct{}), ended: make(chan struct{})}
		go trail.Write(t.Context(), Record{})
		synctest.Wait()
		close(trail.closing)
		synctest.Wait()
		trail.Write(t.Context(), Record{})
		if trail.lost != 0 {
			t.Errorf("%d are lost that came too late", trail.lost)
		}
	})
}

// What was lost is said before the next record, and what is lost while that is said is said before the one after it.
//
// Guarantees: G-0099.5
func TestWhatIsLostIsSaidInItsPlace(t *testing.T) {
	var trail *Trail
	var lose sync.Once
	trail = open(t, filepath.Join(t.TempDir(), "a"), Options{Sync: true, Written: func(r Record) {
		if r.Event == EventLost {
			lose.Do(trail.lose)
		}
	}})
	trail.lose()
	write(trail, 0, 2)
	var got []string
	records, _ := trail.Recent()
	for _, r := range records {
		got = append(got, fmt.Sprint(r.Event, r.Name, r.Count))
	}
	if want := []string{"started0", "lost1", "tool00", "lost1", "tool10"}; !slices.Equal(got, want) {
		t.Errorf("the trail has %q, want %q", got, want)
	}
	if lost := trail.Lost(); lost != 2 {
		t.Errorf("%d are lost in all", lost)
	}
	if err := trail.Close(); err != nil {
		t.Error(err)
	}
}

// Somebody without a login cannot fill the disk: most requests that are denied to him are counted.
//
// Guarantees: G-0099.10
func TestDeniedRequestsWithoutALogin(t *testing.T) {
	for who, want := range map[string]int{"": deniedPerMinute, "ada": 1000} {
		path := filepath.Join(t.TempDir(), "a")
		trail := open(t, path, Options{Block: true})
		for range 1000 {
			trail.Write(context.Background(), Record{Principal: who, Outcome: "answered"}) // which is no denial, so it does not count
			trail.Write(context.Background(), Record{Principal: who, Outcome: outcomeDenied})
		}
		if err := trail.Close(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if answered := strings.Count(string(text), `"outcome":"answered"`); answered != 1000 {
			t.Errorf("%q: %d of 1000 answers are written", who, answered)
		}
		written, counted := strings.Count(string(text), `"outcome":"denied"`), uint64(0)
		for line := range strings.Lines(string(text)) {
			if r, err := unseal(testKey, strings.TrimSuffix(line, "\n")); err != nil {
				t.Error(err)
			} else if r.Event == EventDenied {
				counted += r.Count
			}
		}
		if written < want || written > want+5 || written+int(counted) != 1000 {
			t.Errorf("%q: %d are written, and %d counted", who, written, counted)
		}
		if s, err := Verify(path, testKey); err != nil || s.Lost != 0 {
			t.Errorf("%q: %+v, %v", who, s, err)
		}
	}
}

// Two processes do not write to one trail, a wrong key is none, and a trail with a broken record is not continued.
//
// Guarantees: G-0099.6
func TestOpenRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	trail := open(t, path, Options{})
	if second, err := Open(path, Options{Key: testKey}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("%v, %v", second, err)
	}
	if err := trail.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{Key: testKey[1:]}); err == nil {
		t.Error("a key of 31 bytes was taken")
	}
	if _, err := Open(path, Options{Key: []byte(strings.Repeat("x", keySize))}); !errors.As(err, new(*BrokenError)) {
		t.Errorf("another key: %v", err)
	}
	if err := open(t, path, Options{}).Close(); err != nil { // the attempts before have left nothing
		t.Error(err)
	}
	key, err := ReadKey(path + ".key")
	if err != nil || len(key) != keySize {
		t.Fatal(err)
	}
	if again, err := ReadKey(path + ".key"); err != nil || string(again) != string(key) {
		t.Errorf("%v", err)
	}
	if info, err := os.Stat(path + ".key"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(path+".key", []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadKey(path + ".key"); err == nil {
		t.Error("a broken key was read")
	}
	if _, err := Verify(path+".none", testKey); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// What others have written is cut, so that no record is too long to be read.
//
// Guarantees: G-0099.6
func TestTextsAreCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	trail := open(t, path, Options{Sync: true})
	huge := strings.Repeat("\x01ä", 1<<20)
	trail.Write(context.Background(), Record{Principal: huge, User: huge, Trace: huge, Span: huge, Address: huge, Client: huge, Revision: huge, ID: huge, Method: huge, Name: huge, Server: huge, Own: huge, Rule: huge, Reason: huge, Event: huge})
	if err := trail.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := Verify(path, testKey); err != nil || s.Last != 3 || size(path) > longestLine {
		t.Errorf("%+v, %v, %d bytes", s, err, size(path))
	}
}

// Whatever a file has: reading ends, and names a line.
//
// Guarantees: G-0099.2
func FuzzVerify(f *testing.F) {
	dir := f.TempDir()
	lines := trailOf(f, filepath.Join(dir, "a"), 2)
	f.Add([]byte(strings.Join(lines, "") + "\n"))
	f.Add([]byte(`{"v":1,"n":1,"prev":"","mac":""}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "a")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		var broken *BrokenError
		if _, err := Verify(path, testKey); !errors.As(err, &broken) {
			t.Errorf("without a head: %v", err)
		}
	})
}

func BenchmarkWrite(b *testing.B) {
	trail := open(b, filepath.Join(b.TempDir(), "a"), Options{Block: true})
	r := Record{Time: time.Now(), Principal: "ada", Client: "c 1", Revision: "2026-07-28", ID: "1", Method: "tools/call", Name: "a__who", Server: "a", Own: "who", Outcome: "answered", Arguments: Digest(testKey)([]byte("x"))}
	b.ReportAllocs()
	for b.Loop() {
		trail.Write(context.Background(), r)
	}
	if err := trail.Close(); err != nil {
		b.Fatal(err)
	}
}

// A trail from before records had traces verifies, and goes on: members may be added to the format.
//
// Guarantees: G-0099.2, G-0099.17
func TestATrailFromBeforeTraces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	for _, end := range []string{"", ".head"} {
		text, err := os.ReadFile(filepath.Join("testdata", "before-traces.jsonl"+end))
		if err == nil {
			err = os.WriteFile(path+end, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if s, err := Verify(path, testKey); err != nil || s.Last != 8 {
		t.Fatal(s, err)
	}
	trail := open(t, path, Options{Sync: true})
	trail.Write(t.Context(), Record{Method: "tools/call", Trace: "0af7651916cd43dd8448eb211c80319c", Span: "b7ad6b7169203331"})
	if err := trail.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err := Verify(path, testKey); err != nil || s.First != 1 || s.Last != 11 || s.Unclean != 0 {
		t.Error(s, err)
	}
	text, err := os.ReadFile(path)
	if want := `"trace":"0af7651916cd43dd8448eb211c80319c","span":"b7ad6b7169203331","method":"tools/call"`; err != nil || strings.Count(string(text), `"trace"`) != 1 || !strings.Contains(string(text), want) {
		t.Errorf("%v: %s", err, text)
	}
	changed := strings.Replace(string(text), `"span":"b7`, `"span":"b8`, 1)
	if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(path, testKey); err == nil {
		t.Error("another span is not found")
	}
}
