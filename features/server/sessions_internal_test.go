package server

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// An ignoringReceiver ignores all that it receives.
type ignoringReceiver struct{}

func (ignoringReceiver) Receive(transport.Inbound)                    {}
func (ignoringReceiver) Writable()                                    {}
func (ignoringReceiver) StreamOpened(transport.Stream, transport.Tag) {}
func (ignoringReceiver) StreamLost(transport.StreamLoss)              {}
func (ignoringReceiver) Failed(transport.Failure)                     {}
func (ignoringReceiver) Ended()                                       {}
func (ignoringReceiver) Lost(transport.Loss)                          {}

func withTool(name string) *Server {
	s := New(protocol.Implementation{}, Options{})
	AddTool(s, protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
	return s
}

// Sessions whose clients say the same share one description. A client that says anything
// else, or begins in another revision, has its own. Only the sessions keep a description.
func TestEqualClientsShareOneDescription(t *testing.T) {
	said := func(name, version string, roots bool) *Client {
		client := &Client{ProtocolVersion: version, Info: protocol.Implementation{Name: name, Version: "1"}}
		if roots {
			client.Capabilities.Roots = new(protocol.RootsCapability)
		}
		return client
	}
	var ss sessions
	var before *Client
	for _, c := range []struct {
		client *Client
		shares bool
	}{
		{said("a", protocol.Version20251125, true), false},
		{said("a", protocol.Version20251125, true), true},
		{said("b", protocol.Version20251125, true), false},
		{said("b", protocol.Version20250618, true), false},
		{said("b", protocol.Version20250618, false), false},
		{said("b", protocol.Version20250618, false), true},
	} {
		got := ss.describe(c.client)
		if shares := got == before; shares != c.shares || !reflect.DeepEqual(got, c.client) {
			t.Errorf("%+v is described as %+v: shared is %t, want %t", c.client, got, shares, c.shares)
		}
		before = got
	}
	for range 1000 { // the compiler sees that before is not used any more
		if runtime.GC(); ss.last.Value() == nil {
			return
		}
	}
	t.Error("the server keeps the description of a client that has left")
}

// A server forgets sessions and subscriptions that have ended, because it outlives
// them.
func TestEndedSessionsAreForgotten(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := withTool("a")
		ours, theirs := inmem.Pipe(inmem.Options{})
		ours.Bind(ignoringReceiver{})
		ours.Grant(transport.Main, 100)
		s.Accept(theirs)
		kept := func(when string, listeners, sessions int) {
			t.Helper()
			synctest.Wait()
			if n, m := s.subscriptions.Listening(), len(s.sessions.live); n != listeners || m != sessions {
				t.Errorf("%s: %d listeners and %d sessions, want %d and %d", when, n, m, listeners, sessions)
			}
		}
		send := func(frame string) {
			if err := ours.Send(transport.Outbound{Frame: []byte(frame)}); err != nil {
				t.Fatal(err)
			}
		}
		kept("accepted", 1, 1)
		send(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{` +
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
		kept("subscribed", 2, 1)
		send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		kept("cancelled", 1, 1)
		ours.Close(0)
		kept("gone", 0, 0)
	})
}

// Close waits for a session that has been accepted, even if it does not run yet.
//
// Guarantees: G-0021.5
func TestCloseWaitsForEverySession(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := withTool("a")
		_, theirs := inmem.Pipe(inmem.Options{})
		p := s.newPeer(theirs)
		if err := s.sessions.enter(p); err != nil { // the session does not run yet
			t.Fatal(err)
		}
		closed := false
		go func() {
			s.Close(context.Background())
			closed = true
		}()
		synctest.Wait()
		if closed {
			t.Error("Close returned before the session had ended")
		}
		s.sessions.leave(p)
		synctest.Wait()
		if !closed {
			t.Error("Close still waits after the session has ended")
		}
		theirs.Close(0)
	})
}

// Close names each session that has not ended, whatever it waits for.
func TestCloseNamesEverySessionThatHasNotEnded(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := withTool("a")
		_, theirs := inmem.Pipe(inmem.Options{})
		p := s.newPeer(theirs)
		if err := s.sessions.enter(p); err != nil { // the session never begins to end
			t.Fatal(err)
		}
		for _, when := range []string{"before its end", "at its end"} {
			want := new(conn.StuckError)
			if err := s.Close(t.Context()); !errors.As(err, &want) || !slices.Equal(want.Tasks, []string{"the end of a session"}) {
				t.Errorf("%s: got %v", when, err)
			}
			p.end()
		}
		s.sessions.leave(p)
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("when it has ended: got %v, want no error", err)
		}
		theirs.Close(0)
	})
	testenv.Bubble(t, func(t *testing.T) { // what several wait for is named in order, each time
		s := withTool("a")
		for _, what := range []uint32{onUnsubscribe, 0, aNotification, onUnsubscribe, 0, aNotification} {
			_, theirs := inmem.Pipe(inmem.Options{})
			p := s.newPeer(theirs)
			if err := s.sessions.enter(p); err != nil {
				t.Fatal(err)
			}
			p.leaving.Store(what)
			defer theirs.Close(0)
			defer s.sessions.leave(p)
		}
		want, got := "OnUnsubscribe OnUnsubscribe a notification of a change a notification of a change the end of a session the end of a session", new(conn.StuckError)
		if err := s.Close(t.Context()); !errors.As(err, &got) || strings.Join(got.Tasks, " ") != want {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

// A call does not keep the frame of its request, because it may last for a day, as a
// task or while its handler waits.
func TestACallHoldsNoFrame(t *testing.T) {
	const modern = `{"name":"a","arguments":{"b":"c"},"_meta":{
		"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},
		"io.modelcontextprotocol/clientInfo":{"name":"a","version":"1"}}}`
	const traced = `{"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"name":"a","arguments":{"b":"c"}}`
	for _, params := range []string{modern, traced} {
		s := New(protocol.Implementation{}, Options{})
		in := &conn.Incoming{Method: protocol.MethodCallTool, Params: []byte(params)}
		frame := in.Params
		AddTool(s, protocol.Tool{Name: "a"}, func(ctx context.Context, _ map[string]string) (string, error) {
			if in.Params != nil {
				t.Error("the request still holds its frame, want it released")
			}
			clear(frame)
			got := RequestFrom(ctx).Params.(*protocol.CallToolParams)
			if string(got.Arguments) != `{"b":"c"}` {
				t.Errorf("the arguments are %s, want %q", got.Arguments, `{"b":"c"}`)
			}
			if parent := string(got.Meta[protocol.MetaTraceparent]); params == traced && !strings.HasPrefix(parent, `"00-0af7651916cd`) {
				t.Errorf("the traceparent is %q", parent)
			}
			return "", nil
		})
		p := &peer{server: &s.host}
		if params == traced {
			p.session.Store(&Session{client: &Client{ProtocolVersion: protocol.LatestLegacy}, offered: s.capabilities.modern()})
		}
		if _, err := (connHandler{p}).ServeRequest(t.Context(), in); err != nil {
			t.Error(err)
		}
	}
}
