package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// fewer makes rapid try fewer histories than by default, since each has servers and nodes of its own.
func fewer(t *testing.T, histories string) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	if given := checks.Value.String(); given == checks.DefValue {
		if err := checks.Value.Set(histories); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = checks.Value.Set(given) }) // it was valid before
	}
}

// await waits until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(time.Minute); !holds(); <-tick.C {
		if time.Now().After(late) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// sessionNodes start and kill nodes for the contract of their session stores.
type sessionNodes struct {
	t       *testing.T
	server  *switchable
	view    *cluster.Node
	end     func()
	running map[string]*sessionNode
}

type sessionNode struct {
	*cluster.Node
	engine cluster.Engine
}

func (c *sessionNodes) join(name string) (*sessionNode, error) {
	e, _ := c.server.connect(c.t)
	n, err := cluster.Join(c.t.Context(), e, cluster.Options{
		Cluster: "test", Node: name, Key: bytes.Repeat([]byte{1}, cluster.KeySize), Log: slog.New(slog.DiscardHandler),
	})
	return &sessionNode{n, e}, err
}

func (c *sessionNodes) start(name string) streamable.SessionStore {
	n, err := c.join(name)
	if err == nil {
		err = n.Serve(http.NotFoundHandler()) // so that its door can be gone
	}
	if err != nil {
		c.t.Fatal(err)
	}
	c.running[name] = n
	self, _ := n.Member(name)
	await(c.t, name+" has a door", func() bool {
		m, _ := c.view.Member(name)
		return m.Epoch == self.Epoch && m.Address != ""
	})
	return n.Sessions()
}

func (c *sessionNodes) settle(name string) {
	await(c.t, "everything is saved", func() bool { return c.running[name].Report().Unsaved == 0 })
}

// kill ends a node as kill -9 does: it gives nothing up.
func (c *sessionNodes) kill(name string) {
	n := c.running[name]
	delete(c.running, name)
	n.kill(c.t)
}

func (n *sessionNode) kill(t *testing.T) {
	if err := n.engine.Close(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.Close(ctx) // it says what it leaves behind
}

func (c *sessionNodes) close() {
	for name := range c.running {
		c.kill(name)
	}
	c.end()
}

// Guarantees: G-0082.1
func TestSessionsOnNATS(t *testing.T) {
	fewer(t, "20")
	stores.SessionStoreContract(t, func(t *testing.T) stores.Sessions {
		c := &sessionNodes{t: t, server: newSwitchable(t), running: map[string]*sessionNode{}}
		view, err := c.join("view")
		if err != nil {
			t.Fatal(err)
		}
		c.view, c.end = view.Node, func() {
			view.kill(t)
			c.server.stop()
		}
		return stores.Sessions{Nodes: 3, Start: c.start, Settle: c.settle, Kill: c.kill, Close: c.close}
	}, proptest.ContractOptions{})
}

// Guarantees: G-0075.8, G-0081.4
func TestTasksOnNATS(t *testing.T) {
	fewer(t, "5")
	stores.TaskStoreContract(t, func(t *testing.T) stores.Tasks {
		nodes := newSwitchable(t).join(t, "a", "b")
		return stores.Tasks{A: nodes[0].Tasks(), B: nodes[1].Tasks()}
	}, proptest.ContractOptions{})
}

// Guarantees: G-0075.9, G-0081.3
func TestSpentStatesOnNATS(t *testing.T) {
	fewer(t, "5")
	stores.SpentContract(t, func(t *testing.T) stores.SpentStates {
		nodes := newSwitchable(t).join(t, "a", "b")
		return stores.SpentStates{A: nodes[0].Spent(), B: nodes[1].Spent()}
	}, proptest.ContractOptions{})
}

// Guarantees: G-0081.2
func TestChangesOnNATS(t *testing.T) {
	fewer(t, "5")
	stores.ChangesContract(t, func(t *testing.T) stores.Changes {
		nodes := newSwitchable(t).join(t, "a", "b", "c")
		return stores.Changes{A: nodes[0].Changes(), B: nodes[1].Changes(), C: nodes[2].Changes()}
	}, proptest.ContractOptions{})
}

// A servingNode serves an endpoint.
type servingNode struct {
	*cluster.Node
	url string
}

// serve serves an endpoint at two nodes of a cluster, which reach each other.
func (s *switchable) serve(t *testing.T) (a, b *servingNode) {
	t.Helper()
	nodes := s.join(t, "a", "b")
	var all [2]*servingNode
	for i, n := range nodes {
		endpoint := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Node: n.Name(), Changes: n.Changes()})
		server.AddTool(endpoint, protocol.Tool{Name: "where"}, func(context.Context, struct{}) (string, error) { return n.Name(), nil })
		h := streamable.NewHandler(endpoint, streamable.HandlerOptions{Router: n.Router(), Sessions: n.Sessions()})
		if err := n.Serve(h); err != nil {
			t.Fatal(err)
		}
		public := httptest.NewServer(h)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := h.Shutdown(ctx, nil); err != nil {
				t.Error(err)
			}
			public.Close()
		})
		all[i] = &servingNode{n, public.URL}
	}
	await(t, "both reach each other", func() bool {
		return nodes[0].Router().ReachNode("b") != nil && nodes[1].Router().ReachNode("a") != nil
	})
	return all[0], all[1]
}

