package streamable

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// named returns an acceptor that answers each request with its name.
func named(name string) *acceptor {
	return newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
		if m.Method == "initialize" {
			respond(p, in, m)
		} else if m.Kind == jsonrpc.KindRequest {
			p.link.Send(answering(in.Stream, string(jsonrpc.AppendResult(nil, m.ID, []byte(`"`+name+`"`)))))
		}
	})
}

// choosing returns a site where a header selects the acceptor.
func choosing(t *testing.T) (s *site, a, b *acceptor) {
	a, b = named("a"), named("b")
	s = newScriptedSite(t, HandlerOptions{Choose: func(r *http.Request) transport.Acceptor {
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

// A session stays with the acceptor that it began with, even if Choose returns another
// one later.
//
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
				t.Errorf("%s in a session of %s: got %+v, want %q", other, name, r, `{"jsonrpc":"2.0","id":5,"result":"`+name+`"}`)
			}
		}
	}
	for _, nobody := range []string{"none", "typed nil"} {
		s.post(initializeBody("2025-11-25"), "X-Server: "+nobody).wantError(t, 404, -32600, "1", "there is no such server")
	}
	if a.links() != 1 || b.links() != 1 || s.links() != 0 {
		t.Errorf("got %d, %d and %d links, want a.links() == 1, b.links() == 1 and s.links() == 0", a.links(), b.links(), s.links())
	}
}

// Each modern message goes to the acceptor that Choose returns for it.
//
// Guarantees: G-0028.4
func TestAModernMessageGoesToItsAcceptor(t *testing.T) {
	s, a, b := choosing(t)
	defer a.finish(t)
	defer b.finish(t)
	defer s.handler.Close(0)
	for range 2 {
		for _, name := range []string{"a", "b"} {
			if r := s.modern("echo", "", "X-Server: "+name); r.body != `{"jsonrpc":"2.0","id":7,"result":"`+name+`"}` {
				t.Errorf("%s: got %+v, want %q", name, r, `{"jsonrpc":"2.0","id":7,"result":"`+name+`"}`)
			}
		}
	}
	for _, nobody := range []string{"none", "typed nil"} {
		s.modern("echo", "", "X-Server: "+nobody).wantError(t, 404, -32600, "7", "there is no such server")
	}
	if a.links() != 1 || b.links() != 1 || s.links() != 0 {
		t.Errorf("got %d, %d and %d links, want a.links() == 1, b.links() == 1 and s.links() == 0", a.links(), b.links(), s.links())
	}
}

const echoBody = `{"jsonrpc":"2.0","id":5,"method":"echo","params":{"a":1}}`

