package streamable

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// Detach ends the GET stream in use at once, even if its client takes nothing. The session goes on: what is sent then comes on the
// next stream. The link says since when the client has the stream that it has.
//
// Guarantees: G-0033.1
func TestDetach(t *testing.T) {
	inBubble(t, HandlerOptions{}, false, func(t *testing.T, b *bench) {
		session, p := b.initialize(), b.peer(t, 0)
		link := p.link.(transport.Detacher)
		want := func(what string, since time.Time) {
			t.Helper()
			if got := link.ListensSince(); !got.Equal(since) {
				t.Errorf("%s: the client listens since %v, want %v", what, got, since)
			}
		}
		want("before the first stream", time.Time{})
		link.Detach() // without effect
		pass(time.Minute)
		first, served := b.serveStuck("GET", "", session)
		close(first.released) // it reads what comes first
		synctest.Wait()
		first.released = make(chan struct{})
		since := time.Now()
		pass(time.Second)
		want("with a stream", since)
		p.mustSend(t, transport.Outbound{Frame: notice(1)})
		synctest.Wait() // until it writes
		link.Detach()
		<-served
		if took := time.Since(since); took != time.Second {
			t.Errorf("the stream ended after %v, want at once", took-time.Second)
		}
		want("after Detach", time.Time{})
		p.mustSend(t, transport.Outbound{Frame: notice(2)})
		ctx, leave := context.WithCancel(t.Context())
		second, done := b.serve(ctx, "GET", "", session, "Last-Event-ID: 0-0")
		want("with another stream", time.Now())
		leave()
		<-done
		if got := second.Body.String(); !strings.Contains(got, noticeLine(1)) || !strings.Contains(got, noticeLine(2)) {
			t.Errorf("the next stream got %q, want both messages", got)
		}
	})
}