// post sends a message of a session.
func (n *servingNode) post(t *testing.T, session, body string) (http.Header, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t), "POST", n.url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil || response.StatusCode >= 300 {
		t.Fatalf("%s got %d %s, %v", body, response.StatusCode, answer, err)
	}
	return response.Header, answer
}

// begin begins a session, and waits until it is stored.
func (n *servingNode) begin(t *testing.T) (session string) {
	t.Helper()
	header, _ := n.post(t, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"client-of-ada","version":"1"}}}`)
	session = header.Get("Mcp-Session-Id")
	n.post(t, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	await(t, "it is saved", func() bool { return n.Report().Unsaved == 0 })
	return session
}

// In the steady state a call costs no message of NATS, at the node of its session or forwarded: the
// server counts none, in or out, while there are a hundred. A renewal of a lease, which comes
// every 5 s at each node, may fall into one attempt, but not into all.
//
// Guarantees: G-0077.7
func TestCallsCostNoMessages(t *testing.T) {
	s := newSwitchable(t)
	a, b := s.serve(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	session := a.begin(t)
	count := func() int64 {
		v, err := s.server.server.Varz(new(natsserver.VarzOptions))
		if err != nil {
			t.Fatal(err)
		}
		return v.InMsgs + v.OutMsgs
	}
	before := count()
	b.post(t, b.begin(t), `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	if count() == before {
		t.Fatal("the server counts nothing when a session begins, so this test sees too little")
	}
	for what, at := range map[string]*servingNode{"at its own node": a, "forwarded": b} {
		const calls, attempts = 100, 10
		call := func(n int) {
			_, answer := at.post(t, session, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"where","arguments":{}}}`, n+2))
			if !bytes.Contains(answer, []byte(`"a"`)) {
				t.Fatalf("%s: got %s, want that node a answers", what, answer)
			}
		}
		call(0) // the first one makes connections
		fewest := int64(1 << 62)
		for attempt := 0; attempt < attempts && fewest > 0; attempt++ {
			before := count()
			for n := range calls {
				call(n)
			}
			fewest = min(fewest, count()-before)
		}
		if fewest > 0 {
			t.Errorf("%s: the server counts at least %d messages during %d calls", what, fewest, calls)
		}
	}
}

// recordOfAda is a session with much to read.
func recordOfAda() streamable.SessionRecord {
	return streamable.SessionRecord{
		Identity: "identity-of-ada", Initialize: json.RawMessage(`{"method":"initialize","name":"client-of-ada"}`), Version: "2025-11-25",
		State: json.RawMessage(`{"level":"level-of-ada","uris":["file:///uri-of-ada"]}`), Streams: 1,
	}
}
