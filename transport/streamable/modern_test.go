package streamable

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// A modern message belongs to no session, even if it names one. All modern messages of
// one client share a link.
//
// Guarantees: G-0022.11
func TestModernMessagesShareALink(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize("2025-06-18")
	for _, lines := range [][]string{nil, {session}, {"Mcp-Session-Id: unknown"}} {
		r := s.modern("echo", `"a":1,`, lines...)
		if r.status != 200 || !strings.HasPrefix(r.body, `{"jsonrpc":"2.0","id":7,"result":{"a":1,`) || r.header.Get("Mcp-Session-Id") != "" {
			t.Errorf("got %+v", r)
		}
	}
	if r := s.modern("initialize", `"protocolVersion":"2025-06-18",`); r.status != 200 || r.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("initialize: got %+v", r)
	}
	for _, method := range []string{"n", "notifications/cancelled"} {
		notification := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":{"requestId":7}}`, method)
		if r := s.post(notification, "Mcp-Protocol-Version: 2026-07-28"); r.status != 202 || r.body != "" {
			t.Errorf("%s: got %+v, want r.status == 202 and r.body == %q", method, r, "")
		}
	}
	if s.links() != 2 {
		t.Errorf("got %d links, want 2", s.links())
	}
	if n := s.peer(t, 1).count(func(p *peer) int { return len(p.received) }); n != 4 {
		t.Errorf("got %d frames, want 4", n)
	}
	if n := s.peer(t, 0).count(func(p *peer) int { return len(p.received) }); n != 1 {
		t.Errorf("got %d frames in the session, want 1", n)
	}
}

// After the link of modern messages was closed, the next message gets a new one.
//
// Guarantees: G-0022.11
func TestClosedModernLinkIsReplaced(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	for n := range 3 {
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				if r := s.modern("echo", ""); r.status != 200 {
					t.Errorf("got %+v, want 200", r)
				}
			})
		}
		group.Wait()
		if s.links() != n+1 {
			t.Fatalf("got %d links, want %v", s.links(), n+1)
		}
		s.peer(t, n).link.Close(0)
	}
}

// Each header that mirrors a modern message must be present once, with the right value.
//
// Guarantees: G-0022.8
func TestModernHeadersMirrorTheMessage(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	call := func(more string) string { return modernBody("tools/call", more) }
	const version, method = "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call"
	encoded := "=?base64?" + base64.StdEncoding.EncodeToString([]byte("grüße")) + "?="
	for _, test := range []struct {
		name  string
		body  string
		lines header
		says  string // empty if it is accepted
	}{
		{"all", call(`"name":"a",`), header{version, method, "Mcp-Name: a"}, ""},
		{"no version", call(`"name":"a",`), header{method, "Mcp-Name: a"}, "Mcp-Protocol-Version"},
		{"an older version", call(`"name":"a",`), header{"Mcp-Protocol-Version: 2025-11-25", method, "Mcp-Name: a"}, "Mcp-Protocol-Version"},
		{"version twice", call(`"name":"a",`), header{version, version, method, "Mcp-Name: a"}, "Mcp-Protocol-Version"},
		{"no method", call(`"name":"a",`), header{version, "Mcp-Name: a"}, "Mcp-Method"},
		{"another method", call(`"name":"a",`), header{version, "Mcp-Method: Tools/call", "Mcp-Name: a"}, "Mcp-Method"},
		{"no name", call(`"name":"a",`), header{version, method}, "Mcp-Name"},
		{"another name", call(`"name":"a",`), header{version, method, "Mcp-Name: b"}, "Mcp-Name"},
		{"two names", call(`"name":"a",`), header{version, method, "Mcp-Name: a", "Mcp-Name: b"}, "Mcp-Name"},
		{"encoded name", call(`"name":"grüße",`), header{version, method, "Mcp-Name: " + encoded}, ""},
		{"another encoded name", call(`"name":"grusse",`), header{version, method, "Mcp-Name: " + encoded}, "Mcp-Name"},
		{"undecodable name", call(`"name":"a",`), header{version, method, "Mcp-Name: =?base64?*?="}, "Mcp-Name"},
		{"no name to mirror", call(``), header{version, method}, ""},
		{"a name for none", call(``), header{version, method, "Mcp-Name: b"}, "Mcp-Name"},
		{"a name for an empty one", call(`"name":"",`), header{version, method, "Mcp-Name: b"}, "Mcp-Name"},
		{"a name for a number", call(`"name":7,`), header{version, method, "Mcp-Name: 7"}, "Mcp-Name"},
		{"a prompt's name for none", modernBody("prompts/get", ``), header{version, "Mcp-Method: prompts/get", "Mcp-Name: b"}, "Mcp-Name"},
		{"a uri for none", modernBody("resources/read", `"name":"x:y",`), header{version, "Mcp-Method: resources/read", "Mcp-Name: x:y"}, "Mcp-Name"},
		{"a name that this method does not mirror", modernBody("echo", `"name":"a",`), header{version, "Mcp-Method: echo", "Mcp-Name: b"}, ""},
		{"uri", modernBody("resources/read", `"uri":"x:y",`), header{version, "Mcp-Method: resources/read", "Mcp-Name: x:y"}, ""},
		{"another uri", modernBody("resources/read", `"uri":"x:y",`), header{version, "Mcp-Method: resources/read", "Mcp-Name: x:z"}, "Mcp-Name"},
		{"no name for this method", modernBody("echo", `"name":"a",`), header{version, "Mcp-Method: echo"}, ""},
		{"a long name", call(`"name":"` + strings.Repeat("é", 5000) + `",`), header{version, method, "Mcp-Name: " + strings.Repeat("b", 5000)}, "Mcp-Name"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := s.post(test.body, test.lines...)
			if test.says == "" {
				if r.status != 200 {
					t.Errorf("got %+v, want 200", r)
				}
				return
			}
			r.wantError(t, 400, -32020, "7")
			if !strings.Contains(r.body, test.says) {
				t.Errorf("got the body %s, want %s in it", r.body, test.says)
			}
		})
	}
}

