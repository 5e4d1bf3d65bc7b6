package streamable

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

// A mesh is some nodes that share a store and reach each other without a socket.
type mesh struct {
	shared *SharedStore
	nodes  map[string]*meshNode

	mu   sync.Mutex
	hops []string // such as "a>b"
}

// A meshNode is a node, and its own Router.
type meshNode struct {
	*bench
	mesh   *mesh
	name   string
	store  *NodeStore
	down   bool // it refuses connections
	checks int  // how often a sender was established
}

func (n *meshNode) Node() string { return n.name }

func (n *meshNode) Reach(session string) http.Handler { return n.ReachNode(NodeOf(session)) }

func (n *meshNode) Another(string, ...string) string { return "" }

func (n *meshNode) ReachNode(name string) http.Handler {
	to := n.mesh.nodes[name]
	if to == nil || to == n {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mesh.mu.Lock()
		n.mesh.hops = append(n.mesh.hops, n.name+">"+name)
		n.mesh.mu.Unlock()
		if to.down {
			w.WriteHeader(http.StatusMisdirectedRequest)
			return
		}
		to.handler.ServeHTTP(w, Forwarded(r))
	})
}

// takeHops returns the hops since its last call.
func (m *mesh) takeHops() (hops string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	hops = strings.Join(m.hops, " ")
	m.hops = nil
	return hops
}

// inMesh runs a test of the nodes a, b and c, on the clock of a bubble.
func inMesh(t *testing.T, test func(t *testing.T, m *mesh, a, b, c *meshNode)) {
	synctest.Test(t, func(t *testing.T) {
		m := &mesh{shared: NewSharedStore(), nodes: make(map[string]*meshNode)}
		for _, name := range []string{"a", "b", "c"} {
			n := m.start(t, name)
			defer func() {
				n = m.nodes[name]
				n.handler.Close(0)
				n.finish(t)
				if held := n.handler.bodies.held(); held > 0 {
					t.Errorf("node %s: %d bytes of bodies are still held", name, held)
				}
			}()
		}
		test(t, m, m.nodes["a"], m.nodes["b"], m.nodes["c"])
	})
}

// start starts a node, perhaps again.
func (m *mesh) start(t *testing.T, name string) *meshNode {
	n := &meshNode{mesh: m, name: name, store: m.shared.Node(name)}
	acceptor := newAcceptor(respond)
	o := HandlerOptions{Router: n, Sessions: n.store, Check: func(r *http.Request) (Caller, *Denial) {
		n.checks++
		return NewCaller(byUser(r)), nil
	}}
	n.bench = &bench{t: t, handler: NewHandler(acceptor, o), acceptor: acceptor}
	m.nodes[name] = n
	return n
}

// die ends a node as kill -9 does.
func (n *meshNode) die() {
	n.down = true
	n.mesh.shared.Kill(n.name)
}

// echoes returns how often nodes have executed the request.
func (m *mesh) echoes() (total int) {
	for _, n := range m.nodes {
		for at := range n.links() {
			total += n.peer(n.t, at).count(func(p *peer) (echoes int) {
				for _, in := range p.received {
					if in.Message.Method == "echo" {
						echoes++
					}
				}
				return echoes
			})
		}
	}
	return total
}

// want sends a request to a node, and checks that it is served once, and which way it goes.
func (n *meshNode) want(session, hops string) {
	n.t.Helper()
	before := n.mesh.echoes()
	if status, body := n.ask(session); status != http.StatusOK {
		n.t.Errorf("at node %s: got %d %s, want 200", n.name, status, body)
	}
	if got := n.mesh.takeHops(); got != hops {
		n.t.Errorf("at node %s: the request went %q, want %q", n.name, got, hops)
	}
	if served := n.mesh.echoes() - before; served != 1 {
		n.t.Errorf("at node %s: the request was executed %d times, want once", n.name, served)
	}
}

