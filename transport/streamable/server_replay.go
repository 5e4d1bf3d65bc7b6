package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// pageSize is how many bytes of stored events a replay holds at a time. A longer event
// is a page by itself.
const pageSize = smallSize

// errPurged is the reason why a replay breaks off.
var errPurged = errors.New("streamable: the events of the stream are not kept any more")

// errReplaced is the reason why a connection ends whose client has come back on another
// one.
var errReplaced = io.EOF

// A kept describes the stored events of a stream after a given event.
type kept struct {
	head uint64 // index of the last event that follows without a gap
	last bool   // the stream ended with that event
	gap  bool   // there are later events, and some before them are missing
}

// keptAfter examines the stored events after a given one. It holds one page at a time.
func (l *serverLink) keptAfter(ctx context.Context, id eventID) (k kept, err error) {
	for k.head = id.index; !k.last && !k.gap; {
		page, err := l.page(ctx, id.stream, k.head)
		if err != nil || len(page) == 0 {
			return k, err
		}
		if k.gap = !follow(page, k.head); !k.gap {
			e := page[len(page)-1]
			k.head, k.last = e.Index, e.Last
		}
	}
	return k, nil
}

// page returns the next stored events of a stream.
func (l *serverLink) page(ctx context.Context, stream transport.Stream, index uint64) ([]StoredEvent, error) {
	events, err := l.events.After(ctx, l.session, stream, index, pageSize)
	return pageOf(events, pageSize), err
}

// follow reports whether events follow an index without a gap.
func follow(events []StoredEvent, index uint64) bool {
	for n, e := range events {
		if e.Index != index+uint64(n)+1 {
			return false
		}
	}
	return true
}

// upTo leaves out the events after an index.
func upTo(head uint64, events []StoredEvent) []StoredEvent {
	for len(events) > 0 && events[len(events)-1].Index > head {
		events = events[:len(events)-1]
	}
	return events
}

// replay writes the stored events up to an index, page by page. If there is a gap and
// gaps is not set, it fails with errPurged.
func (r *response) replay(ctx context.Context, head uint64, gaps bool) error {
	text := r.numbered.opening(0)
	for r.numbered.at < head {
		page, err := r.link.page(ctx, r.numbered.stream, r.numbered.at)
		if err != nil {
			return err
		}
		page = upTo(head, page)
		if gaps {
			text = r.noteGap(text, page, head)
		}
		if gaps && len(page) == 0 {
			break
		}
		if !gaps && (len(page) == 0 || !follow(page, r.numbered.at)) {
			return errPurged
		}
		if err := r.writePage(text, page); err != nil {
			return err
		}
		text = nil
	}
	if len(text) == 0 {
		return nil
	}
	return r.writeEvents(nil, text)
}

// noteGap adds a comment to the stream which says how many events are missing before a
// page, or before head if there is no further page. It also counts them.
func (r *response) noteGap(text []byte, page []StoredEvent, head uint64) []byte {
	missing := head - r.numbered.at
	if len(page) > 0 {
		at := r.numbered.at
		missing = 0
		for _, e := range page {
			missing += e.Index - at - 1
			at = e.Index
		}
	}
	if missing == 0 {
		return text
	}
	r.missing += missing
	return fmt.Appendf(text, ": %d messages are not kept any more\n\n", missing)
}

// writePage writes a text and then events. They count for their client until they are
// written.
func (r *response) writePage(text []byte, page []StoredEvent) error {
	account, bytes := r.link.unread.accountOfPage(page)
	if !account.charge(r.link.key.client, bytes) {
		return ErrNotReading
	}
	defer account.credit(r.link.key.client, bytes)
	text = slices.Grow(text, bytes)
	for _, e := range page {
		r.numbered.at = e.Index
		text = r.numbered.appendEvent(text, eventID{r.numbered.stream, e.Index}, e.Data)
	}
	return r.writeEvents(nil, text)
}

// replayEnded writes the stored events of a stream that has ended. A later request for
// the same stream ends it.
func (l *serverLink) replayEnded(ctx context.Context, to *response, head uint64) *refusal {
	if !l.beginReplay(to) {
		return l.refusal(jsonrpc.ID{})
	}
	defer l.endReplay(to)
	to.begin()
	return abortedBy(to.replay(ctx, head, false))
}

func (l *serverLink) beginReplay(to *response) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reason != nil {
		return false
	}
	if l.replays == nil {
		l.replays = make(map[transport.Stream]*response)
	}
	stream := to.numbered.stream
	if old := l.replays[stream]; old != nil {
		old.cut = errReplaced
		old.interrupt()
	}
	l.replays[stream] = to
	return true
}

func (l *serverLink) endReplay(to *response) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stream := to.numbered.stream; l.replays[stream] == to {
		delete(l.replays, stream)
	}
}