// A request with several faults is refused for the first one in the order of the
// checks.
//
// Guarantees: G-0022.8
func TestRequestIsCheckedInOrder(t *testing.T) {
	s := newSite(t, HandlerOptions{
		MaxBody:        1000,
		AllowedOrigins: []string{"https://app.example"},
		AllowedHosts:   []string{"gate.example"},
	})
	session := s.initialize("2025-06-18")
	host := strings.TrimPrefix(s.server.URL, "http://")
	_, port, err := net.SplitHostPort(host)
	if err != nil {
		t.Fatal(err)
	}
	big := `{"jsonrpc":"2.0","id":5,"method":"echo","params":["` + strings.Repeat("a", 1000) + `"]}`
	with := func(lines ...string) header { return append(posting(), lines...) }
	for _, test := range []struct {
		name   string
		method string
		header header
		body   string
		status int
		says   string
	}{
		{"foreign origin", "PUT", with("Origin: https://evil.example"), "{", 403, "origin"},
		{"null origin", "POST", with("Origin: null", session), echoBody, 403, "origin"},
		{"two origins", "POST", with("Origin: http://"+host, "Origin: http://"+host, session), echoBody, 403, "origin"},
		{"garbage origin", "POST", with("Origin: ht!tp://%zz", session), echoBody, 403, "origin"},
		{"own origin by another scheme", "POST", with("Origin: https://"+host, session), echoBody, 403, "origin"},
		{"own origin by an allowed name", "POST", with("Host: gate.example", "Origin: http://gate.example", session), echoBody, 200, ""},
		{"own origin", "POST", with("Origin: http://"+host, session), echoBody, 200, ""},
		{"allowed origin", "POST", with("Origin: https://APP.example", session), echoBody, 200, ""},
		{"rebound host", "PUT", with("Host: evil.example"), "{", 403, "host"},
		{"rebound host and origin", "POST", with("Host: evil.example", "Origin: http://evil.example", session), echoBody, 403, "origin"},
		{"localhost", "POST", with("Host: LOCALHOST:"+port, session), echoBody, 200, ""},
		{"127.1.2.3", "POST", with("Host: 127.1.2.3", session), echoBody, 200, ""},
		{"[::1]", "POST", with("Host: [::1]:"+port, session), echoBody, 200, ""},
		{"[::1] without a port", "POST", with("Host: [::1]", session), echoBody, 200, ""},
		{"allowed host", "POST", with("Host: gate.example:80", session), echoBody, 200, ""},
		{"localhost as a prefix", "POST", with("Host: localhost.evil.example", session), echoBody, 403, "host"},
		{"method", "PUT", with(), echoBody, 405, "method"},
		{"options", "OPTIONS", header{}, "", 405, "method"},
		{"no content type", "POST", header{"Accept: */*"}, big, 415, "application/json"},
		{"content type", "POST", header{"Content-Type: text/plain", "Accept: text/html"}, big, 415, "application/json"},
		{"compressed", "POST", with("Content-Encoding: gzip", session), echoBody, 415, "Content-Encoding"},
		{"not compressed", "POST", with("Content-Encoding: identity", session), echoBody, 200, ""},
		{"accept json only", "POST", header{"Content-Type: application/json", "Accept: application/json"}, big, 406, "text/event-stream"},
		{"accept stream only", "POST", header{"Content-Type: application/json", "Accept: text/event-stream"}, big, 406, "application/json"},
		{"accept not at all", "POST", header{"Content-Type: application/json", "Accept: */*;q=0.0"}, big, 406, "Accept"},
		{"accept anything", "POST", header{"Content-Type: application/json", "Accept: */*", session}, echoBody, 200, ""},
		{"accept said not", "POST", header{"Content-Type: application/json", session}, echoBody, 200, ""},
		{"accept by kind", "POST", header{"Content-Type: application/json", "Accept: Text/*;q=0.5", "Accept: x/y, Application/JSON", session}, echoBody, 200, ""},
		{"content type parameters", "POST", header{"Content-Type: Application/Json ; charset=utf-8", session}, echoBody, 200, ""},
		{"too large", "POST", with("Mcp-Session-Id: unknown"), big, 413, "-32600"},
		{"not JSON", "POST", with("Mcp-Session-Id: unknown"), "{", 400, "-32700"},
		{"empty", "POST", with(session), "", 400, "-32700"},
		{"no message", "POST", with("Mcp-Session-Id: unknown"), `{"jsonrpc":"2.0","id":5,"method":7}`, 400, `"id":5,"error":{"code":-32600`},
		{"no message, a notification", "POST", with(session), `{"jsonrpc":"2.0","method":7}`, 400, `-32600`},
		{"no session", "POST", with(), echoBody, 400, `"id":5,"error":{"code":-32600,"message":"Mcp-Session-Id is missing: initialize first"}`},
		{"no session, a response", "POST", with(), `{"jsonrpc":"2.0","id":5,"result":1}`, 400, `{"jsonrpc":"2.0","error":{"code":-32600`},
		{"unknown session", "POST", with("Mcp-Session-Id: x", "Mcp-Protocol-Version: 1"), echoBody, 404, `"id":5,"error":{"code":-32600,"message":"session not found"}`},
		{"unknown version", "POST", with(session, "Mcp-Protocol-Version: 1"), echoBody, 400, "-32600"},
		{"version not a date", "POST", with(session, "Mcp-Protocol-Version: 9999-zz-zz"), echoBody, 400, "-32600"},
		{"another legacy version", "POST", with(session, "Mcp-Protocol-Version: 2025-03-26"), echoBody, 200, ""},
		{"initialize twice", "POST", with(session), initializeBody("2025-06-18"), 400, `"id":1,"error":{"code":-32600`},
		{"initialize with a wrong version header", "POST", with("Mcp-Protocol-Version: 1"), initializeBody("2025-06-18"), 400, "-32600"},
		{"batch", "POST", with(session), "[" + echoBody + "]", 400, "-32600"},
		{"GET without a session", "GET", header{"Accept: text/event-stream"}, "", 405, "method"},
		{"GET of a modern client", "GET", header{"Accept: text/event-stream", session, "Mcp-Protocol-Version: 2026-07-28"}, "", 405, "method"},
		{"GET of an unknown session", "GET", header{"Accept: text/html", "Mcp-Session-Id: x"}, "", 404, "session not found"},
		{"GET of an unknown version", "GET", header{session, "Mcp-Protocol-Version: 1"}, "", 400, "-32600"},
		{"GET with a body", "GET", header{session}, "{}", 400, "body"},
		{"GET of something else", "GET", header{"Accept: application/json", session}, "", 406, "text/event-stream"},
		{"DELETE without a session", "DELETE", header{}, "", 405, "method"},
		{"DELETE of a modern client", "DELETE", header{session, "Mcp-Protocol-Version: 2026-07-28"}, "", 405, "method"},
		{"DELETE of an unknown session", "DELETE", header{"Mcp-Session-Id: x"}, "", 404, "session not found"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := s.do(test.method, test.body, test.header)
			if got.status != test.status || !strings.Contains(got.body, test.says) {
				t.Errorf("got %d %s, want %d %s", got.status, got.body, test.status, test.says)
			}
			if (got.status == 405) != (got.header.Get("Allow") != "") {
				t.Errorf("got %d with Allow: %q", got.status, got.header.Get("Allow"))
			}
		})
	}
	if n := s.links(); n != 1 {
		t.Errorf("%d links were accepted", n)
	}
}