// A request finds its session wherever it has moved, and later requests find it at once.
//
// Guarantees: G-0073.5, G-0073.8
func TestRouterFindsASessionThatHasMoved(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh, a, b, c *meshNode) {
		session, _ := a.begin()
		b.want(session, "b>a")
		a.die()
		b.want(session, "b>a") // b takes it
		b.want(session, "")
		c.want(session, "c>a c>b") // by the store
		c.want(session, "c>b")
		a = m.restart(t, a)
		a.want(session, "a>b") // by the store
		a.want(session, "a>b")
		c.handler.owners.drop(session)
		c.want(session, "c>a c>b") // by status 421 of a, which names b
		c.want(session, "c>b")
		b.die()
		c.want(session, "c>b") // c takes it
		a.want(session, "a>b a>c")
		if _, owner, _ := m.shared.record(session); owner != "c" {
			t.Errorf("the session belongs to %q, want c", owner)
		}
		for _, n := range m.nodes {
			if takes := len(n.store.of("Take")); takes > 4 {
				t.Errorf("node %s: got %d Takes, want none without a reason", n.name, takes)
			}
		}
	})
}

// restart replaces a node by a new process.
func (m *mesh) restart(t *testing.T, old *meshNode) *meshNode {
	old.handler.Close(0)
	old.finish(t)
	return m.start(t, old.name)
}

// A request that another node has served goes no further, whatever its method and the size of its
// body.
//
// Guarantees: G-0073.8
func TestRouterStopsWhereARequestIsServed(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh, a, b, c *meshNode) {
		session, _ := a.begin()
		big := strings.Replace(echoBody, `"a":1`, `"a":"`+strings.Repeat("x", 100<<10)+`"`, 1)
		for name, r := range map[string]*http.Request{
			"a small body": newRequest("POST", echoBody), "a large body": newRequest("POST", big), "no body": newRequest("GET", "", "Last-Event-ID: 7-1"),
		} {
			r.Header.Set(headerSession, session)
			w := httptest.NewRecorder()
			if b.handler.ServeHTTP(w, r); w.Code == http.StatusServiceUnavailable || w.Code == http.StatusNotFound || m.takeHops() != "b>a" {
				t.Errorf("%s: got %d %.200s, want the response of the other node", name, w.Code, w.Body)
			}
		}
		if takes, served := len(b.store.of("Take")), m.echoes(); takes > 0 || served != 2 || b.checks > 0 {
			t.Errorf("got %d Takes and %d checks where the requests arrived, and %d were executed, want none, none and 2", takes, b.checks, served)
		}
	})
}

// A node establishes the sender of a request once, however often the request is forwarded.
//
// Guarantees: G-0073.8
func TestRouterChecksASenderOncePerNode(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh, a, b, c *meshNode) {
		session, _ := a.begin()
		a.die()
		b.want(session, "b>a")
		m.restart(t, a)
		m.nodes["a"].checks, b.checks, c.checks = 0, 0, 0
		c.want(session, "c>a c>b")
		if m.nodes["a"].checks != 1 || b.checks != 1 || c.checks != 0 {
			t.Errorf("got %d, %d and %d checks, want 1, 1 and none", m.nodes["a"].checks, b.checks, c.checks)
		}
	})
}