// A message whose headers and body are of different eras is refused, and begins no
// link.
//
// Guarantees: G-0022.8
func TestModernRefusals(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	lines := modernHeader("echo")
	s.post(`{"jsonrpc":"2.0","id":5,"result":1}`, lines...).wantError(t, 400, -32600, "", "a response is not accepted here")
	s.post(`{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":""}}`, lines...).wantError(t, 400, -32600, "", "a response is not accepted here")
	s.post(`[`+modernBody("echo", "")+`]`, lines...).wantError(t, 400, -32600, "", "a batch is not accepted here")
	s.post(`[`+modernBody("echo", "")+`]`).wantError(t, 400, -32600, "", "Mcp-Session-Id is missing: initialize first")
	s.post(echoBody, lines...).wantError(t, 400, -32602, "5", "_meta: io.modelcontextprotocol/protocolVersion is missing") // only the headers are modern
	if s.links() != 0 {
		t.Errorf("got %d links, want 0", s.links())
	}
}

// The status of a response shows some errors, if nothing was sent before.
//
// Guarantees: G-0022.8
func TestStatusOfAModernAnswer(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	for code, status := range map[int]int{
		-32601: 404, -32020: 400, -32021: 400, -32022: 400, -32700: 400, -32600: 400, -32602: 200, -32603: 200, -32002: 200, 1: 200, -32050: 503,
	} {
		r := s.modern("fail", fmt.Sprintf(`"code":%d,`, code))
		if r.wantError(t, status, int64(code), "7"); (r.header.Get("Retry-After") == soon) != (status == 503) {
			t.Errorf("%d: Retry-After is %q", status, r.header.Get("Retry-After"))
		}
	}
	lacking := map[string]int{
		`{"code":-32602}`: 400,
		`{"code":-32602,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`: 400,
		`{"code":-32602,"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}`:        400,
		`{"code":-32603,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`: 200,
	}
	for params, status := range lacking {
		r := s.post(`{"jsonrpc":"2.0","id":7,"method":"fail","params":`+params+`}`, modernHeader("fail")...)
		if r.status != status {
			t.Errorf("%s: got %+v, want %d", params, r, status)
		}
	}
	if r := s.modern("echo", `"error":{"code":-32601},`); r.status != 200 {
		t.Errorf("a result that contains an error: got %+v, want 200", r)
	}
}

// If a client closes the response of its modern request, the request is cancelled.
//
// Guarantees: G-0022.10
func TestDisconnectCancelsAModernRequest(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	ctx, leave := context.WithCancel(s.ctx)
	silent := s.pending(ctx, modernBody("hold", ""), modernHeader("hold")...)
	p := s.peer(t, 0)
	p.awaitReceived(t, 1)
	leave()
	if _, answered := <-silent; answered {
		t.Error("the request got a response, want none")
	}
	p.awaitStreamLost(t, 1)

	streaming := make(chan *eventReader, 1)
	go func() {
		streaming <- s.listen("POST", modernBody("hold", ""), append(posting(), modernHeader("hold")...))
	}()
	p.awaitReceived(t, 2)
	p.mustSend(t, transport.Outbound{Stream: 2, Frame: notice(0)})
	(<-streaming).leave()
	p.awaitStreamLost(t, 2)
	for stream := range transport.Stream(4) { // Main, both streams, and one that does not exist
		if err := p.send(t, transport.Outbound{Stream: stream, Frame: notice(1)}); !errors.Is(err, transport.ErrNoRoute) {
			t.Errorf("Send on stream %d: %v, want %v", stream, err, transport.ErrNoRoute)
		}
		p.link.Grant(stream, 1)
		p.link.End(stream)
		p.link.Resume(stream)
	}
}

