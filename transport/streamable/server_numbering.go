package streamable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
)

// An eventID identifies an event of a session by its stream and its index. Index 0 is
// the position before the first event.
type eventID struct {
	stream transport.Stream
	index  uint64
}

const longestEventID = "18446744073709551615-18446744073709551615"

func (id eventID) String() string {
	text := strconv.AppendUint(make([]byte, 0, len(longestEventID)), uint64(id.stream), 10)
	return string(strconv.AppendUint(append(text, '-'), id.index, 10))
}

// parseEventID accepts only what String returns, so that an id has one spelling.
func parseEventID(text string) (eventID, bool) {
	stream, index, _ := strings.Cut(text, "-")
	s, err := strconv.ParseUint(stream, 10, 64)
	i, err2 := strconv.ParseUint(index, 10, 64)
	id := eventID{transport.Stream(s), i}
	return id, err == nil && err2 == nil && id.String() == text
}

// wantsInitialID reports whether clients of a revision expect an id before the first event.
// Clients of earlier revisions would try to decode its empty data.
func wantsInitialID(version string) bool { return revision.Has(version, revision.InitialEventID) }

// A numbering gives ids to the events of one response, and writes stored events on it. The id of an
// event is its index in the event store, whoever writes it: at follows the frames that are taken from
// the queue, and the queue begins where the replay ends. If both lost count of each other, a client
// would resume at the wrong event and miss messages without knowing it.
// Only the goroutine of the response uses it. A nil numbering gives no ids.
type numbering struct {
	to        *response
	stream    transport.Stream
	at        uint64 // the index of the last event that was taken from the queue
	initialID bool   // the client expects an id before the first event
	opened    bool
	retry     time.Duration
	main      *mainStream // Main; nil for the stream of a request

	missing uint64 // how many events a replay has left out
}

// taken records that so many frames will be written next. The caller holds link.mu.
func (n *numbering) taken(frames int) {
	if n == nil {
		return
	}
	if n.at += uint64(frames); n.main != nil {
		n.main.taken = n.at
	}
}

// opening returns the first event, with room for the frames that were taken already and
// follow it. It has no message, and its id says from where the client can resume the stream.
func (n *numbering) opening(taken []transport.Outbound) []byte {
	if n == nil || !n.initialID || n.opened {
		return nil
	}
	n.opened = true
	text := make([]byte, 0, openingText+eventsText(taken))
	return eventstream.Append(text, eventstream.Event{ID: eventID{n.stream, n.at - uint64(len(taken))}.String(), Retry: n.retry})
}

func (n *numbering) isOpened() bool { return n != nil && n.opened }

// reconnectEvent returns an event that says when the client should reconnect.
func (n *numbering) reconnectEvent(after time.Duration) []byte {
	return eventstream.Append(nil, eventstream.Event{ID: eventID{n.stream, n.at}.String(), Retry: after})
}

// appendEvents appends the frames that were taken last, as events.
func (n *numbering) appendEvents(text []byte, frames []transport.Outbound) []byte {
	text = slices.Grow(text, eventsText(frames))
	for i, o := range frames {
		var id eventID
		if n != nil {
			id = eventID{n.stream, n.at - uint64(len(frames)-i-1)}
		}
		text = n.appendEvent(text, id, o.Frame)
	}
	return text
}

const (
	// eventText is the maximum length of an event's text in addition to its data.
	eventText = len("id: " + longestEventID + "\ndata: \n\n")

	// openingText is that of the first event.
	openingText = eventText + len("retry: 9223372036854775\n")
)

// eventsText returns the maximum length of the text of frames as events.
func eventsText(frames []transport.Outbound) (size int) {
	for _, o := range frames {
		size += eventText + len(o.Frame)
	}
	return size
}

func (n *numbering) appendEvent(text []byte, id eventID, frame []byte) []byte {
	e := eventstream.Event{Data: oneLine(frame)}
	if n != nil {
		e.ID = id.String()
	}
	return eventstream.Append(text, e)
}

// storedEvent returns a frame as the event of a stream that is kept for its client.
func (l *serverLink) storedEvent(stream transport.Stream, index uint64, o transport.Outbound) StoredEvent {
	return StoredEvent{Stream: stream, Index: index, Last: o.Last, Data: oneLine(o.Frame), Client: cmp.Or(l.key.Identity, l.key.Network)}
}

// pageSize is how many bytes of stored events a replay holds at a time. A longer event
// is a page by itself.
const pageSize = smallSize

