package streamable

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A named acceptor answers every request with its name.
func named(name string) *acceptor {
	return newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
		if m.Method == "initialize" {
			respond(p, in, m)
		} else if m.Kind == jsonrpc.KindRequest {
			p.link.Send(answering(in.Stream, string(jsonrpc.AppendResult(nil, m.ID, []byte(`"`+name+`"`)))))
		}
	})
}

// choosing returns a site whose acceptor is chosen by a header.
func choosing(t *testing.T) (s *site, a, b *acceptor) {
	a, b = named("a"), named("b")
	s = newScriptedSite(t, HandlerOptions{Choose: func(r *http.Request) Acceptor {
		switch r.Header.Get("X-Server") {
		case "a":
			return a
		case "b":
			return b
		case "typed nil":
			return (*acceptor)(nil)
		default:
			return nil
		}
	}}, newAcceptor(respond))
	return s, a, b
}

// Guarantees: G-0028.4
func TestASessionStaysWithItsAcceptor(t *testing.T) {
	s, a, b := choosing(t)
	defer a.finish(t)
	defer b.finish(t)
	defer s.handler.Close(0)
	sessions := map[string]string{}
	for _, name := range []string{"a", "b"} {
		begun := s.post(initializeBody("2025-11-25"), "X-Server: "+name)
		sessions[name] = "Mcp-Session-Id: " + begun.header.Get("Mcp-Session-Id")
	}
	for name, session := range sessions {
		for _, other := range []string{"X-Server: a", "X-Server: b", "X-Server: none"} {
			if r := s.post(echoBody, session, other); r.body != `{"jsonrpc":"2.0","id":5,"result":"`+name+`"}` {
				t.Errorf("%s in a session of %s: %+v", other, name, r)
			}
		}
	}
	for _, nobody := range []string{"none", "typed nil"} {
		s.post(initializeBody("2025-11-25"), "X-Server: "+nobody).wantError(t, 404, -32600, "1")
	}
	if a.links() != 1 || b.links() != 1 || s.links() != 0 {
		t.Errorf("links: %d, %d, %d", a.links(), b.links(), s.links())
	}
}

// Guarantees: G-0028.4
func TestAModernMessageGoesToItsAcceptor(t *testing.T) {
	s, a, b := choosing(t)
	defer a.finish(t)
	defer b.finish(t)
	defer s.handler.Close(0)
	for range 2 {
		for _, name := range []string{"a", "b"} {
			if r := s.modern("echo", "", "X-Server: "+name); r.body != `{"jsonrpc":"2.0","id":7,"result":"`+name+`"}` {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
	for _, nobody := range []string{"none", "typed nil"} {
		s.modern("echo", "", "X-Server: "+nobody).wantError(t, 404, -32600, "7")
	}
	if a.links() != 1 || b.links() != 1 || s.links() != 0 {
		t.Errorf("links: %d, %d, %d", a.links(), b.links(), s.links())
	}
}

// The link of messages without a session is given up when it was idle for long
// enough, and made again when it is needed.
//
// Guarantees: G-0022.12, G-0028.4
func TestAnIdleModernLinkIsGivenUp(t *testing.T) {
	inBubble(t, HandlerOptions{SessionIdle: time.Minute}, false, func(t *testing.T, b *bench) {
		call := func() {
			t.Helper()
			if w, done := b.serve(t.Context(), "POST", modernBody("echo", ""), modernHeader("echo")...); w.Code != 200 {
				<-done
				t.Errorf("status %d", w.Code)
			}
		}
		call()
		pass(59 * time.Second)
		call()
		pass(59 * time.Second)
		synctest.Wait()
		if n := b.peer(t, 0).count(func(p *peer) int { return len(p.losses) }); n != 0 {
			t.Fatal("the link was given up early")
		}
		pass(2 * time.Second)
		if loss := b.peer(t, 0).awaitLoss(t); loss.Reason != transport.ErrSessionExpired {
			t.Errorf("lost for %v", loss.Reason)
		}
		call()
		if b.links() != 2 {
			t.Errorf("%d links", b.links())
		}
	})
}
