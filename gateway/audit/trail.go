package audit

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/gateway/internal/limits"
	"github.com/bowline-mcp/bowline/internal/private"
)

const (
	queueSize    = 4096
	againTime    = time.Second            // between two attempts to write to a disk that is full
	headInterval = 100 * time.Millisecond // after a record, until it is noted as the newest
	sayInterval  = time.Minute            // after something was counted that has no record, until the trail says so
	headEnd      = ".head"
	keySize      = 32

	deniedPerMinute = 60 // records of requests without a login
	outcomeDenied   = "denied"
)

// Options configure a Trail. The zero value of each field but Key means its default.
type Options struct {
	Key  []byte // 32 bytes; see ReadKey
	Node string // which node of a cluster writes; each has a file of its own

	// Block makes Write wait for room in the queue, and the trail for a disk that is full, until the context of Write ends. Default: records are dropped, and a record of how
	// many follows.
	Block bool

	// Sync makes Write return when the record is in the file. Default: when it is in the queue, which has room for 4,096.
	Sync bool

	// MaxSize is the size of a file beyond which a new one is begun. The old one gets the number of its first record in its name. Default: 64 MiB; negative: there is one file.
	MaxSize int64

	// Keep is how many old files are kept. Default: all.
	Keep int

	// Written hears of each record when it is in the file, in their order. It must not wait: no other record is written meanwhile. The Record is the callee's.
	Written func(Record)

	// Log hears of what cannot be written. Nil: slog.Default().
	Log *slog.Logger
}

// A Trail appends records to a file. It is safe for concurrent use. End it with Close.
type Trail struct {
	path    string
	o       Options
	queue   chan entry
	counted chan struct{} // has room for one: something was counted that has no record
	closing chan struct{}
	ended   chan struct{} // closed when nothing is written any more
	once    sync.Once
	recent  recent

	mu        sync.Mutex
	lost      uint64                 // since the last record that says so
	refused   uint64                 // as well
	allLost   uint64                 // since the trail was opened
	strangers limits.Rates[struct{}] // of records of those who have no login

	// Of the goroutine that writes:
	sealer *sealer
	file   disk
	lock   *os.File
	place  place
	size   int64
	first  uint64 // of this file
	number uint64
	last   string // hash of the last line
	noting bool   // the end is noted soon
	broken bool   // the last write has failed
	behind bool   // the last note has
}

// A disk is what a file takes.
type disk interface {
	io.WriterAt
	io.Closer
	Truncate(size int64) error
}

// An entry is a record on its way to the file.
type entry struct {
	record Record
	done   chan struct{} // closed when it is written or dropped; nil: nobody waits
}

// Open opens a trail to append to it, or makes one. What a process that was killed has left of a record is set aside, and the trail says so. It fails if another
// process writes to it.
func Open(path string, o Options) (*Trail, error) {
	if len(o.Key) != keySize {
		return nil, fmt.Errorf("audit: a key has %d bytes, and this one %d", keySize, len(o.Key))
	}
	if o.MaxSize == 0 {
		o.MaxSize = 64 << 20
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Written == nil {
		o.Written = func(Record) {}
	}
	t := &Trail{path: path, o: o, sealer: newSealer(o.Key), queue: make(chan entry, queueSize), counted: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{})}
	if err := t.open(); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	go t.run() // Close waits for it
	return t, nil
}

// Write appends a record, and sets its Version, Number, Node and Previous. It never fails: what cannot be written is counted, and the trail says how many it
// were. After Close it does nothing.
//
// Requests that were denied to somebody without a login have sixty records at once, and then one a second, so that who has no token cannot fill the disk. The
// trail says how many the others were.
func (t *Trail) Write(ctx context.Context, r Record) {
	if r.Principal == "" && r.Outcome == outcomeDenied && !t.admit(time.Now()) {
		return
	}
	e := entry{record: r}
	if t.o.Sync {
		e.done = make(chan struct{})
	}
	if !t.put(ctx, e) {
		t.lose()
		return
	}
	if e.done == nil {
		return
	}
	select {
	case <-e.done:
	case <-t.ended: // it came too late
	case <-ctx.Done(): // the record is written nevertheless
	}
}

