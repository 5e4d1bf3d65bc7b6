package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// ended stores events of a stream that has ended, and returns the text in which they
// are replayed.
func (b *bench) ended(session string, stream transport.Stream, events, size int) string {
	var text bytes.Buffer
	for n := range events {
		e := StoredEvent{Stream: stream, Index: uint64(n + 1), Last: n == events-1, Data: fmt.Appendf(nil, `{"n":%d,"pad":%q}`, n, strings.Repeat("x", size))}
		b.handler.options.EventStore.Append(strings.TrimPrefix(session, "Mcp-Session-Id: "), e)
		fmt.Fprintf(&text, "id: %d-%d\ndata: %s\n\n", stream, n+1, e.Data)
	}
	return text.String()
}

func (b *bench) held() int { return b.handler.unread.Small.Held() + b.handler.unread.Large.Held() }

// A client that resumes a long stream and does not read uses one page of it, charged to
// the client, however often it reconnects. A client that reads gets everything.
//
// Guarantees: G-0033.2, G-0038.6
func TestReplayHoldsOnePage(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		want := b.ended(session, 9, 3000, 1000)
		for range 3 {
			stuck, done := b.serveStuck("GET", "", session, "Last-Event-ID: 9-0")
			if held := b.held(); held < pageSize/2 || held > pageSize {
				t.Errorf("a replay uses %d bytes", held)
			}
			w, all := b.serve(t.Context(), "GET", "", session, "Last-Event-ID: 9-0")
			<-all
			if got := w.Body.String(); got != want {
				t.Errorf("the later request got %d bytes, want %d", len(got), len(want))
			}
			<-done
			if !stuck.isInterrupted || b.held() != 0 {
				t.Errorf("got interrupted: %t and %d bytes charged at the end, want true and 0", stuck.isInterrupted, b.held())
			}
		}
	})
}

// All replays of a client share what one client may leave unread. A replay without room
// is aborted, and its client reconnects.
//
// Guarantees: G-0038.6
func TestReplaysOfOneClientAreBounded(t *testing.T) {
	const most = 16 * pageSize
	inBubble(t, HandlerOptions{MaxUnread: most}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		var stuck []*stuckWriter
		var served []chan struct{}
		for n := range transport.Stream(10) {
			b.ended(session, 9+n, 300, 1000)
			w, done := b.serveStuck("GET", "", session, fmt.Sprintf("Last-Event-ID: %d-0", 9+n))
			stuck, served = append(stuck, w), append(served, done)
			if b.held() > most/2 {
				t.Fatalf("got %d bytes held for one client, want at most %v", b.held(), most/2)
			}
		}
		aborted := 0
		for n, w := range stuck {
			close(w.released)
			if <-served[n]; w.aborted {
				aborted++
			}
		}
		if aborted != 4 || b.held() != 0 {
			t.Errorf("%d of 10 replays were aborted, and %d bytes are held", aborted, b.held())
		}
	})
}

// The cost of replaying many small events is proportional to their text, not to its
// square.
//
// Guarantees: G-0038.6
func TestReplayOfManySmallEvents(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		want := b.ended(session, 9, 20_000, 10)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w, done := b.serve(t.Context(), "GET", "", session, "Last-Event-ID: 9-0")
		<-done
		if runtime.ReadMemStats(&after); w.Body.String() != want {
			t.Errorf("got %d bytes, want %d", w.Body.Len(), len(want))
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 {
			t.Errorf("%d bytes were allocated for a text of %d bytes, want less", allocated, len(want))
		}
	})
}

// unhurried is an EventStore that gives way to other goroutines while it reads.
type unhurried struct{ EventStore }

func (s unhurried) After(ctx context.Context, session string, stream transport.Stream, index uint64, bytes int) ([]StoredEvent, error) {
	for range 100 {
		runtime.Gosched()
	}
	return s.EventStore.After(ctx, session, stream, index, bytes)
}

// The first message for a listener may come at any time while it replays older ones.
// The race detector sees most of what can go wrong.
func TestFirstMessageDuringAReplay(t *testing.T) {
	inBubble(t, HandlerOptions{EventStore: unhurried{new(MemoryStore)}}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		p := b.peer(t, 0)
		older := `{"jsonrpc":"2.0","method":"m","params":{"pad":"` + strings.Repeat("x", pageSize) + `"}}` // a page
		for range 3 {
			p.mustSend(t, transport.Outbound{Frame: []byte(older)})
		}
		for round := range 30 {
			ctx, leave := context.WithCancel(t.Context())
			sent := make(chan error)
			go func() {
				for range 10 * round {
					runtime.Gosched()
				}
				sent <- p.send(t, transport.Outbound{Frame: notice(round)})
			}()
			w, done := b.serve(ctx, "GET", "", session, "Last-Event-ID: 0-0")
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			leave()
			<-done
			if text := w.Body.String(); strings.Count(text, older) != 3 || strings.Count(text, noticeLine(round)) != 1 {
				t.Errorf("round %d: %d bytes", round, len(text))
			}
		}
	})
}

// Close interrupts a replay of a stream that has ended, also one that has replaced another.
//
// Guarantees: G-0022.15
func TestCloseInterruptsAReplay(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		b.ended(session, 9, 10, 10)
		_, first := b.serveStuck("GET", "", session, "Last-Event-ID: 9-0")
		stuck, done := b.serveStuck("GET", "", session, "Last-Event-ID: 9-0")
		<-first
		if err := b.peer(t, 0).link.Close(0); err != nil || !stuck.isInterrupted {
			t.Errorf("Close returned %v, interrupted: %t", err, stuck.isInterrupted)
		}
		<-done
	})
}

