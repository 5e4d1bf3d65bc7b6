package cluster_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// guard is how long a test in real time waits for what should happen soon.
const guard = 30 * time.Second

// await waits in real time until something holds. It looks again when a lease has changed at
// the node.
func (n testNode) await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	changed := make(chan struct{}, 1)
	n.OnLease(func(string) {
		select {
		case changed <- struct{}{}:
		default: // it looks anyway
		}
	})
	late := time.NewTimer(guard)
	defer late.Stop()
	for !holds() {
		select {
		case <-changed:
		case <-late.C:
			t.Fatalf("node %s: not within %v: %s", n.Name(), guard, what)
		}
	}
}

// reaches waits until a node can forward requests to another one.
func (n testNode) reaches(t testing.TB, other string) http.Handler {
	t.Helper()
	n.await(t, "it can reach "+other, func() bool { return n.Router().ReachNode(other) != nil })
	return n.Router().ReachNode(other)
}

// A request of a session goes to the node that its id names, whatever its headers claim, and the
// node sees where the client is. The nodes count it, and send the engine nothing.
//
// Guarantees: G-0077.3, G-0077.7
func TestRouterReachesMembers(t *testing.T) {
	s := clustertest.New(clustertest.Options{})
	a, b := join(t, s, "a"), join(t, s, "b")
	var from, path string
	serve(t, b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from, path = r.RemoteAddr, r.URL.Path
		io.Copy(w, r.Body)
	}))
	a.reaches(t, "b")
	router := a.Router()
	if router.Node() != "a" || router.Reach("a.x") != nil || router.Reach("c.x") != nil || router.Reach("x") != nil || router.ReachNode("a") != nil {
		t.Error("got a way to this node, or to one that does not exist")
	}
	sent, received := a.engine.Messages()
	r := httptest.NewRequest("POST", "http://mcp.example/mcp", strings.NewReader("hello"))
	r.Header.Set("X-Forwarded-For", "198.51.100.7")
	w := httptest.NewRecorder()
	router.Reach("b.x").ServeHTTP(w, r)
	if w.Code != http.StatusOK || w.Body.String() != "hello" || from != "192.0.2.1:1234" || path != "/mcp" {
		t.Errorf("got %d %q; the node was asked for %s by %s", w.Code, w.Body, path, from)
	}
	if nowSent, nowReceived := a.engine.Messages(); nowSent-sent > 1 || nowReceived-received > 2 { // the renewals of the leases
		t.Errorf("a forwarded request took %d messages and %d answers of the engine", nowSent-sent, nowReceived-received)
	}
	if h := a.Report().Hop; h != (cluster.HopReport{Forwarded: 1}) {
		t.Errorf("a reports %+v", h)
	}
	if h := b.Report().Hop; h != (cluster.HopReport{Received: 1}) {
		t.Errorf("b reports %+v", h)
	}
	closeNode(t, b.Node)
	a.await(t, "it does not reach b", func() bool { return router.ReachNode("b") == nil })
}

// serve begins to serve other nodes.
func serve(t testing.TB, n testNode, h http.Handler) {
	t.Helper()
	if err := n.Serve(h); err != nil {
		t.Fatal(err)
	}
}

// A node that has ended without a word is reachable as far as its lease says. What is sent there
// was not sent: the response is 421, and the error of a RoundTripper is that of a dial.
//
// Guarantees: G-0077.2
func TestRouterOfANodeThatWasKilled(t *testing.T) {
	t.Parallel()
	s := clustertest.New(clustertest.Options{})
	a, b := join(t, s, "a"), join(t, s, "b")
	serve(t, b, http.NotFoundHandler())
	if err := b.Mount("/server/x", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.Path) })); err != nil {
		t.Fatal(err)
	}
	to := a.reaches(t, "b")
	over := a.RoundTripper("b")
	call := func() (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://b/server/x/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		return over.RoundTrip(r)
	}
	response, err := call()
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); string(body) != "/mcp" || err != nil {
		t.Errorf("got %q, %v of what is mounted", body, err)
	}
	b.kill(t)
	w := httptest.NewRecorder()
	to.ServeHTTP(w, httptest.NewRequest("POST", "/mcp", strings.NewReader("{}")))
	if w.Code != http.StatusMisdirectedRequest {
		t.Errorf("got %d %s, want 421", w.Code, w.Body)
	}
	var dial *net.OpError
	if response, err := call(); !errors.As(err, &dial) || dial.Op != "dial" {
		t.Errorf("got %v, %v, want an error of a dial", response, err)
	}
}

