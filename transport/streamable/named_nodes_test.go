package streamable_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A namedNode is one of two nodes, "a" and "b", each on a socket of its own, which forward
// to each other what names the other one.
type namedNode struct {
	*server.Server
	name    string
	handler *streamable.Handler
	site    *httptest.Server
	dead    bool
}

// newNamedNodes starts two nodes. Make returns the server of a node.
func newNamedNodes(t *testing.T, make func(node string) *server.Server) (a, b *namedNode) {
	both, routers := map[string]*namedNode{}, map[string]*streamable.Nodes{}
	for _, name := range []string{"a", "b"} {
		n := &namedNode{Server: make(name), name: name}
		routers[name] = &streamable.Nodes{Self: name, Others: map[string]http.Handler{}}
		n.handler = streamable.NewHandler(n.Server, streamable.HandlerOptions{
			Router: routers[name], Identify: func(r *http.Request) string { return r.Header.Get("Authorization") },
		})
		n.site = httptest.NewServer(n.handler)
		both[name] = n
		t.Cleanup(func() { n.close(t) })
	}
	for name, other := range map[string]string{"a": "b", "b": "a"} {
		address, err := url.Parse(both[other].site.URL)
		if err != nil {
			t.Fatal(err)
		}
		routers[name].Others[other] = streamable.Forward(address)
	}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	return both["a"], both["b"]
}

func (n *namedNode) close(t *testing.T) {
	if n.dead {
		return
	}
	n.dead = true
	_ = n.Server.Close(context.Background()) // calls of the test may still wait
	if err := n.handler.Close(0); err != nil {
		t.Error(err)
	}
	n.site.Close()
}

// kill ends a node as if its process had died.
func (n *namedNode) kill(t *testing.T) {
	n.site.Listener.Close()
	n.site.CloseClientConnections()
	n.close(t)
}

// A switched round tripper sends each request of a user to the node that it is set to.
type switched struct {
	user string
	to   atomic.Pointer[namedNode]
}

func (s *switched) RoundTrip(r *http.Request) (*http.Response, error) {
	to, err := url.Parse(s.to.Load().site.URL)
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = to.Host, ""
	r.Header.Set("Authorization", s.user)
	return http.DefaultTransport.RoundTrip(r)
}

// connect opens a session with a node. The result's round tripper can be set to the other one.
func (n *namedNode) connect(t *testing.T, o client.Options) (*client.Session, *switched) {
	t.Helper()
	return n.connectAs(t, "ada", o)
}

func (n *namedNode) connectAs(t *testing.T, user string, o client.Options) (*client.Session, *switched) {
	t.Helper()
	to := &switched{user: user}
	to.to.Store(n)
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).
		Connect(t.Context(), &streamable.Client{URL: n.site.URL, HTTP: &http.Client{Transport: to}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close(context.Background()) }) // its node may be dead
	return session, to
}

// A call whose handler waits at one node is answered at another one, where the handler goes
// on: it runs once. If its node has ended, the call is over, and the client is told so.
//
// Guarantees: G-0075.2, G-0075.3
func TestACallThatWaitsIsAnsweredAtAnotherNode(t *testing.T) {
	var runs atomic.Int64
	a, b := newNamedNodes(t, func(node string) *server.Server {
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{
			Node: node, Asking: server.AskingOptions{Fleet: true, Secrets: func() [][]byte { return [][]byte{make([]byte, 32)} }},
		})
		server.AddTool(s, protocol.Tool{Name: "waits"}, func(ctx context.Context, _ struct{}) (string, error) {
			runs.Add(1)
			for range 2 {
				if err := server.Confirm(ctx, "Sure?"); err != nil {
					return "", err
				}
			}
			return "done at " + node, nil
		}, server.Asks(server.Waits, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
		return s
	})
	var to *switched
	session, to := a.connect(t, client.Options{
		ProtocolVersion: protocol.Version20260728,
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			to.to.Store(b)
			return &protocol.ElicitResult{Action: protocol.ElicitAccept}, nil
		},
	})
	result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "waits"})
	if err != nil || result.Content.Text() != "done at a" || runs.Load() != 1 {
		t.Fatalf("got %+v, %v after %d runs, want the answer of the node where the call began, after one run", result, err, runs.Load())
	}
	to.to.Store(a)
	raw, err := session.Request(t.Context(), protocol.MethodCallTool, map[string]any{"name": "waits"})
	var asked struct{ RequestState string }
	if err = errors.Join(err, json.Unmarshal(raw, &asked)); err != nil || asked.RequestState == "" {
		t.Fatalf("got %s, %v, want a question", raw, err)
	}
	to.to.Store(b)
	a.kill(t)
	for n, want := range []string{"502", "the call is over, because its node has ended"} { // Forward needs two dials to be sure
		_, err := session.Request(t.Context(), protocol.MethodCallTool, map[string]any{
			"name": "waits", "requestState": asked.RequestState, "inputResponses": json.RawMessage(`{"1":{"action":"accept","content":{}}}`),
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("answer %d: got %v, want %q in it", n, err, want)
		}
	}
}
