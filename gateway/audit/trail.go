package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
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
	return errors.Join(t.file.Close(), private.Unlock(t.lock))
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
	t.sayLost()
	if !t.append(e.record) {
		t.lose()
	}
}

// sayLost says in the trail how many records were lost since it said so last, and how many requests were denied without one. It looks at the path first: whatever is
// written next must not go to a file that a program has moved, or behind what it has cut off.
func (t *Trail) sayLost() {
	t.follow()
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