func (t *Trail) put(ctx context.Context, e entry) bool {
	select {
	case <-t.closing:
		return true
	case t.queue <- e:
		return true
	default:
	}
	if !t.o.Block {
		return false
	}
	select {
	case t.queue <- e:
		return true
	case <-t.closing:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close writes what is in the queue, and says in the trail that it has ended properly.
func (t *Trail) Close() error {
	t.once.Do(func() { close(t.closing) })
	<-t.ended
	return errors.Join(t.file.Close(), t.lock.Close())
}

// Recent returns the newest records of the trail, the oldest first, and a channel that is closed when there is another one. They are those in the file: also of
// the process before, as far as its last file has them. The caller owns what it gets.
func (t *Trail) Recent() (records []Record, changed <-chan struct{}) { return t.recent.read() }

// Lost returns how many records were dropped since the trail was opened: it says so itself, as soon as it can be written again.
func (t *Trail) Lost() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.allLost
}

func (t *Trail) run() {
	defer close(t.ended)
	note, say := time.NewTimer(headInterval), time.NewTimer(sayInterval)
	defer note.Stop()
	defer say.Stop()
	for {
		select {
		case e := <-t.queue:
			t.write(e)
			t.noteSoon(note)
		case <-note.C:
			if t.noting = !t.saveHead(); t.noting { // else the end would be missing until another record comes
				note.Reset(againTime)
			}
		case <-t.counted:
			say.Reset(sayInterval)
		case <-say.C: // nobody may ask for anything else for days
			t.sayLost()
			t.noteSoon(note)
		case <-t.closing:
			t.finish()
			return
		}
	}
}

// noteSoon lets the end be noted, if it is not about to be.
func (t *Trail) noteSoon(note *time.Timer) {
	if !t.noting {
		t.noting = true
		note.Reset(headInterval)
	}
}

// count lets the trail say soon what has no record: from the first on, so that others do not delay that.
func (t *Trail) count(of uint64) {
	if of > 1 {
		return
	}
	select {
	case t.counted <- struct{}{}:
	default:
	}
}

// finish writes what is in the queue, and that this was all.
func (t *Trail) finish() {
	for len(t.queue) > 0 {
		t.write(<-t.queue)
	}
	t.sayLost()
	t.append(Record{Event: EventStopped, Time: time.Now()})
	t.saveHead()
}

// admit reports whether a denied request of somebody without a login has a record. Otherwise it is counted.
func (t *Trail) admit(at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.strangers.Spend(at, struct{}{}, deniedPerMinute) == 0 {
		return true
	}
	t.refused++
	t.count(t.refused)
	return false
}

// lose counts a record that was dropped.
func (t *Trail) lose() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost++
	t.allLost++
	t.count(t.lost)
}

// write writes a record, and says before it how many were lost.
func (t *Trail) write(e entry) {
	if e.done != nil {
		defer close(e.done)
	}
	t.follow()
	t.sayLost()
	if !t.append(e.record) {
		t.lose()
	}
}

// sayLost says in the trail how many records were lost since it said so last, and how many requests were denied without one.
func (t *Trail) sayLost() {
	t.say(EventLost, &t.lost)
	t.say(EventDenied, &t.refused)
}

func (t *Trail) say(event string, counter *uint64) {
	t.mu.Lock()
	count := *counter
	t.mu.Unlock()
	if count > 0 && t.append(Record{Event: event, Count: count, Time: time.Now()}) {
		t.mu.Lock()
		*counter -= count
		t.mu.Unlock()
	}
}

