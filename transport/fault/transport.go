package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/transport"
)

// A Transport injects the faults of a Plan into the links of another transport.
type Transport struct {
	inner  transport.Transport
	plan   *Plan
	record record

	mu      sync.Mutex
	opens   int
	links   int
	present *link // the link that was opened last
}

// New wraps a transport. It panics if the plan contains an unknown fault.
func New(inner transport.Transport, plan Plan) *Transport {
	return &Transport{inner: inner, plan: plan.withDefaults()}
}

// Open implements transport.Transport.
func (t *Transport) Open(ctx context.Context) (transport.Link, error) {
	t.mu.Lock()
	t.opens++
	attempt := t.opens
	t.mu.Unlock()
	if attempt <= t.plan.FailOpens {
		t.record.add(Entry{Link: attempt, Kind: FailOpen})
		return nil, &InjectedError{Kind: FailOpen, Link: attempt}
	}
	inner, err := t.inner.Open(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.links++
	t.present = newLink(inner, t.plan, t.links, &t.record)
	return t.present, nil
}

// Log returns the faults so far, at most the first 4,096.
func (t *Transport) Log() Log { return t.record.read() }

// Break breaks the link that was opened last, between two frames, as if the peer had
// disappeared. It does not wait, and does nothing if no link was opened.
func (t *Transport) Break() {
	t.mu.Lock()
	present := t.present
	t.mu.Unlock()
	if present != nil {
		present.die(Entry{Link: present.number, Kind: Break})
	}
}

// Wrap wraps one link, for example that of an acceptor. In the plan its number is 1.
// Wrap panics if the plan contains an unknown fault.
func Wrap(inner transport.Link, plan Plan) *Link {
	wrapped := &Link{}
	wrapped.link = newLink(inner, plan.withDefaults(), 1, &wrapped.record)
	return wrapped
}

// A Link injects the faults of a Plan into another link.
type Link struct {
	*link
	record record
}

// Log returns the faults so far, at most the first 4,096.
func (l *Link) Log() Log { return l.record.read() }

// An InjectedError says that a Plan made an open fail, or broke a link or a stream.
type InjectedError struct {
	Kind      Kind
	Link      int // the number of the link, or of the failed open, counted from 1
	Direction Direction
	Frame     int // counted from 1; 0 when the fault hit no frame
}

func (e *InjectedError) Error() string {
	return "fault: " + Entry{Link: e.Link, Direction: e.Direction, Frame: e.Frame, Kind: e.Kind}.String()
}

func injected(e Entry) *InjectedError {
	return &InjectedError{Kind: e.Kind, Link: e.Link, Direction: e.Direction, Frame: e.Frame}
}

// An Entry is one fault that was injected.
type Entry struct {
	Link      int
	Direction Direction
	Frame     int // 0 when it hit no frame
	Kind      Kind
	Head      string // the first 80 bytes of the frame
}

func (e Entry) String() string {
	if e.Frame == 0 {
		return fmt.Sprintf("link %d: %s", e.Link, e.Kind)
	}
	text := fmt.Sprintf("link %d, %s frame %d: %s", e.Link, e.Direction, e.Frame, e.Kind)
	if e.Head != "" {
		text += " " + e.Head
	}
	return text
}

// A Log lists the faults that were injected, in order.
type Log []Entry

// String prints one entry per line.
func (l Log) String() string {
	var b strings.Builder
	for _, e := range l {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

// maxEntries bounds a record. Later entries are dropped.
const maxEntries = 4096

// headBytes is how many bytes of a frame an entry keeps.
const headBytes = 80

// A record collects a Log.
type record struct {
	mu  sync.Mutex
	log Log
}

// entry returns the entry for a frame.
func entry(link int, d Direction, frame int, kind Kind, bytes []byte) Entry {
	return Entry{Link: link, Direction: d, Frame: frame, Kind: kind, Head: string(bytes[:min(len(bytes), headBytes)])}
}

func (r *record) add(e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.log) < maxEntries {
		r.log = append(r.log, e)
	}
}

func (r *record) read() Log {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.log)
}
