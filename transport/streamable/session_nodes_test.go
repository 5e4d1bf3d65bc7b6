package streamable_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/proptest/stores"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// The store of these tests keeps the contract.
func TestSharedStoreKeepsTheContract(t *testing.T) {
	stores.SessionStoreContract(t, func(*testing.T) stores.Sessions {
		shared := streamable.NewSharedStore()
		return stores.Sessions{
			Nodes:  3,
			Start:  func(node string) streamable.SessionStore { return shared.Node(node) },
			Settle: func(string) {},
			Kill:   shared.Kill,
			Lose:   shared.Lose,
		}
	}, proptest.ContractOptions{})
}

// A storedNode is a process that serves an endpoint, with a door for other nodes.
type storedNode struct {
	*server.Server
	name       string
	store      *streamable.NodeStore
	handler    *streamable.Handler
	site, door *httptest.Server
	calls      atomic.Int64
	hold       chan struct{} // the tool "wait" returns when it is closed
	held       chan struct{} // receives when the tool "wait" begins
	ended      bool
}

// A storedSite is some nodes with a common store behind one address.
type storedSite struct {
	t      *testing.T
	shared *streamable.SharedStore
	front  *httptest.Server
	others map[string]http.Handler // the doors

	mu    sync.Mutex
	nodes []*storedNode
	at    *storedNode // where requests arrive
	seen  []string    // the methods of messages
	waits string      // the session of the latest call of the tool "wait"
}

// A storeRouter finds nodes by their doors.
type storeRouter struct {
	*streamable.Nodes
	site *storedSite
}

func (r storeRouter) Reach(session string) http.Handler {
	return r.ReachNode(streamable.NodeOf(session))
}

func (r storeRouter) ReachNode(node string) http.Handler {
	r.site.mu.Lock()
	defer r.site.mu.Unlock()
	if node == r.Self {
		return nil
	}
	return r.site.others[node]
}

func (r storeRouter) Another(session string, tried ...string) string {
	r.site.mu.Lock()
	defer r.site.mu.Unlock()
	others := maps.Clone(r.site.others)
	delete(others, r.Self)
	return (&streamable.Nodes{Others: others}).Another(session, tried...)
}

func newStoredSite(t *testing.T, names ...string) *storedSite {
	s := &storedSite{t: t, shared: streamable.NewSharedStore(), others: make(map[string]http.Handler)}
	s.front = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(func() {
		s.mu.Lock()
		nodes := s.nodes
		s.mu.Unlock()
		for _, n := range nodes {
			n.end(t, func() {})
		}
		s.front.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	for _, name := range names {
		s.start(name)
	}
	return s
}

// start starts a node, and lets requests arrive there.
func (s *storedSite) start(name string) *storedNode {
	n := &storedNode{Server: server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{}), name: name, store: s.shared.Node(name), hold: make(chan struct{}), held: make(chan struct{}, 100)}
	server.AddTool(n.Server, protocol.Tool{Name: "where"}, func(context.Context, struct{}) (string, error) {
		n.calls.Add(1)
		return name, nil
	})
	server.AddTool(n.Server, protocol.Tool{Name: "size"}, func(_ context.Context, in struct {
		Text string `json:"text"`
	}) (string, error) {
		return fmt.Sprint(len(in.Text), " at ", name), nil
	})
	server.AddTool(n.Server, protocol.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		n.held <- struct{}{}
		select {
		case <-n.hold:
		case <-ctx.Done():
		}
		return name, nil
	})
	n.handler = streamable.NewHandler(n.Server, streamable.HandlerOptions{
		Sessions: n.store, Router: storeRouter{&streamable.Nodes{Self: name}, s}, ShutdownGrace: 10 * time.Second, Retry: 10 * time.Millisecond,
	})
	n.site = httptest.NewServer(n.handler)
	n.door = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { n.handler.ServeHTTP(w, streamable.Forwarded(r)) }))
	address, err := url.Parse(n.door.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others[name] = streamable.Forward(address)
	s.nodes = append(s.nodes, n)
	s.at = n
	return n
}