// Two requests of a session that come to two nodes at once are both served, and one node has the
// session then.
//
// Guarantees: G-0073.5
func TestRouterWithRequestsAtTwoNodesAtOnce(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh, a, b, c *meshNode) {
		a.die()
		for range 100 {
			session := "a." + newSessionID()
			m.shared.put(session, "a", SessionRecord{Initialize: []byte(initializeBody("2025-11-25")), Version: "2025-11-25"})
			before := m.echoes()
			var both sync.WaitGroup
			for _, n := range []*meshNode{b, c} {
				both.Go(func() {
					status, body := n.ask(session)
					for ; status == http.StatusServiceUnavailable && strings.Contains(body, "at the moment"); status, body = n.ask(session) {
						// the other node has just taken the session
					}
					if status != http.StatusOK {
						t.Errorf("node %s: got %d %s, want 200", n.name, status, body)
					}
				})
			}
			both.Wait()
			_, owner, _ := m.shared.record(session)
			if (owner == "b") != b.handler.table.has(session) || (owner == "c") != c.handler.table.has(session) || owner == "a" {
				t.Fatalf("the session belongs to %q, and is at b: %t, at c: %t", owner, b.handler.table.has(session), c.handler.table.has(session))
			}
			if served := m.echoes() - before; served != 2 {
				t.Fatalf("the requests were executed %d times, want 2", served)
			}
		}
	})
}

// A misleading Router sends every request to nodes that refuse it, and name the next one.
type misleading struct {
	hops  []string
	names func(hop int) string
	reads int64                                    // how many bytes of the body a node reads before it refuses it
	alone bool                                     // no node is where the session began
	asked func(*http.Request, http.ResponseWriter) // is called with each request; may be nil
}

func (*misleading) Node() string { return "here" }

func (m *misleading) Reach(string) http.Handler {
	if m.alone {
		return nil
	}
	return m.ReachNode("first")
}

func (m *misleading) Another(string, ...string) string { return "" }

func (m *misleading) ReachNode(node string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.hops = append(m.hops, node)
		if m.asked != nil {
			m.asked(r, w)
		}
		io.CopyN(io.Discard, r.Body, m.reads)
		w.Header().Set(headerOwner, m.names(len(m.hops)))
		w.Header().Set("X-Odd", "yes")
		w.WriteHeader(http.StatusMisdirectedRequest)
		io.WriteString(w, "misdirected")
		http.NewResponseController(w).Flush()
	})
}

// A node learns whether another one has checked a request, before it checks it itself, and says so to
// the next one and to the node that has sent it. Only nodes are believed.
//
// Guarantees: G-0073.11
func TestNodesTellWhoHasChecked(t *testing.T) {
	for name, c := range map[string]struct {
		byNode  bool
		claims  string // a header of the request
		answers bool   // what the node says that is asked first
		taken   bool   // the session can be taken here
		before  bool   // what this node learns
		says    string // what this one says to the next
	}{
		"nobody":                 {says: "1"},
		"a client claims it":     {claims: "1", says: "1"},
		"the node before":        {byNode: true, claims: "1", before: true},
		"nobody before":          {byNode: true},
		"the node that it asked": {answers: true, before: true, says: "1"},
		"it is taken":            {answers: true, taken: true, before: true},
	} {
		t.Run(name, func(t *testing.T) {
			var told []string
			router := &misleading{names: func(int) string { return "" }, asked: func(r *http.Request, w http.ResponseWriter) {
				told = append(told, r.Header.Get(headerChecked))
				if c.answers {
					w.Header().Set(headerChecked, "1")
				}
			}}
			checks, before := 0, false
			o := HandlerOptions{Router: router, Check: func(r *http.Request) (Caller, *Denial) {
				checks++
				before = CheckedBefore(r)
				return testCaller(""), nil
			}}
			inStore(t, o, func(t *testing.T, b *bench, store *NodeStore) {
				session := moved(t, store.shared, "")
				if !c.taken {
					store.taking = func(context.Context, string) error { return &OwnedError{Node: "last"} }
				}
				r := newRequest("POST", echoBody, append(posting(), headerSession+": "+session)...).WithContext(b.t.Context())
				if c.claims != "" {
					r.Header.Set(headerChecked, c.claims)
				}
				if c.byNode {
					r = Forwarded(r)
				}
				w := httptest.NewRecorder()
				serveHTTP(b.handler, w, r)
				if checks != 1 || before != c.before {
					t.Errorf("it was checked %d times, and had been before: %t, want once and %t", checks, before, c.before)
				}
				says := w.Header().Get(headerChecked)
				if len(told) > 0 {
					says = ""
					if told[0] != "" {
						t.Errorf("the first node was told %q, before anybody has checked", told[0])
					}
					if len(told) > 1 {
						says = told[1]
					}
				}
				if want := cmp.Or(c.says, map[bool]string{true: "1"}[c.byNode]); says != want && !c.taken {
					t.Errorf("the next one is told %q, want %q", says, want)
				}
			})
		})
	}
}

