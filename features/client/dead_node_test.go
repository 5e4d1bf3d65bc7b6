package client_test

import (
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A balancer is a proxy in front of nodes, without a socket. New sessions begin at the node
// that is named first; requests of a session go to its node. For a dead node it answers
// itself.
type balancer struct {
	answer  func(session string) *http.Response // for a dead node
	tripper http.RoundTripper                   // nil: the balancer itself

	mu      sync.Mutex
	nodes   []string // the nodes that live
	streams map[string]*io.PipeWriter
	seen    []string // method, JSON-RPC method and session
}

func httpResponse(status int, kind, body string) *http.Response {
	header := http.Header{}
	if kind != "" {
		header.Set("Content-Type", kind)
	}
	return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: header, Body: io.NopCloser(strings.NewReader(body))}
}

// badGateway is what most proxies answer for a back end that is dead.
func badGateway(string) *http.Response {
	return httpResponse(http.StatusBadGateway, "text/html", "<h1>502 Bad Gateway</h1>")
}

func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	var m jsonrpc.Message
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if m, err = jsonrpc.Decode(body, jsonrpc.Limits{}); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	session := r.Header.Get("Mcp-Session-Id")
	b.seen = append(b.seen, strings.TrimSpace(r.Method+" "+m.Method+" "+session))
	switch {
	case m.Method == protocol.MethodInitialize:
		answer := httpResponse(http.StatusOK, "application/json", `{"jsonrpc":"2.0","id":`+m.ID.String()+`,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`)
		answer.Header.Set("Mcp-Session-Id", b.nodes[0])
		return answer, nil
	case !slices.Contains(b.nodes, session):
		return b.answer(session), nil
	case r.Method == http.MethodGet:
		answer := httpResponse(http.StatusOK, "text/event-stream", "")
		answer.Body, b.streams[session] = io.Pipe()
		return answer, nil
	case r.Method == http.MethodDelete || m.ID.IsZero():
		return httpResponse(http.StatusAccepted, "", ""), nil
	default:
		return httpResponse(http.StatusOK, "application/json", `{"jsonrpc":"2.0","id":`+m.ID.String()+`,"result":{}}`), nil
	}
}

// kill ends a node, and its streams.
func (b *balancer) kill(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = slices.DeleteFunc(b.nodes, func(other string) bool { return other == node })
	if stream := b.streams[node]; stream != nil {
		stream.CloseWithError(io.ErrUnexpectedEOF)
	}
}

// count returns how many requests of that kind have come.
func (b *balancer) count(kind string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, seen := range b.seen {
		if seen == kind {
			n++
		}
	}
	return n
}

func (b *balancer) connect(t *testing.T) *client.Session {
	t.Helper()
	b.streams = make(map[string]*io.PipeWriter)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, stream := range slices.Collect(maps.Values(b.streams)) {
			stream.Close()
		}
	})
	var tripper http.RoundTripper = b
	if b.tripper != nil {
		tripper = b.tripper
	}
	session, err := client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy}).
		Connect(t.Context(), &streamable.Client{URL: "http://nodes.test/mcp", HTTP: &http.Client{Transport: tripper}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close(context.Background()) })
	return session
}

// A client whose node is dead is at another node within 12 s, whether it is idle or calls, and
// whatever the proxy in front of the node answers.
//
// Guarantees: G-0025.8
func TestClientLeavesADeadNode(t *testing.T) {
	answers := map[string]func(string) *http.Response{
		"502": badGateway,
		"500": func(string) *http.Response { return httpResponse(500, "text/plain", "Internal Server Error") },
		"503": func(string) *http.Response { return httpResponse(503, "", "") },
		"504": func(string) *http.Response {
			return httpResponse(504, "application/json", `{"message":"Endpoint request timed out"}`)
		},
		"404": func(string) *http.Response { return httpResponse(404, "text/plain", "no such session") },
	}
	for name, answer := range answers {
		for _, calls := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", idle", true: ", calling"}[calls], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := &balancer{nodes: []string{"a", "b"}, answer: answer}
					session := b.connect(t)
					pass(2 * time.Minute)
					b.kill("a")
					died := time.Now()
					for time.Since(died) < 12*time.Second {
						if calls {
							_, _ = session.CallTool(t.Context(), &protocol.CallToolParams{Name: "echo"})
						}
						pass(100 * time.Millisecond)
					}
					if status := session.Status(); status.State != conn.Ready || b.count("POST initialize") != 2 || b.count("POST notifications/initialized b") != 1 {
						t.Errorf("12 s after its node died, the client is %v, and the proxy has seen %q, want a session at b", status, b.seen)
					}
				})
			})
		}
	}
}