// A node announces where others reach it when it serves, and says what it cannot use.
func TestServeAnnouncesTheAddress(t *testing.T) {
	s := clustertest.New(clustertest.Options{})
	watch := join(t, s, "watch")
	for name, c := range map[string]struct{ hop, advertise, want string }{
		"default":     {"", "", "127.0.0.1:"},
		"everywhere":  {":0", "", "127.0.0.1:"},
		"another one": {"127.0.0.1:0", "node.example:7", "node.example:7"},
		"wrong":       {"nowhere", "", ""},
		"unspecified": {":0", "0.0.0.0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := s.Engine()
			o := options("n")
			o.Hop, o.Advertise = c.hop, c.advertise
			n, err := cluster.Join(context.Background(), e, o)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				closeNode(t, n)
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}()
			if m, _ := n.Member("n"); m.Address != "" {
				t.Errorf("the node announces %q before it serves", m.Address)
			}
			if err := n.Serve(http.NotFoundHandler()); (err == nil) != (c.want != "") {
				t.Fatalf("got %v, want an address: %t", err, c.want != "")
			}
			if c.want == "" {
				return
			}
			epoch := n.Self().Epoch
			watch.await(t, "it knows the address", func() bool {
				m, _ := watch.Member("n")
				return m.Epoch == epoch && strings.HasPrefix(m.Address, c.want) && len(m.Certificate) == 32
			})
		})
	}
}

// Close waits for the requests of other nodes, and cuts them off when its time is over.
//
// Guarantees: G-0077.6
func TestCloseWaitsForOtherNodes(t *testing.T) {
	for _, patient := range []bool{true, false} {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		begun, goOn := make(chan struct{}), make(chan struct{})
		serve(t, b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
		}))
		to := a.reaches(t, "b")
		status := make(chan int, 1)
		go func() {
			w := httptest.NewRecorder()
			to.ServeHTTP(w, httptest.NewRequest("POST", "/mcp", strings.NewReader("{}")))
			status <- w.Code
		}()
		select {
		case <-begun:
		case got := <-status:
			t.Fatalf("got %d before the node was asked", got)
		}
		ctx, cancel := context.WithTimeout(context.Background(), guard)
		closed := make(chan error, 1)
		if !patient {
			cancel()
		}
		go func() { closed <- b.Node.Close(ctx) }()
		want := http.StatusBadGateway
		if patient {
			want = http.StatusOK
			b.closing(t)
			close(goOn)
		}
		if err := <-closed; (err == nil) != patient {
			t.Errorf("patient: %t: Close returned %v", patient, err)
		}
		if got := <-status; got != want {
			t.Errorf("patient: %t: the request got %d, want %d", patient, got, want)
		}
		cancel()
	}
}

// closing waits until a node refuses connections of other nodes.
func (n testNode) closing(t testing.TB) {
	t.Helper()
	m, _ := n.Member(n.Name())
	for late := time.Now().Add(guard); time.Now().Before(late); {
		c, err := net.Dial("tcp", m.Address)
		if err != nil {
			return
		}
		c.Close()
	}
	t.Fatalf("node %s accepts connections", n.Name())
}

// An opening transport has a server that says nothing.
type opening struct{}

func (opening) Open(context.Context) (transport.Link, error) {
	near, _ := inmem.Pipe(inmem.Options{})
	return near, nil
}

// Close ends the servers of a node before it waits for the requests of other nodes: those of their clients last as long as the servers.
//
// Guarantees: G-0077.6
func TestCloseWaitsForNoClientOfItsServers(t *testing.T) {
	s := clustertest.New(clustertest.Options{})
	a, b := join(t, s, "a"), join(t, s, "b")
	upstream := a.Upstream("silent", opening{}, cluster.UpstreamOptions{})
	if _, err := upstream.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.await(t, "the claim", func() bool {
		m, _ := b.Member("a")
		by, _, _ := b.Holder("srv.ONUWYZLOOQ") // its name in base32
		return m.Address != "" && by.Node == "a"
	})
	opened := make(chan error, 1)
	go func() {
		_, err := b.Upstream("silent", opening{}, cluster.UpstreamOptions{}).Open(t.Context())
		opened <- err
	}()
	for a.Report().Hop.Received == 0 {
		runtime.Gosched()
	}
	ctx, cancel := context.WithTimeout(t.Context(), guard/3)
	defer cancel()
	if err := a.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := <-opened; err == nil {
		t.Error("the client has a link to a server that has ended")
	}
}