// The Allow header of a refusal lists the methods of the endpoint.
func TestAllowNamesTheMethods(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	if got := s.do("PUT", "", nil).header.Get("Allow"); got != "GET, POST, DELETE" {
		t.Errorf("got Allow: %q, want %q", got, "GET, POST, DELETE")
	}
	if got := s.do("GET", "", nil).header.Get("Allow"); got != "POST" {
		t.Errorf("without a session: got Allow: %q, want %q", got, "POST")
	}
}

// A closed handler refuses requests, and its links are lost.
//
// Guarantees: G-0022.15
func TestClosedHandlerRefuses(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-11-25")
	held := s.pending(s.ctx, `{"jsonrpc":"2.0","id":"h","method":"hold"}`, session)
	s.peer(t, 0).awaitReceived(t, 2)
	if err := s.handler.Close(time.Second); err != nil {
		t.Fatal(err)
	}
	s.receive(held).wantError(t, 503, -32603, `"h"`, "the session has ended before the response came")
	s.post(echoBody, session).wantError(t, 503, -32050, "", "overloaded: shutting down")
	if r := s.do("PUT", "", nil); r.status != 503 {
		t.Errorf("got status %d, want 503", r.status)
	}
	if loss := s.peer(t, 0).awaitLoss(t); loss.Reason != transport.ErrClosed {
		t.Errorf("lost because of %v, want %v", loss.Reason, transport.ErrClosed)
	}
}

// While a handler drains, the requests of a session that the server has ended are refused as overloaded
// for a second, and then because the session is unknown, so that its client begins another one. Other
// unknown sessions are refused as such at once. All these clients shall open another connection.
//
// Guarantees: G-0009.14
func TestDrainingHandlerLetsClientsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var links []transport.Link
		h := NewHandler(accepting(func(link transport.Link) {
			link.Bind(&mute{link: link})
			links = append(links, link)
		}), HandlerOptions{})
		defer h.Close(0)
		begin := func() string {
			return fuzzed(h, "POST", "Content-Type: application/json", initializeBody("2025-06-18")).Header().Get(headerSession)
		}
		want := func(about, session, body string, status int) {
			t.Helper()
			lines := "Content-Type: application/json"
			if session != "" {
				lines += "\n" + headerSession + ": " + session
			}
			if r := fuzzed(h, "POST", lines, body); r.Code != status || r.Header().Get("Connection") != "close" {
				t.Errorf("%s: got status %d, Connection: %q; want status %d, Connection: close", about, r.Code, r.Header().Get("Connection"), status)
			}
		}
		ended, deleted, served := begin(), begin(), begin()
		h.table.drain()
		links[0].Close(time.Second)
		want("just ended", ended, echoBody, 503)
		if r := fuzzed(h, "DELETE", headerSession+": "+deleted, ""); r.Code != 204 {
			t.Fatalf("the DELETE got status %d, want 204", r.Code)
		}
		want("deleted by its client", deleted, echoBody, 404)
		want("never known", "x", echoBody, 404)
		want("a new session", "", initializeBody("2025-06-18"), 503)
		<-time.After(longestRefusing - 1)
		want("ended almost a second ago", ended, echoBody, 503)
		<-time.After(1)
		want("ended a second ago", ended, echoBody, 404)
		if r := fuzzed(h, "POST", "Content-Type: application/json\n"+headerSession+": "+served, echoBody); r.Code != 200 {
			t.Errorf("a session that has not ended: got status %d, want 200", r.Code)
		}
	})
}