// A server that answers 5xx with a message, or that asks to come back later, lives.
//
// Guarantees: G-0025.8
func TestErrorOfTheServerItselfIsASignOfLife(t *testing.T) {
	for name, answer := range map[string]func(string) *http.Response{
		"500 with a message": func(string) *http.Response {
			return httpResponse(500, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"out of order"}}`)
		},
		"429": func(string) *http.Response { return httpResponse(429, "", "") },
		"503 with Retry-After": func(string) *http.Response {
			overloaded := httpResponse(503, "", "")
			overloaded.Header.Set("Retry-After", "1")
			return overloaded
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &balancer{nodes: []string{"a", "b"}, answer: answer}
				session := b.connect(t)
				pass(time.Minute)
				b.kill("a")
				for range 60 {
					_, _ = session.CallTool(t.Context(), &protocol.CallToolParams{Name: "echo"})
					pass(time.Second)
				}
				if got := b.count("POST initialize"); got != 1 {
					t.Errorf("the client began %d sessions, want 1, because the server answers: %q", got, b.seen)
				}
			})
		})
	}
}

// If one message is answered by something else, and the probe by the server, the session goes
// on.
//
// Guarantees: G-0025.8
func TestOneBadGatewayIsForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &balancer{nodes: []string{"a"}, answer: badGateway}
		session := b.connect(t)
		pass(time.Second)
		for range 5 {
			b.kill("a")
			_, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "echo"})
			b.mu.Lock()
			b.nodes = []string{"a"}
			b.mu.Unlock()
			if err == nil {
				t.Fatal("the call was answered, want the error of the proxy")
			}
			pass(10 * time.Second)
		}
		if got := b.count("POST initialize"); got != 1 {
			t.Errorf("the client began %d sessions, want 1: %q", got, b.seen)
		}
	})
}

// If a session was forgotten before its first GET stream was open, the client notices at the
// 404 of that GET, and not only at its next probe. A server without a GET stream keeps its
// session.
//
// Guarantees: G-0022.5
func TestSessionForgottenBeforeItsGetStream(t *testing.T) {
	for name, forgotten := range map[string]bool{"forgotten": true, "no such stream": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &noListening{balancer: balancer{nodes: []string{"a", "b"}, answer: func(string) *http.Response { return httpResponse(404, "", "") }}, forgets: forgotten}
				b.tripper = b
				session := b.connect(t)
				pass(time.Millisecond)
				// Not the state: the delay before the next session can be shorter than the pass.
				if got := b.count("POST ping a"); got != 1 || (session.Status().LastFailure.Kind != "") != forgotten {
					t.Errorf("at once: got %d probes, and the client is %v, want 1 probe whose 404 loses the session", got, session.Status())
				}
				pass(3 * time.Second)
				want := 1
				if forgotten {
					want = 2
				}
				if got := b.count("POST initialize"); got != want || b.count("POST ping a") != 1 {
					t.Errorf("the client began %d sessions, want %d, and one probe: %q", got, want, b.seen)
				}
			})
		})
	}
}

// A noListening balancer answers 404 to the first GET of a session, because its nodes have no
// such stream, or because a node has restarted and forgotten its sessions.
type noListening struct {
	balancer
	forgets bool
}

func (b *noListening) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && r.Header.Get("Mcp-Session-Id") == "a" {
		if b.forgets {
			b.kill("a")
		}
		return httpResponse(404, "", ""), nil
	}
	return b.balancer.RoundTrip(r)
}
