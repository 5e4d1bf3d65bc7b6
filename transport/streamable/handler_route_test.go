package streamable

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// The client sends frames that no parser accepts, because it takes everything that HTTP
// needs from their route.
//
// Guarantees: G-0014.18
func TestAClientRoutesWithoutLookingIntoFrames(t *testing.T) {
	asked := make(chan string, 1)
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		asked <- fmt.Sprintf("%s|%s|%s|%s", req.Header.Get(headerVersion), req.Header.Get(headerMethod), req.Header.Get(headerName), body)
		if string(body) == "a notification" {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		answerJSON(result(1))(w, req)
	})
	for _, c := range []struct {
		frame string
		route transport.Route
		want  string
	}{
		{"a request", transport.Route{Kind: jsonrpc.KindRequest, ID: jsonrpc.IntegerID(1), Method: "tools/call", Name: "echo", Version: protocol.Version20260728},
			"2026-07-28|tools/call|echo|a request"},
		{"an older request", transport.Route{Kind: jsonrpc.KindRequest, ID: jsonrpc.IntegerID(2), Method: "tools/call", Name: "echo"},
			"|||an older request"},
		{"a notification", transport.Route{Kind: jsonrpc.KindNotification, Method: "n"}, "|||a notification"},
	} {
		if err := r.link.Send(transport.Outbound{Tag: 1, Frame: []byte(c.frame), Route: c.route}); err != nil {
			t.Fatalf("%s: %v", c.frame, err)
		}
		if got := <-asked; got != c.want {
			t.Errorf("the server got %q, want %q", got, c.want)
		}
	}
}

// The server sends frames that no parser accepts, because it takes the status from
// their route.
//
// Guarantees: G-0014.18
func TestAServerRoutesWithoutLookingIntoFrames(t *testing.T) {
	s := newScriptedSite(t, HandlerOptions{}, newAcceptor(func(*peer, transport.Inbound, jsonrpc.Message) {}))
	for n, c := range []struct {
		route  transport.Route
		status int
	}{
		{transport.Route{Kind: jsonrpc.KindResult, ID: jsonrpc.IntegerID(7)}, 200},
		{transport.Route{Kind: jsonrpc.KindError, ID: jsonrpc.IntegerID(7), Code: jsonrpc.CodeMethodNotFound}, 404},
		{transport.Route{Kind: jsonrpc.KindError, ID: jsonrpc.IntegerID(7), Code: jsonrpc.CodeInternalError}, 200},
	} {
		replies := s.pending(s.ctx, modernBody("hold", ""), modernHeader("hold")...)
		p := s.peer(t, 0)
		p.awaitReceived(t, n+1)
		p.mustSend(t, transport.Outbound{Stream: transport.Stream(n + 1), Last: true, Frame: []byte(`an "error" {`), Route: c.route})
		if r := s.receive(replies); r.status != c.status || r.body != `an "error" {` {
			t.Errorf("%+v: got status %d, body %q, want r.status == %v and r.body == %q", c.route, r.status, r.body, c.status, `an "error" {`)
		}
	}
}

// A message is decoded once: the transport passes the result to the Conn, except for a
// batch.
//
// Guarantees: G-0028.1
func TestDecodedMessageIsPassedToTheConn(t *testing.T) {
	s := newSite(t, HandlerOptions{})
	session := s.initialize(protocol.Version20250326)
	s.post(`{"jsonrpc":"2.0","method":"n"}`, session)
	s.post(echoBody, session)
	s.post("["+initialized+"]", session)
	s.modern("echo", "")
	for n, want := range [][]string{{"initialize", "n", "echo", ""}, {"echo"}} {
		p := s.peer(t, n)
		p.awaitReceived(t, len(want))
		for i, in := range p.received {
			var method string
			if in.Message != nil {
				method = in.Message.Method
			}
			if method != want[i] {
				t.Errorf("link %d: %q was passed on as the message %q, want %v", n, in.Frame, method, want[i])
			}
		}
	}
	r := connect(t, func(w http.ResponseWriter, req *http.Request) {
		stream(w, "data: "+notification("n")+"\n\ndata: "+result(1)+"\n\n")
	})
	r.call(1, 2)
	for n, kind := range []jsonrpc.Kind{jsonrpc.KindNotification, jsonrpc.KindResult} {
		if in := r.frame(n); in.Message == nil || in.Message.Kind != kind {
			t.Errorf("%q was passed on as %+v", in.Frame, in.Message)
		}
	}
}