// Nodes that send a request in circles get it twice. Then the store decides, and the client never
// sees what they say.
//
// Guarantees: G-0073.8
func TestRouterStopsAfterTwoHops(t *testing.T) {
	next := func(hop int) string { return fmt.Sprint("node-", hop) }
	for name, c := range map[string]struct {
		names  func(int) string
		err    error // of Take
		status int
		hops   string
	}{
		"only the store's":      {func(int) string { return "" }, &OwnedError{Node: "last"}, 503, "last"},
		"always another":        {next, &OwnedError{Node: "last"}, 503, "first node-1"},
		"the same":              {func(int) string { return "same" }, &OwnedError{Node: "same"}, 503, "first same"},
		"this one":              {func(int) string { return "here" }, &OwnedError{Node: "here"}, 503, "first"},
		"nobody, but the store": {func(int) string { return "" }, &OwnedError{Node: "last"}, 503, "first last"},
		"no session":            {next, ErrNoSession, 404, "first node-1"},
		"free":                  {next, nil, 200, "first node-1"},
	} {
		t.Run(name, func(t *testing.T) {
			router := &misleading{names: c.names, alone: strings.HasPrefix(c.hops, "last")}
			inStore(t, HandlerOptions{Router: router}, func(t *testing.T, b *bench, store *NodeStore) {
				session := moved(t, store.shared, "")
				if c.err != nil {
					store.taking = func(context.Context, string) error { return c.err }
				}
				w := b.send("POST", session)
				if w.Code != c.status || strings.Join(router.hops, " ") != c.hops || w.Header().Get("X-Odd") != "" || strings.Contains(w.Body.String(), "misdirected") {
					t.Errorf("got %d %v %s after %q, want %d after %q", w.Code, w.Header(), w.Body, router.hops, c.status, c.hops)
				}
				if (w.Header().Get("Retry-After") == "1") != (c.status == 503) {
					t.Errorf("got the headers %v", w.Header())
				}
				if held := b.handler.bodies.held(); held > 0 {
					t.Errorf("%d bytes of bodies are still held", held)
				}
			})
		})
	}
}

// A body of 64 KiB is kept, so that another node can serve it even if the first one has read it. Of a
// larger one the other node reads nothing before it accepts it. If it has, the request is refused,
// and may be repeated.
//
// Guarantees: G-0073.8
func TestRouterKeepsSmallBodies(t *testing.T) {
	long := func(size int) string {
		return strings.Replace(echoBody, `"a":1`, `"a":"`+strings.Repeat("x", size-len(echoBody)-1)+`"`, 1)
	}
	for name, c := range map[string]struct {
		size, length int64 // length is -1 if it is not announced
		reads        int64
		status       int
	}{
		"small":                       {100, 100, 0, 200},
		"small, read":                 {100, 100, 100, 200},
		"64 KiB, read":                {64 << 10, 64 << 10, 64 << 10, 200},
		"larger":                      {64<<10 + 1, 64<<10 + 1, 0, 200},
		"larger, one byte read":       {64<<10 + 1, 64<<10 + 1, 1, 503},
		"1 MiB":                       {1 << 20, 1 << 20, 0, 200},
		"unknown length":              {100, -1, 0, 200},
		"unknown length, read":        {100, -1, 100, 503},
		"none":                        {0, 0, 0, 400},
		"above the limit of a body":   {5 << 20, 5 << 20, 0, 413},
		"above it, of unknown length": {5 << 20, -1, 0, 413},
	} {
		t.Run(name, func(t *testing.T) {
			router := &misleading{names: func(int) string { return "" }, reads: c.reads}
			inStore(t, HandlerOptions{Router: router}, func(t *testing.T, b *bench, store *NodeStore) {
				body := ""
				if c.size > 0 {
					body = long(int(c.size))
				}
				r := newRequest("POST", body, append(posting(), headerSession+": "+moved(t, store.shared, ""))...)
				r.ContentLength = c.length
				w := httptest.NewRecorder()
				serveHTTP(b.handler, w, r.WithContext(t.Context()))
				if w.Code != c.status || c.status == 200 && w.Body.Len() < int(c.size)/2 {
					t.Errorf("got %d %.200s, want %d", w.Code, w.Body, c.status)
				}
				if again := w.Header().Get("Retry-After") == "1"; again != (c.status == 503) {
					t.Errorf("got the headers %v", w.Header())
				}
				if held := b.handler.bodies.held(); held > 0 {
					t.Errorf("%d bytes of bodies are still held", held)
				}
			})
		})
	}
}