// errPurged is the reason why a replay breaks off.
var errPurged = errors.New("streamable: the events of the stream are not kept any more")

// A kept describes the stored events of a stream after a given event.
type kept struct {
	head uint64 // the index of the last event that follows without a gap
	last bool   // the stream ended with that event
	gap  bool   // there are later events, and some before them are missing
}

// kept examines the stored events that follow. It holds one page at a time.
func (n *numbering) kept(ctx context.Context) (k kept, err error) {
	// Events are read twice, here and by replay, so that the status is known before anything is
	// written.
	for k.head = n.at; !k.last && !k.gap; {
		page, err := n.page(ctx, k.head)
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

// page returns the next stored events of the stream after an index.
func (n *numbering) page(ctx context.Context, index uint64) ([]StoredEvent, error) {
	l := n.to.link
	events, err := l.events.After(ctx, l.session, n.stream, index, pageSize)
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
func (n *numbering) replay(ctx context.Context, head uint64, gaps bool) error {
	text := n.opening(nil)
	for n.at < head {
		page, err := n.page(ctx, n.at)
		if err != nil {
			return err
		}
		// What is stored after head was queued for this response as well.
		page = upTo(head, page)
		if gaps {
			text = n.noteGap(text, page, head)
		}
		if gaps && len(page) == 0 {
			break
		}
		if !gaps && (len(page) == 0 || !follow(page, n.at)) {
			return errPurged
		}
		if err := n.writePage(text, page); err != nil {
			return err
		}
		text = nil
	}
	if len(text) == 0 {
		return nil
	}
	return n.to.writeEvents(nil, text)
}

// noteGap adds a comment to the stream which says how many events are missing before a
// page, or before head if there is no further page. It also counts them. Nobody knows which of
// the numbers an earlier process has used.
func (n *numbering) noteGap(text []byte, page []StoredEvent, head uint64) []byte {
	used, at := n.to.link.saved.numbersUsed(), n.at
	missing, perhaps := uint64(0), false
	pass := func(next uint64) {
		perhaps = perhaps || at < used && next > at+1
		missing += max(next, max(at, used)+1) - max(at, used) - 1
		at = next
	}
	for _, e := range page {
		pass(e.Index)
	}
	if len(page) == 0 {
		pass(head + 1)
	}
	if perhaps {
		text = append(text, ": messages may be missing, because the session has moved\n\n"...)
	}
	if missing == 0 {
		return text
	}
	n.missing += missing
	return fmt.Appendf(text, ": %d messages are not kept any more\n\n", missing)
}

// writePage writes a text and then events. They count for their client until they are
// written.
func (n *numbering) writePage(text []byte, page []StoredEvent) error {
	link := n.to.link
	pool, bytes := poolOfPage(link.unread, link.key.Client, page)
	// A client that lets many replays wait pays for them like for messages that it does not read.
	if !pool.Take(link.key.Client, bytes) {
		return ErrNotReading
	}
	defer pool.Give(link.key.Client, bytes)
	text = slices.Grow(text, bytes)
	for _, e := range page {
		n.at = e.Index
		text = n.appendEvent(text, eventID{n.stream, e.Index}, e.Data)
	}
	return n.to.writeEvents(nil, text)
}

// replayEnded writes the stored events of a stream that has ended. A later request for
// the same stream ends it.
func (n *numbering) replayEnded(ctx context.Context, head uint64) *refusal {
	if !n.beginReplay() {
		return n.to.link.refusal(jsonrpc.ID{})
	}
	defer n.endReplay()
	n.to.begin()
	return abortedBy(n.replay(ctx, head, false))
}

// beginReplay replaces another replay of the stream. It reports false if the link has
// ended.
// So a stream has one replay at a time, however often its client asks.
func (n *numbering) beginReplay() bool {
	l := n.to.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending != nil {
		return false
	}
	rare := l.rare()
	if rare.replays == nil {
		rare.replays = make(map[transport.Stream]*response)
	}
	if old := rare.replays[n.stream]; old != nil {
		old.cut = errReplaced
		old.interrupt()
	}
	rare.replays[n.stream] = n.to
	return true
}

// endReplay forgets the replay, unless another one has replaced it.
func (n *numbering) endReplay() {
	l := n.to.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if rare := l.rare(); rare.replays[n.stream] == n.to {
		delete(rare.replays, n.stream)
	}
}