// node returns a node by its place in the order of their starts.
func (s *storedSite) node(n int) *storedNode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[n]
}

// use makes requests arrive at a node, or nowhere.
func (s *storedSite) use(n *storedNode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = n
}

func (s *storedSite) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mu.Lock()
	for _, method := range []string{"initialize", "notifications/initialized"} {
		if strings.Contains(string(body), `"method":"`+method+`"`) {
			s.seen = append(s.seen, method)
		}
	}
	if strings.Contains(string(body), `"name":"wait"`) {
		s.waits = r.Header.Get("Mcp-Session-Id")
	}
	at := s.at
	s.mu.Unlock()
	if at == nil {
		panic(http.ErrAbortHandler) // nothing listens there
	}
	at.handler.ServeHTTP(w, r)
}

// kill ends a node as kill -9 does: its sockets are gone, and nothing of it tells anyone.
func (n *storedNode) kill(s *storedSite) {
	n.end(s.t, func() { s.shared.Kill(n.name) })
}

// end ends a node. First is called when nobody can reach it any more, and before the node itself
// does anything.
func (n *storedNode) end(t *testing.T, first func()) {
	if n.ended {
		return
	}
	n.ended = true
	for _, socket := range []*httptest.Server{n.site, n.door} {
		socket.Listener.Close()
		socket.CloseClientConnections()
	}
	first()
	_ = n.Server.Close(context.Background()) // calls of the test may still wait
	if err := n.handler.Close(0); err != nil {
		t.Error(err)
	}
	n.site.Close()
	n.door.Close()
}

func (s *storedSite) initializes() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

func (s *storedSite) connect(ctx context.Context, o client.Options) *client.Session {
	s.t.Helper()
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, o).Connect(ctx, &streamable.Client{URL: s.front.URL})
	if err != nil {
		s.t.Fatal(err)
	}
	return session
}

// where calls the tool that names its node.
func where(ctx context.Context, s *client.Session) (string, error) {
	result, err := s.CallTool(ctx, &protocol.CallToolParams{Name: "where"})
	if err != nil {
		return "", err
	}
	return result.Content[0].(*protocol.TextContent).Text, nil
}

// A client goes on with its session when the node has ended: killed, or shut down; at another node,
// or at the same one after a restart. It does not initialize again, its calls are answered, and its
// GET stream brings what happens at the new node.
//
// Guarantees: G-0073.5
func TestClientGoesOnWithItsSession(t *testing.T) {
	for _, version := range []string{protocol.Version20250326, protocol.Version20250618, protocol.Version20251125} {
		for name, c := range map[string]struct{ killed, restarted bool }{
			"killed": {true, false}, "shut down": {false, false}, "killed and restarted": {true, true}, "shut down and restarted": {false, true},
		} {
			t.Run(version+"/"+name, func(t *testing.T) {
				t.Parallel()
				names := []string{"b", "a"}
				if c.restarted { // otherwise the client may find b before a is back, and stay there
					names = names[1:]
				}
				s := newStoredSite(t, names...)
				first, second := s.node(len(names)-1), s.node(0)
				ctx, cancel := context.WithTimeout(t.Context(), guard)
				defer cancel()
				changed := make(chan struct{}, 100)
				session := s.connect(ctx, client.Options{ProtocolVersion: version, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
					if _, ok := e.(*client.ToolsChanged); ok {
						changed <- struct{}{}
					}
				}})
				defer session.Close(ctx)
				if at, err := where(ctx, session); at != "a" || err != nil {
					t.Fatalf("got %q, %v, want a", at, err)
				}
				if c.killed {
					first.kill(s)
				} else {
					if err := first.handler.Shutdown(ctx, nil); err != nil {
						t.Error(err)
					}
					first.end(t, func() {})
				}
				if c.restarted {
					s.use(nil)
					second = s.start("a")
				} else {
					s.use(second)
				}
				at, err := where(ctx, session)
				if err != nil || at != second.name {
					t.Fatalf("got %q, %v, want %s", at, err, second.name)
				}
				for len(changed) > 0 {
					<-changed
				}
				server.AddTool(second.Server, protocol.Tool{Name: "new"}, func(context.Context, struct{}) (string, error) { return "", nil })
				select {
				case <-changed:
				case <-ctx.Done():
					t.Error("the client heard nothing of the new node")
				}
				if n, status := s.initializes(), session.Status(); n != 2 || status.Epoch != 1 {
					t.Errorf("the client has sent %d messages of a handshake, and is in epoch %d, want 2 and 1", n, status.Epoch)
				}
			})
		}
	}
}

