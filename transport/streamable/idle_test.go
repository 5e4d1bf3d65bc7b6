package streamable

import (
	"errors"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A session has memory for a GET stream only once its client opens one, or a notification
// is stored for it. It has memory for its end only once it ends.
func TestIdleSessionHasNothingForAStreamOrItsEnd(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	begin := func() (string, *serverLink) {
		session := s.initialize(protocol.LatestLegacy)
		link := s.handler.table.find(session[len("Mcp-Session-Id: "):])
		s.handler.table.leave(link)
		return session, link
	}
	has := func(when string, link *serverLink, main, ending bool) {
		t.Helper()
		link.mu.Lock()
		defer link.mu.Unlock()
		if (link.main != nil) != main || (link.ending != nil) != ending {
			t.Errorf("%s: it has memory for a stream: %t, for its end: %t, want %t and %t", when, link.main != nil, link.ending != nil, main, ending)
		}
	}
	_, silent := begin()
	has("initialized", silent, false, false)
	ask := transport.Outbound{Frame: notice(0), Route: transport.Route{Kind: jsonrpc.KindRequest, Method: "ping"}}
	if err := silent.Send(ask); !errors.Is(err, transport.ErrNoRoute) {
		t.Errorf("a request without a stream: %v, want %v", err, transport.ErrNoRoute)
	}
	has("after a request to the client", silent, false, false)
	if err := silent.Send(transport.Outbound{Frame: notice(0), Route: transport.Route{Kind: jsonrpc.KindNotification}}); err != nil {
		t.Errorf("a notification: %v, want no error", err)
	}
	has("after a notification", silent, true, false)
	session, listening := begin()
	s.listen("GET", "", header{session, "Accept: text/event-stream"})
	has("with a GET stream", listening, true, false)
	_, closed := begin()
	if err := closed.Close(0); err != nil {
		t.Error(err)
	}
	has("closed", closed, false, true)
}
