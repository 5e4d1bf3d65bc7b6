package streamable

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	httpheader "github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// FuzzResponses lets a server answer initialize and later requests with arbitrary
// bytes. Each request has one outcome, no frame is above the limit, and nothing in a
// response makes the client send a request to another host or a header that it must not
// send.
func FuzzResponses(f *testing.F) {
	const ok, events = "200 OK\nContent-Type: application/json\n", "200 OK\nContent-Type: text/event-stream\n"
	begun := ok + "Mcp-Session-Id: s\n\n" + initializeResult
	f.Add(begun, ok+"\n"+result(2))
	f.Add(begun, events+"\nid: 1\nretry: 5\ndata: "+notification("n")+"\n\ndata: "+result(2)+"\n\n")
	f.Add(begun, events+"\nid: 1\ndata: \n\n")
	f.Add(begun, "404 Not Found\n\n")
	f.Add(begun, "400 Bad Request\nContent-Type: application/json\n\n"+`{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}`)
	f.Add(begun, "429 Slow\nRetry-After: 99999999999\nContent-Length: 5\n\nx")
	f.Add(begun, "307 Over there\nLocation: http://evil.example/\n\n")
	f.Add(begun, "307 Here\nLocation: /other\n\n")
	f.Add(begun, "101 Switching Protocols\nUpgrade: x\nConnection: Upgrade\n\n")
	f.Add(begun, ok+"\n["+result(2)+"]")
	f.Add(begun, ok+"Transfer-Encoding: chunked\n\n5\nhello\n0\n\n")
	f.Add(ok+"Mcp-Session-Id: a\nMcp-Session-Id: b\n\n"+initializeResult, "202 Accepted\n\n")
	f.Add(events+"Mcp-Session-Id: \x00\xff\n\nid: \xff\nevent: message\ndata: "+initializeResult+"\n\n", events+"\n\xef\xbb\xbfdata\r\r")
	f.Add("405 No\n\n", events+"\nevent: endpoint\ndata: /messages\n\ndata: "+initializeResult+"\n\n")
	f.Add("404 No\n\n", events+"\nevent: endpoint\ndata: //evil.example/messages\n\n")
	f.Add("999", "")
	f.Fuzz(func(t *testing.T, first, then string) {
		const limit = 4 << 10
		server := &scriptedServer{t: t, first: first, then: then}
		r := open(t, &Client{URL: "http://server.test/mcp", HTTP: &http.Client{Transport: server}, MaxFrame: limit})
		r.link.Grant(transport.Main, 10)
		stream := r.request(1, 10, request(1, "initialize", ""))
		r.await("an outcome of initialize", func() bool { return r.outcomes(1, stream) > 0 })
		for _, frame := range []string{initialized, request(2, "tools/call", `"name":"echo"`), request(3, "tools/call", `"name":"echo",`+modernMeta)} {
			m := outbound(0, frame)
			id, _ := m.Route.ID.Int64()
			if m.Tag = transport.Tag(id); r.link.Send(m) != nil {
				break // the link was lost
			}
			r.mu.Lock()
			stream, opened := r.opened[m.Tag]
			r.mu.Unlock()
			if opened {
				r.link.Grant(stream, 10)
				r.await("an outcome", func() bool { return r.outcomes(m.Tag, stream) > 0 })
			}
		}
		if err := r.link.Close(0); err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for tag, stream := range r.opened {
			if n := r.outcomes(tag, stream) - len(r.losses); n > 1 {
				t.Errorf("request %d has %d outcomes, want 1", tag, n)
			}
		}
		for _, in := range r.received {
			if len(in.Frame) > limit {
				t.Errorf("a frame of %d bytes", len(in.Frame))
			}
		}
		for _, loss := range r.broken {
			if loss.Delay < 0 || loss.Delay > web.MaxDelay {
				t.Errorf("got %+v, want loss.Delay >= 0 and loss.Delay <= %v", loss, web.MaxDelay)
			}
		}
	})
}

// outcomes counts the outcomes of a request. The loss of the link is one. The caller
// holds mu.
func (r *testReceiver) outcomes(tag transport.Tag, stream transport.Stream) int {
	n := len(r.losses)
	for _, in := range r.received {
		if in.Last && in.Stream == stream {
			n++
		}
	}
	for _, f := range r.failed {
		if f.Tag == tag {
			n++
		}
	}
	for _, loss := range r.broken {
		if loss.Stream == stream {
			n++
		}
	}
	return n
}

// A scriptedServer gives one response to the first request, and another one to each
// later request.
type scriptedServer struct {
	t           *testing.T
	first, then string

	mu    sync.Mutex
	asked bool
}

func (s *scriptedServer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		io.Copy(io.Discard, req.Body)
		req.Body.Close()
	}
	if req.URL.Host != "server.test" || req.URL.Scheme != "http" {
		s.t.Errorf("got a request to %s, want none", req.URL)
	}
	for name, values := range req.Header {
		for _, value := range values {
			if !httpheader.IsPlain(value) || len(value) > 1<<10 {
				s.t.Errorf("got the header %s: %q, want none", name, value)
			}
		}
	}
	s.mu.Lock()
	text := s.then
	if !s.asked {
		text, s.asked = s.first, true
	}
	s.mu.Unlock()
	return http.ReadResponse(bufio.NewReader(strings.NewReader("HTTP/1.1 "+text)), req)
}