// append writes one record, and reports whether it is in the file. With Block it tries until Close.
func (t *Trail) append(r Record) bool {
	r.Version, r.Number, r.Node, r.Previous = Version, t.number+1, t.o.Node, t.last
	r.Time = r.Time.UTC()
	r.bound()
	line, err := t.sealer.seal(r)
	if err != nil {
		t.o.Log.Error("bowline: a record of the audit trail cannot be encoded", "error", err)
		return false
	}
	for {
		if err = t.appendLine(line); err == nil {
			break
		}
		if !t.broken {
			t.o.Log.Error("bowline: the audit trail cannot be written", "error", err)
		}
		if t.broken = true; !t.o.Block || t.isClosing() {
			return false
		}
	}
	t.broken = false
	t.number, t.last = r.Number, hashOf(line)
	t.recent.add(r)
	t.o.Written(r)
	if t.o.MaxSize > 0 && t.size > t.o.MaxSize {
		t.rotate()
	}
	return true
}

// isClosing waits a moment, and reports whether the trail is being closed.
func (t *Trail) isClosing() bool {
	again := time.NewTimer(againTime)
	defer again.Stop()
	select {
	case <-t.closing:
		return true
	case <-again.C:
		return false
	}
}

// appendLine appends a line, or nothing: half of it would be taken for a record that was changed.
func (t *Trail) appendLine(line []byte) error {
	if t.size == 0 && t.first == 0 {
		t.first = t.number + 1
	}
	line = append(line, '\n') // in the buffer of the sealer, which has room for it
	n, err := t.file.WriteAt(line, t.size)
	if err != nil {
		if n > 0 {
			err = errors.Join(err, t.file.Truncate(t.size))
		}
		return err
	}
	t.size += int64(n)
	return nil
}

// A head is what is known of the newest record, so that a trail that was cut is noticed.
type head struct {
	Number uint64 `json:"n"`
	Hash   string `json:"hash"`
	MAC    string `json:"mac"`
}

func (h *head) mac(key []byte) []byte { return mac(key, fmt.Appendf(nil, "%d %s", h.Number, h.Hash)) }

// saveHead notes the newest record, and reports whether that is done.
func (t *Trail) saveHead() bool {
	h := head{Number: t.number, Hash: t.last}
	h.MAC = hex.EncodeToString(h.mac(t.o.Key))
	text, err := json.Marshal(h)
	if err == nil { // a process that is killed leaves this head or the one before, and never half of one
		err = os.WriteFile(t.path+headEnd+".new", append(text, '\n'), 0o600)
	}
	if err == nil {
		err = os.Rename(t.path+headEnd+".new", t.path+headEnd)
	}
	if err != nil && !t.behind {
		t.o.Log.Error("bowline: the end of the audit trail cannot be noted", "error", err)
	}
	t.behind = err != nil
	return err == nil
}

// rotate begins a new file. The chain goes on in it.
func (t *Trail) rotate() {
	next, err := private.Open(t.path+".new", os.O_CREATE|os.O_RDWR|os.O_TRUNC)
	if err == nil {
		err = errors.Join(os.Rename(t.path, t.old(t.first)), os.Rename(t.path+".new", t.path))
	}
	if err != nil {
		t.o.Log.Error("bowline: the audit trail goes on in the same file", "error", err)
		t.o.MaxSize *= 2
		return
	}
	_ = t.file.Close() // everything is written
	t.use(next)
	t.forget()
}

// use makes another file that of the records to come.
func (t *Trail) use(file *os.File) {
	t.file, t.size, t.first = file, 0, 0
	t.place = placeOf(file)
}

// follow goes on at the path, if the file has gone from there. The next record says so.
func (t *Trail) follow() {
	event, where := Record{Event: EventMoved, Time: time.Now()}, t.place.look(t.path, t.size, time.Now(), t.o.Log)
	if where == inPlace {
		return
	}
	if t.first > 0 {
		event.Count = t.number + 1 - t.first
	}
	if where == moved {
		file, err := private.Open(t.path, os.O_CREATE|os.O_RDWR)
		if err != nil {
			t.o.Log.Error("bowline: the audit trail goes on in the file that was moved", "error", err)
			return
		}
		_ = t.file.Close() // everything is written
		t.use(file)
	}
	t.size, t.first = 0, 0
	t.o.Log.Warn("bowline: somebody has moved or emptied the audit trail, which goes on at its path", "path", t.path, "records", event.Count)
	t.append(event)
}