// A client cannot pretend to be a node: it gets no 421, and is where it is.
//
// Guarantees: G-0073.9, G-0043.3
func TestForwardedIsWhatANodeSaysOnly(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh, a, b, c *meshNode) {
		session, _ := a.begin()
		lines := append(posting(), headerSession+": "+session, headerForwarded+": 1", "X-Forwarded-For: 203.0.113.9", "X-Forwarded-Proto: https")
		for _, n := range []*meshNode{b, c} {
			w := httptest.NewRecorder()
			n.handler.ServeHTTP(w, newRequest("POST", echoBody, lines...))
			if w.Code != http.StatusNotFound || m.takeHops() != "" {
				t.Errorf("node %s: got %d %s, want 404 without a hop", n.name, w.Code, w.Body)
			}
			w = httptest.NewRecorder()
			n.handler.ServeHTTP(w, Forwarded(newRequest("POST", echoBody, lines...)))
			if w.Code != http.StatusMisdirectedRequest || w.Header().Get(headerOwner) != "a" || m.takeHops() != "" {
				t.Errorf("node %s: a node got %d %v, want 421 that names a", n.name, w.Code, w.Header())
			}
		}
		w := httptest.NewRecorder()
		a.handler.ServeHTTP(w, newRequest("POST", echoBody, lines...))
		origins := a.peer(t, 0).received
		if origin := origins[len(origins)-1].Origin; w.Code != 200 || origin.RemoteAddr != "192.0.2.1:1234" || origin.TLS != nil {
			t.Errorf("of a client: got %d, and the origin %+v, want its own address", w.Code, origin)
		}
	})
}

// A node does not check again what the node before has checked: origin and host.
//
// Guarantees: G-0073.9
func TestForwardedRequestsHaveBeenChecked(t *testing.T) {
	inStore(t, HandlerOptions{AllowedHosts: []string{"mcp.example"}}, func(t *testing.T, b *bench, store *NodeStore) {
		session, _ := b.begin()
		for _, byNode := range []bool{false, true} {
			r := newRequest("POST", echoBody, append(posting(), headerSession+": "+session, "Origin: https://other.example.com")...)
			r.Host = "other.example.com"
			if byNode {
				r = Forwarded(r)
			}
			w := httptest.NewRecorder()
			if b.handler.ServeHTTP(w, r); (w.Code == http.StatusOK) != byNode || w.Code != http.StatusOK && w.Code != http.StatusForbidden {
				t.Errorf("by a node: %t: got %d %s", byNode, w.Code, w.Body)
			}
		}
	})
}