// If the acceptor closes or does not bind its link, the request is refused.
func TestAcceptMayRefuse(t *testing.T) {
	for name, accept := range map[string]func(transport.Link){
		"closes":        func(link transport.Link) { link.Close(time.Hour) },
		"does not bind": func(transport.Link) {},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewHandler(accepting(accept), HandlerOptions{})
			server := httptest.NewServer(h)
			defer server.Close()
			defer h.Close(0)
			s := &site{t: t, handler: h, server: server, ctx: t.Context()}
			s.post(initializeBody("2025-11-25")).wantError(t, 503, -32050, "1", "overloaded: shutting down")
			s.modern("echo", "").wantError(t, 503, -32050, "7", "overloaded: shutting down")
			h.options.Stateless = true
			s.post(echoBody).wantError(t, 503, -32050, "5", "overloaded: shutting down")
			if n := len(h.table.sessions); n != 0 {
				t.Errorf("%d sessions are left", n)
			}
		})
	}
}

// NewHandler panics for an acceptor that cannot be compared, because the table of links
// needs comparable keys. A request for which Choose returns one is refused.
//
// Guarantees: G-0028.4
func TestAnAcceptorThatCannotBeCompared(t *testing.T) {
	func() {
		defer func() {
			err, ok := recover().(error)
			if !ok || !strings.Contains(err.Error(), "streamable.acceptFunc cannot be compared") {
				t.Errorf("NewHandler panicked with %v", err)
			}
		}()
		NewHandler(acceptFunc(func(transport.Link) {}), HandlerOptions{})
	}()
	s := newSite(t, HandlerOptions{Choose: func(*http.Request) transport.Acceptor {
		return acceptFunc(func(transport.Link) { t.Error("the acceptor got a link, want none") })
	}})
	s.modern("echo", "").wantError(t, 500, jsonrpc.CodeInternalError, "7", "the server chosen for this request cannot be compared")
	s.post(initializeBody("2025-11-25")).wantError(t, 500, jsonrpc.CodeInternalError, "1", "the server chosen for this request cannot be compared")
}

// With Choose, NewHandler needs no Acceptor: the handler refuses a request for which there is none, and shuts down. Without Choose it panics.
//
// Guarantees: G-0028.4
func TestNoAcceptorButThoseThatAreChosen(t *testing.T) {
	h := NewHandler(nil, HandlerOptions{Choose: func(*http.Request) transport.Acceptor { return nil }})
	response := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(initializeBody("2025-11-25")))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if h.ServeHTTP(response, request); response.Code != http.StatusNotFound {
		t.Errorf("got %d %s, want 404", response.Code, response.Body)
	}
	if err := h.Shutdown(t.Context(), nil); err != nil {
		t.Error(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("NewHandler(nil) without Choose did not panic")
		}
	}()
	NewHandler(nil, HandlerOptions{})
}

// A closedAcceptor notes that it was closed.
type closedAcceptor struct {
	*acceptor
	closed bool
}

func (a *closedAcceptor) Close(context.Context) error {
	a.closed = true
	return nil
}

// Shutdown closes each Acceptor that Choose has returned and that serves a client, with a session or without.
func TestShutdownClosesWhatChooseHasReturned(t *testing.T) {
	modern, legacy := &closedAcceptor{acceptor: newAcceptor(respond)}, &closedAcceptor{acceptor: newAcceptor(respond)}
	h := NewHandler(nil, HandlerOptions{Choose: func(r *http.Request) transport.Acceptor {
		if namesModern(r.Header) {
			return modern
		}
		return legacy
	}})
	h.ServeHTTP(httptest.NewRecorder(), newRequest("POST", modernBody("echo", ""), modernHeader("echo")...))
	h.ServeHTTP(httptest.NewRecorder(), newRequest("POST", initializeBody("2025-11-25")))
	if err := h.Shutdown(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if !modern.closed || !legacy.closed {
		t.Errorf("the acceptor of messages without a session was closed: %t, and that of a session: %t, want both", modern.closed, legacy.closed)
	}
	modern.finish(t)
	legacy.finish(t)
}