func (t *Trail) old(first uint64) string { return fmt.Sprintf("%s.%012d", t.path, first) }

// Files returns the files of a trail, the oldest first.
func Files(path string) ([]string, error) {
	old, err := oldFiles(path)
	return append(old, path), err
}

// oldFiles returns the files that were full, the oldest first. What else is beside a trail, such as a copy of it, has no name of that form.
func oldFiles(path string) (old []string, err error) {
	all, err := os.ReadDir(filepath.Dir(path))
	for _, entry := range all {
		if number, of := strings.CutPrefix(entry.Name(), filepath.Base(path)+"."); of && oldNumber.MatchString(number) {
			old = append(old, path+"."+number)
		}
	}
	return old, err
}

var oldNumber = regexp.MustCompile(`^[0-9]{12}$`)

// forget removes the oldest files beyond those that are to be kept.
func (t *Trail) forget() {
	old, err := oldFiles(t.path)
	for i := 0; err == nil && t.o.Keep > 0 && i < len(old)-t.o.Keep; i++ {
		err = os.Remove(old[i])
	}
	if err != nil {
		t.o.Log.Error("bowline: an old file of the audit trail stays", "error", err)
	}
}

// open finds the end of the chain, and begins a new part of it.
func (t *Trail) open() (err error) {
	if t.lock, err = private.Open(t.path+".lock", os.O_CREATE|os.O_RDWR); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = t.lock.Close()
		}
	}()
	if held, err := private.TryLock(t.lock); err != nil || !held {
		return errors.Join(err, fmt.Errorf("another process writes to %s: each needs a file of its own, also each node of a cluster", t.path))
	}
	file, err := private.Open(t.path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return err
	}
	t.use(file)
	events, err := t.resume(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	for _, event := range append(events, Record{Event: EventStarted}) {
		event.Time = time.Now()
		if !t.append(event) {
			return errors.Join(errors.New("it cannot be written"), file.Close())
		}
	}
	t.saveHead()
	return nil
}

// resume reads the file to its end, or the one before if a new one was just begun. What is torn is set aside.
func (t *Trail) resume(file *os.File) (events []Record, err error) {
	torn, err := t.readAll(file)
	if err != nil {
		return nil, err
	}
	if len(torn) > 0 {
		if err := os.WriteFile(fmt.Sprintf("%s.torn-%d", t.path, t.number+1), torn, 0o600); err != nil {
			return nil, err
		}
		if err := t.file.Truncate(t.size); err != nil {
			return nil, err
		}
		events = []Record{{Event: EventTorn, Count: uint64(len(torn))}}
	}
	if t.size == 0 {
		if err := t.readNewestOld(); err != nil {
			return nil, err
		}
	}
	h, err := readHead(t.path, t.o.Key)
	switch {
	case err != nil && t.number == 0 && errors.Is(err, fs.ErrNotExist): // the trail begins
	case err != nil: // how many are missing nobody knows
		events = append(events, Record{Event: EventCut, Reason: "the newest record is not known: " + err.Error()})
	case h.Number > t.number:
		events = append(events, Record{Event: EventCut, Count: h.Number - t.number})
		t.number, t.last = h.Number, h.Hash
	}
	return events, nil
}

func (t *Trail) readAll(file *os.File) (torn []byte, err error) {
	lines := newLines(t.path, t.o.Key, file)
	for lines.next() {
		if t.first == 0 {
			t.first = lines.record.Number
		}
		t.number, t.last, t.size = lines.record.Number, hashOf([]byte(lines.text)), t.size+int64(len(lines.text))+1
		t.recent.add(lines.record)
	}
	return lines.torn, lines.err
}

// readNewestOld finds the end of the chain in the file before: this one has no record yet.
func (t *Trail) readNewestOld() error {
	old, err := oldFiles(t.path)
	if err != nil || len(old) == 0 {
		return err
	}
	file, err := private.Open(old[len(old)-1], os.O_RDONLY)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = t.readAll(file)
	t.size, t.first = 0, 0
	return err
}