// A node that shuts down takes nothing. It says to a client that the session may be elsewhere, and to
// a node that it must go on without this one. Without a store, everything is as ever.
//
// Guarantees: G-0073.4
func TestRouterOfANodeThatDrains(t *testing.T) {
	for _, stored := range []bool{true, false} {
		for _, closed := range []bool{false, true} {
			for _, byNode := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) {
					store := NewSharedStore().Node("here")
					o := HandlerOptions{}
					if stored {
						o.Sessions = store
					}
					h := NewHandler(accepting(nil), o)
					defer h.Close(0)
					store.shared.Put("x")
					if h.table.drain(); closed {
						h.Close(0)
					}
					r := newRequest("POST", echoBody, headerSession+": x")
					if byNode {
						r = Forwarded(r)
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					want := http.StatusServiceUnavailable
					switch {
					case stored && byNode:
						want = http.StatusMisdirectedRequest
					case !stored && !closed:
						want = http.StatusNotFound
					}
					if w.Code != want || w.Header().Get("Connection") != "close" || len(store.of("Take")) > 0 {
						t.Errorf("stored: %t, closed: %t, by a node: %t: got %d %v after %d Takes, want %d after none", stored, closed, byNode, w.Code, w.Header(), len(store.of("Take")), want)
					}
					if w.Header().Get(headerOwner) != "" {
						t.Errorf("got the owner %q, want none", w.Header().Get(headerOwner))
					}
				})
			}
		}
	}
}

// A request of a session that is being restored here waits for it, and goes nowhere else.
//
// Guarantees: G-0073.5
func TestRouterKeepsRequestsOfARestoredSession(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh, a, b, c *meshNode) {
		session, _ := a.begin()
		a.die()
		release := make(chan struct{})
		b.store.taking = func(context.Context, string) error { <-release; return nil }
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if status, body := b.ask(session); status != http.StatusOK {
					t.Errorf("got %d %s, want 200", status, body)
				}
			})
			synctest.Wait()
		}
		close(release)
		both.Wait()
		if hops := m.takeHops(); hops != "b>a" {
			t.Errorf("the requests went %q, want only the first one to node a", hops)
		}
	})
}

// A node that is remembered as the owner is asked once. If it is not there any more, it is forgotten.
//
// Guarantees: G-0073.8
func TestRouterForgetsAnOwnerThatIsGone(t *testing.T) {
	router := &misleading{names: func(int) string { return "" }}
	inStore(t, HandlerOptions{Router: router}, func(t *testing.T, b *bench, store *NodeStore) {
		store.taking = func(context.Context, string) error { return &OwnedError{Node: "there"} }
		b.handler.owners.put("x", "there")
		if w := b.send("POST", "x"); w.Code != http.StatusServiceUnavailable || strings.Join(router.hops, " ") != "there" {
			t.Errorf("got %d after %q, want 503 after one hop", w.Code, router.hops)
		}
		if node := b.handler.owners.get("x"); node != "" {
			t.Errorf("node %q is still remembered, want none", node)
		}
	})
	inMesh(t, func(t *testing.T, m *mesh, a, b, c *meshNode) {
		session, _ := a.begin()
		b.handler.owners.put(session, "gone")
		b.want(session, "b>a")
		if node := b.handler.owners.get(session); node != "" {
			t.Errorf("node %q is still remembered, want none", node)
		}
	})
}

// The nodes of sessions that have moved are remembered for a limited number of them.
func TestRouterRemembersOwners(t *testing.T) {
	var o owners
	if o.put("s", ""); len(o.of) != 0 || o.get("s") != "" {
		t.Error("a session without a node is remembered")
	}
	for n := range mostOwners + 10 {
		o.put(fmt.Sprint(n), "a")
	}
	o.put(fmt.Sprint(mostOwners+9), "b")
	if len(o.of) != mostOwners || o.get(fmt.Sprint(mostOwners+9)) != "b" {
		t.Errorf("%d sessions are remembered, the last one at %q, want %d and b", len(o.of), o.get(fmt.Sprint(mostOwners+9)), mostOwners)
	}
	if o.drop(fmt.Sprint(mostOwners + 9)); o.get(fmt.Sprint(mostOwners+9)) != "" {
		t.Error("a dropped session is remembered")
	}
}