// A body of 1 MiB reaches the node to which its session has moved, although the node in the
// session id is asked first.
//
// Guarantees: G-0073.8
func TestLargeBodyReachesAMovedSession(t *testing.T) {
	s := newStoredSite(t, "b", "c", "a")
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	session := s.connect(ctx, client.Options{ProtocolVersion: protocol.LatestLegacy})
	defer session.Close(ctx)
	s.node(2).kill(s)
	s.use(s.node(0))
	if at, err := where(ctx, session); at != "b" || err != nil {
		t.Fatalf("got %q, %v, want b", at, err)
	}
	again := s.start("a") // it has not got the session
	for _, at := range []*storedNode{again, s.node(1), s.node(1)} {
		s.use(at)
		for _, size := range []int{100, 1 << 20} {
			result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "size", Arguments: []byte(`{"text":"` + strings.Repeat("x", size) + `"}`)})
			if err != nil {
				t.Fatalf("%d bytes at node %s: %v", size, at.name, err)
			}
			if got, want := result.Content[0].(*protocol.TextContent).Text, fmt.Sprint(size, " at b"); got != want {
				t.Errorf("at node %s: got %q, want %q", at.name, got, want)
			}
		}
	}
}

// A node that shuts down frees idle sessions at once, while a call still runs in another session. The
// stream of events of an idle session ends, so that its client comes back elsewhere. The other
// session is freed when its call has ended. Meanwhile the node refuses what is not there any more,
// and takes nothing.
//
// Guarantees: G-0073.4
func TestDrainFreesSessions(t *testing.T) {
	s := newStoredSite(t, "b", "a")
	first, second := s.node(1), s.node(0)
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	idle := s.connect(ctx, client.Options{ProtocolVersion: protocol.LatestLegacy})
	defer idle.Close(ctx)
	busy := s.connect(ctx, client.Options{ProtocolVersion: protocol.LatestLegacy})
	defer busy.Close(ctx)
	answered := make(chan error, 1)
	go func() {
		_, err := busy.CallTool(ctx, &protocol.CallToolParams{Name: "wait"})
		answered <- err
	}()
	<-first.held
	down := make(chan error, 1)
	go func() { down <- first.handler.Shutdown(ctx, nil) }()
	s.use(second)
	<-first.store.Freed
	if at, err := where(ctx, idle); at != "b" || err != nil {
		t.Fatalf("got %q, %v, want b", at, err)
	}
	select {
	case err := <-down:
		t.Fatalf("the node has shut down, %v, want it to wait for the call", err)
	default:
	}
	close(first.hold)
	if err := <-answered; err != nil {
		t.Errorf("the call that was running: %v, want its answer", err)
	}
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if at, err := where(ctx, busy); at != "b" || err != nil {
		t.Fatalf("got %q, %v, want b", at, err)
	}
	if n := s.initializes(); n != 4 || idle.Status().Epoch != 1 || busy.Status().Epoch != 1 {
		t.Errorf("the clients have sent %d messages of a handshake, and are in the epochs %d and %d, want 4, 1 and 1", n, idle.Status().Epoch, busy.Status().Epoch)
	}
}

// post sends a message of a session to a node.
func (s *storedSite) post(to *storedNode, session, message string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("POST", "http://localhost/", strings.NewReader(message))
	for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": session} {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	to.handler.ServeHTTP(w, r)
	return w
}