func (p *peer) awaitStreamLost(t testing.TB, stream transport.Stream) {
	t.Helper()
	p.await(t, "StreamLost", func(p *peer) bool { return len(p.lost) >= int(stream) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if loss := p.lost[stream-1]; loss.Stream != stream || loss.Reason != transport.ErrPeerClosed || loss.Resumable {
		t.Errorf("got %+v", loss)
	}
}

// If a client disconnects after the stream has ended, nothing is reported.
func TestDisconnectAfterTheEndIsNotReported(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	for range 50 {
		s.modern("echo", "")
	}
	if n := s.peer(t, 0).count(func(p *peer) int { return len(p.lost) }); n != 0 {
		t.Errorf("%d streams were lost, want none", n)
	}
}

// A holdHandler answers "hold" when it is released, and other requests at once.
type holdHandler struct{ release chan struct{} }

func (p holdHandler) ServeRequest(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method == "hold" {
		<-p.release
	}
	return json.RawMessage(`"done"`), nil
}

func (holdHandler) ServeNotification(context.Context, *conn.Incoming) {}

// The requests that one client has running or waiting do not cause another client's
// request to be refused.
//
// Guarantees: G-0022.11
func TestModernClientsDoNotShareTheirBounds(t *testing.T) {
	identify := func(r *http.Request) string { return r.Header.Get("Authorization") }
	for name, test := range map[string]struct {
		options    HandlerOptions
		bad, good  func(*http.Request)
		sameBounds bool
	}{
		"by identity": {HandlerOptions{Identify: identify},
			func(r *http.Request) { r.Header.Set("Authorization", "bad") }, func(r *http.Request) { r.Header.Set("Authorization", "good") }, false},
		"by address": {HandlerOptions{},
			func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1" }, func(r *http.Request) { r.RemoteAddr = "192.0.2.2:1" }, false},
		"one identity at two addresses": {HandlerOptions{Identify: identify},
			func(r *http.Request) { r.RemoteAddr = "192.0.2.1:1"; r.Header.Set("Authorization", "a") },
			func(r *http.Request) { r.RemoteAddr = "192.0.2.2:1"; r.Header.Set("Authorization", "a") }, true},
		"one address, two ports": {HandlerOptions{},
			func(r *http.Request) { r.RemoteAddr = "[2001:db8::1]:1" }, func(r *http.Request) { r.RemoteAddr = "[2001:db8::1]:2" }, true},
		"one IPv6 network, two addresses": {HandlerOptions{},
			func(r *http.Request) { r.RemoteAddr = "[2001:db8::1]:1" }, func(r *http.Request) { r.RemoteAddr = "[2001:db8::ffff:2]:1" }, true},
		"two IPv6 networks": {HandlerOptions{},
			func(r *http.Request) { r.RemoteAddr = "[2001:db8::1]:1" }, func(r *http.Request) { r.RemoteAddr = "[2001:db8:0:1::1]:1" }, false},
		"IPv4 in IPv6": {HandlerOptions{},
			func(r *http.Request) { r.RemoteAddr = "[::ffff:192.0.2.1]:1" }, func(r *http.Request) { r.RemoteAddr = "[::ffff:192.0.2.2]:1" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				serving := holdHandler{make(chan struct{})}
				h := NewHandler(accepting(func(link transport.Link) {
					c := conn.Accept(link, conn.Options{Handler: serving, Tuning: conn.Tuning{MaxServing: 2, MaxWaiting: 2}})
					c.Start(context.Background(), func(error) {})
				}), test.options)
				defer h.Close(time.Minute)
				b := &bench{t: t, handler: h}
				for range 10 {
					r := newRequest("POST", modernBody("hold", ""), modernHeader("hold")...)
					test.bad(r)
					b.serveRequest(r)
				}
				r := newRequest("POST", modernBody("echo", ""), modernHeader("echo")...)
				test.good(r)
				w, _ := b.serveRequest(r)
				if served := strings.Contains(w.Body.String(), `"done"`); served == test.sameBounds {
					t.Errorf("another client: got %d %q", w.Code, w.Body)
				}
				close(serving.release)
			})
		})
	}
}