// What one node refuses so that another one serves it is no refusal: no Auditor hears of it, and
// nothing is counted.
//
// Guarantees: G-0071.3
func TestRouterRefusesNothingThatIsServedElsewhere(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh, a, b, c *meshNode) {
		session, _ := a.begin()
		audit := &auditing{acceptor: c.acceptor}
		c.handler.acceptor = audit
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, Forwarded(newRequest("POST", echoBody, append(posting(), headerSession+": "+session)...)))
		if stats := c.handler.Stats(); w.Code != http.StatusMisdirectedRequest || len(audit.refused) > 0 || len(stats.Refused) > 0 {
			t.Errorf("got %d, the refusals %v and the counts %v, want 421 and none", w.Code, audit.refused, stats.Refused)
		}
		c.handler.ServeHTTP(httptest.NewRecorder(), Forwarded(newRequest("POST", echoBody, append(posting(), headerSession+": unknown")...)))
		if !slices.Equal(audit.refused, []int{http.StatusNotFound}) {
			t.Errorf("of an unknown session: got the refusals %v, want 404", audit.refused)
		}
	})
}

type auditing struct {
	*acceptor
	refused []int // the statuses
	all     []transport.Refusal
}

func (*auditing) Audits() bool { return true }

func (a *auditing) Refused(r transport.Refusal) {
	a.refused, a.all = append(a.refused, r.Status), append(a.all, r)
}

// Forward lets the store decide about a session whose node refuses connections, at once.
//
// Guarantees: G-0073.8
func TestForwardToAStoppedNodeAsksTheStore(t *testing.T) {
	for name, c := range map[string]struct {
		owner  string
		err    error // of the connection
		status int
	}{
		"its node has ended": {"", errRefused, http.StatusOK}, "its node is away": {"there", errRefused, http.StatusServiceUnavailable},
		"it resets": {"there", errReset, http.StatusBadGateway},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := NewSharedStore().Node("here")
				store.shared.Node("there")
				forward := newForwarder(&url.URL{Scheme: "http", Host: "there.test"}, roundTripper(func(*http.Request) (*http.Response, error) { return nil, c.err }))
				a := newAcceptor(respond)
				b := &bench{t: t, acceptor: a, handler: NewHandler(a, HandlerOptions{Sessions: store, Router: &Nodes{Self: "here", Others: map[string]http.Handler{"there": forward}}})}
				defer a.finish(t)
				defer b.handler.Close(0)
				session := "there." + newSessionID()
				store.shared.put(session, c.owner, SessionRecord{Initialize: []byte(initializeBody("2025-11-25")), Version: "2025-11-25"})
				if status, body := b.ask(session); status != c.status {
					t.Errorf("got %d %s, want %d", status, body, c.status)
				}
			})
		})
	}
}

// A GET stream that a node has forwarded ends when that node is closed, although the session goes on: its client comes back elsewhere.
//
// Guarantees: G-0073.10
func TestAForwardedStreamEndsWithItsNode(t *testing.T) {
	inMesh(t, func(t *testing.T, m *mesh, a, _, c *meshNode) {
		session, p := a.begin()
		_, done := c.serve(t.Context(), "GET", "", headerSession+": "+session)
		if got := m.takeHops(); got != "c>a" {
			t.Fatalf("the request went %q, want to the node of the session", got)
		}
		if err := c.handler.Close(0); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !wait.IsClosed(done) {
			t.Error("the stream goes on")
		}
		if losses := p.count(func(p *peer) int { return len(p.losses) }); losses > 0 {
			t.Error("the session has ended")
		}
	})
}