// A node that shuts down passes on what still comes to it: what begins a session or needs none, and
// a request of one of its sessions, when the call under way there has ended. A response or a
// notification still reaches that call, here or through another node. When the node is closed, it passes on the rest.
//
// Guarantees: G-0073.10
func TestDrainPassesRequestsOn(t *testing.T) {
	s := newStoredSite(t, "b", "a")
	first := s.node(1)
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	sessions := map[string]*client.Session{}
	for _, what := range []string{"busy", "idle"} {
		sessions[what] = s.connect(ctx, client.Options{ProtocolVersion: protocol.LatestLegacy})
		defer sessions[what].Close(ctx)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := sessions["busy"].CallTool(ctx, &protocol.CallToolParams{Name: "wait"})
		answered <- err
	}()
	<-first.held
	down := make(chan error, 1)
	go func() { down <- first.handler.Shutdown(ctx, nil) }()
	<-first.store.Freed // the other session
	check := func(what string, session *client.Session) {
		t.Helper()
		for _, size := range []int{1, 200 << 10} {
			result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "size", Arguments: []byte(`{"text":"` + strings.Repeat("x", size) + `"}`)})
			if err != nil {
				t.Errorf("%s, %d bytes: %v", what, size, err)
			} else if got, want := result.Content[0].(*protocol.TextContent).Text, fmt.Sprint(size, " at b"); got != want {
				t.Errorf("%s: got %q, want %q", what, got, want)
			}
		}
	}
	check("an idle session", sessions["idle"])
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		begun := s.connect(ctx, client.Options{ProtocolVersion: version})
		check("a new client of "+version, begun)
		begun.Close(ctx)
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		check("a session with a call under way", sessions["busy"])
	}()
	for _, at := range []*storedNode{first, s.node(0)} {
		if w := s.post(at, s.waits, `{"jsonrpc":"2.0","method":"notifications/custom"}`); w.Code != http.StatusAccepted {
			t.Errorf("a notification at node %s: got %d %s", at.name, w.Code, w.Body)
		}
	}
	select {
	case <-waited:
		t.Error("two calls of one session ran at two nodes")
	case err := <-answered:
		t.Errorf("the call under way has ended: %v", err)
	default:
	}
	close(first.hold)
	if err := <-answered; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	<-waited
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	check("a session of a closed node", sessions["idle"])
	begun := s.connect(ctx, client.Options{})
	check("a new client of a closed node", begun)
	begun.Close(ctx)
	for what, session := range sessions {
		if epoch := session.Status().Epoch; epoch != 1 {
			t.Errorf("the client of the %s session is in epoch %d", what, epoch)
		}
	}
}

// The only node, when it shuts down, says to clients that a session may go on later, and to nodes
// that it does not take it.
//
// Guarantees: G-0073.4
func TestDrainTakesNoSession(t *testing.T) {
	s := newStoredSite(t, "a")
	first := s.node(0)
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	session := s.connect(ctx, client.Options{ProtocolVersion: protocol.LatestLegacy})
	defer session.Close(ctx)
	answered := make(chan error, 1)
	go func() {
		_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "wait"})
		answered <- err
	}()
	<-first.held
	down := make(chan error, 1)
	go func() { down <- first.handler.Shutdown(ctx, nil) }()
	request := func(id string, byNode bool) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "http://localhost/", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
		for name, value := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Session-Id": id} {
			r.Header.Set(name, value)
		}
		if byNode {
			r = streamable.Forwarded(r)
		}
		w := httptest.NewRecorder()
		first.handler.ServeHTTP(w, r)
		return w
	}
	free := "x.free" // of a node that is not there
	s.shared.Put(free)
	for w := request("a.begins nothing", false); w.Code == http.StatusNotFound; w = request("a.begins nothing", false) {
		// the node has not begun to shut down
	}
	if w := request(free, false); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || w.Header().Get("Connection") != "close" {
		t.Errorf("a client got %d %v, want 503 to be repeated on another connection", w.Code, w.Header())
	}
	if w := request(free, true); w.Code != http.StatusMisdirectedRequest || w.Header().Get("Mcp-Session-Node") != "" {
		t.Errorf("a node got %d %v, want 421 without a name", w.Code, w.Header())
	}
	close(first.hold)
	<-answered
	if err := <-down; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}