// A client that comes back for a stream whose last message was sent gets it, and the end, although its first connection still blocks.
//
// Guarantees: G-0033.1
func TestAResumedStreamThatIsOverEnds(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		_, first := b.serveStuck("POST", holdBody, session)
		p := b.peer(t, 0)
		stream := p.newest()
		p.mustSend(t, transport.Outbound{Stream: stream, Frame: notice(0)})
		synctest.Wait() // a write is in progress
		p.mustSend(t, answering(stream, heldAnswer))
		ctx, leave := context.WithTimeout(t.Context(), time.Minute)
		defer leave()
		w, done := b.serve(ctx, "GET", "", session, fmt.Sprintf("Last-Event-ID: %d-0", stream))
		<-done
		if <-first; ctx.Err() != nil || strings.Count(w.Body.String(), heldAnswer) != 1 {
			t.Errorf("got %q, and %v; want the answer and the end at once", w.Body, ctx.Err())
		}
	})
}

// A GET stream that replays events ends when its client opens another.
//
// Guarantees: G-0033.2
func TestReplayOfAListenerThatIsReplaced(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		p := b.peer(t, 0)
		for n := range 3 {
			p.mustSend(t, transport.Outbound{Frame: notice(n)})
		}
		stuck, first := b.serveStuck("GET", "", session)
		ctx, leave := context.WithCancel(t.Context())
		second, done := b.serve(ctx, "GET", "", session)
		if <-first; !stuck.isInterrupted {
			t.Error("the first stream continues, want it to end")
		}
		leave()
		if <-done; !strings.Contains(second.Body.String(), noticeLine(2)) {
			t.Errorf("the second stream got %q", second.Body)
		}
	})
}

// A stream that was given up because its client does not read cannot be resumed before
// its connection has ended.
//
// Guarantees: G-0033.4
func TestStreamThatWasGivenUpIsNotResumed(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		stuck, served := b.serveStuck("POST", holdBody, session)
		stuck.isDeaf = true
		p := b.peer(t, 0)
		frame := []byte(strings.Repeat("1", 1<<20))
		sent := 0
		var err error
		for ; err == nil; sent++ {
			err = p.send(t, transport.Outbound{Stream: 2, Frame: frame})
			synctest.Wait()
		}
		if !errors.Is(err, transport.ErrNoRoute) {
			t.Fatal(err)
		}
		ctx, leave := context.WithTimeout(t.Context(), time.Minute)
		defer leave()
		w, done := b.serve(ctx, "GET", "", session, fmt.Sprintf("Last-Event-ID: 2-%d", sent-1))
		if <-done; w.Code != 410 {
			t.Errorf("got the response %d %.100q, want 410", w.Code, w.Body)
		}
		close(stuck.released)
		<-served
	})
}

// If Main was busy and the client opens another GET stream, Writable is called.
func TestBusyListenerThatIsReplaced(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		stuck, first := b.serveStuck("GET", "", session)
		stuck.isDeaf = true
		p := b.peer(t, 0)
		var err error
		for err == nil {
			err = p.send(t, transport.Outbound{Frame: []byte(strings.Repeat("1", 1<<20))})
		}
		if !errors.Is(err, transport.ErrBusy) {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		_, done := b.serve(ctx, "GET", "", session)
		if n := p.count(func(p *peer) int { return p.writable }); n != 1 {
			t.Errorf("Writable was called %d times, want 1", n)
		}
		p.mustSend(t, transport.Outbound{Frame: notice(1)})
		close(stuck.released)
		<-first
		leave()
		<-done
	})
}

// The comment on missing messages counts them all, also over several pages, but for those numbers that an earlier process may not have used.
func TestCommentsOnGaps(t *testing.T) {
	page := func(indexes ...uint64) (events []StoredEvent) {
		for _, index := range indexes {
			events = append(events, StoredEvent{Index: index})
		}
		return events
	}
	const moved = ": messages may be missing, because the session has moved\n\n"
	for _, c := range []struct {
		name    string
		used    uint64
		pages   [][]StoredEvent
		head    uint64
		text    string
		missing uint64
	}{
		{"none", 0, [][]StoredEvent{page(1, 2), page(3)}, 3, "", 0},
		{"two gaps", 0, [][]StoredEvent{page(3, 4, 8), page(10)}, 10, ": 5 messages are not kept any more\n\n: 1 messages are not kept any more\n\n", 6},
		{"all", 0, [][]StoredEvent{nil}, 4, ": 4 messages are not kept any more\n\n", 4},
		{"numbers of an earlier process", 10, [][]StoredEvent{page(3, 4, 11)}, 11, moved, 0},
		{"at its begin only", 4, [][]StoredEvent{page(3, 4, 5)}, 5, moved, 0},
		{"of both", 4, [][]StoredEvent{page(3, 4, 8)}, 8, moved + ": 3 messages are not kept any more\n\n", 3},
	} {
		l := new(serverLink)
		if c.used > 0 {
			l.saved = &savedSession{used: c.used}
		}
		n := &numbering{to: &response{link: l}}
		var text []byte
		for _, p := range c.pages {
			text = n.noteGap(text, p, c.head)
			if len(p) > 0 {
				n.at = p[len(p)-1].Index
			}
		}
		if string(text) != c.text || n.missing != c.missing {
			t.Errorf("%s: got %q and %d missing, want %q and %d", c.name, text, n.missing, c.text, c.missing)
		}
	}
}
