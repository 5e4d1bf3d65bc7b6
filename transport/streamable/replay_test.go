package streamable

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// ended keeps events of a stream that has ended, and returns them as they are replayed.
func (b *bench) ended(session string, stream transport.Stream, events, size int) string {
	var text bytes.Buffer
	for n := range events {
		e := StoredEvent{Stream: stream, Index: uint64(n + 1), Last: n == events-1, Data: fmt.Appendf(nil, `{"n":%d,"pad":%q}`, n, strings.Repeat("x", size))}
		b.handler.options.EventStore.Append(strings.TrimPrefix(session, "Mcp-Session-Id: "), e)
		fmt.Fprintf(&text, "id: %d-%d\ndata: %s\n\n", stream, n+1, e.Data)
	}
	return text.String()
}

func (b *bench) held() int { return b.handler.unread.small.held + b.handler.unread.large.held }

// A client that comes back for a long stream and does not read holds one page of it,
// which is charged to it, however often it comes back. One that reads gets all.
//
// Guarantees: G-0033.2, G-0038.6
func TestReplayHoldsOnePage(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		want := b.ended(session, 9, 3000, 1000)
		for range 3 {
			stuck, done := b.serveStuck("GET", "", session, "Last-Event-ID: 9-0")
			if held := b.held(); held < pageSize/2 || held > pageSize {
				t.Errorf("a replay holds %d bytes", held)
			}
			w, all := b.serve(t.Context(), "GET", "", session, "Last-Event-ID: 9-0")
			<-all
			if got := w.Body.String(); got != want {
				t.Errorf("the later request brings %d bytes, want %d", len(got), len(want))
			}
			<-done
			if !stuck.isInterrupted || b.held() != 0 {
				t.Errorf("interrupted: %t, %d bytes are charged at the end", stuck.isInterrupted, b.held())
			}
		}
	})
}

// All replays of a client share what one client may leave unread. One that is refused
// room is aborted, and its client comes back.
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
			if b.held() > most/4 {
				t.Fatalf("%d bytes are held for one client", b.held())
			}
		}
		aborted := 0
		for n, w := range stuck {
			close(w.released)
			if <-served[n]; w.aborted {
				aborted++
			}
		}
		if aborted != 6 || b.held() != 0 {
			t.Errorf("%d of 10 were aborted, %d bytes are held", aborted, b.held())
		}
	})
}

// A stream of many small events costs as much as its text, not its square.
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
			t.Errorf("%d bytes came, want %d", w.Body.Len(), len(want))
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 {
			t.Errorf("%d bytes were allocated for %d", allocated, len(want))
		}
	})
}

// Close interrupts a replay of a stream that has ended.
//
// Guarantees: G-0022.15
func TestCloseInterruptsAReplay(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session := b.initialize()
		b.ended(session, 9, 10, 10)
		stuck, done := b.serveStuck("GET", "", session, "Last-Event-ID: 9-0")
		if err := b.peer(t, 0).link.Close(0); err != nil || !stuck.isInterrupted {
			t.Errorf("Close returned %v, interrupted: %t", err, stuck.isInterrupted)
		}
		<-done
	})
}
