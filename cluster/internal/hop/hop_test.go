package hop

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/internal/testenv"
)

// guard is how long a test waits for what should happen at once.
const guard = 20 * time.Second

// A table contains the nodes that live.
type table struct {
	mu      sync.Mutex
	living  map[string]Peer
	changed chan struct{} // closed and replaced at each change
	hops    []*Hop        // of the test
}

func newTable() *table { return &table{living: make(map[string]Peer), changed: make(chan struct{})} }

func (l *table) set(p Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.living[p.Node] = p
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *table) remove(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.living, node)
}

func (l *table) Living(node string) (Peer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.living[node]
	return p, ok
}

func (l *table) OfKey(spki string) (string, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.living {
		if p.SPKI == spki {
			return p.Node, l.changed
		}
	}
	return "", l.changed
}

// closeUnused closes the lines that no request uses. A server that ends tells the other side of each, and
// waits for a second.
func (l *table) closeUnused() {
	for _, h := range l.hops {
		h.mu.Lock()
		routes := slices.Collect(maps.Values(h.routes))
		h.mu.Unlock()
		for _, r := range routes {
			r.lines.close()
		}
	}
}

// A testHop is a node and the address at which it listens.
type testHop struct {
	*Hop
	address string
}

// begin begins a node that is not in a table.
func begin(t *testing.T, of Peers) *testHop {
	t.Helper()
	h := newHop(t, of)
	address, err := h.Listen("127.0.0.1:0", "")
	if err != nil {
		t.Fatal(err)
	}
	return &testHop{h, address}
}

// newHop makes a node that does not listen yet.
func newHop(t *testing.T, of Peers) *Hop {
	t.Helper()
	return newHopWithLog(t, of, slog.DiscardHandler)
}

func newHopWithLog(t *testing.T, of Peers, log slog.Handler) *Hop {
	t.Helper()
	h, err := New(of, slog.New(log))
	if err != nil {
		t.Fatal(err)
	}
	known, _ := of.(*table)
	if known != nil {
		known.hops = append(known.hops, h)
	}
	t.Cleanup(func() {
		if known != nil {
			known.closeUnused()
		}
		ctx, cancel := context.WithTimeout(context.Background(), guard)
		defer cancel()
		if err := h.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return h
}

func peerOf(node string, h *testHop) Peer {
	return Peer{Node: node, Address: h.address, SPKI: h.SPKI()}
}

// pair begins two nodes, a and b. B serves its sessions with a handler.
func pair(t *testing.T, sessions http.HandlerFunc) (a, b *testHop, of *table) {
	t.Helper()
	of = newTable()
	a, b = begin(t, of), begin(t, of)
	of.set(peerOf("a", a))
	of.set(peerOf("b", b))
	if sessions != nil {
		b.Mount(SessionPath, sessions)
	}
	return a, b, of
}

// front serves clients at a, and forwards everything to b.
func front(t *testing.T, a *testHop) *httptest.Server {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.To("b").ServeHTTP(w, r) }))
	t.Cleanup(site.Close)
	return site
}

func do(t *testing.T, r *http.Request) (status int, body string) {
	t.Helper()
	response, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(got)
}

func request(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	return r
}

// The other node sees the request as the first one has received it, and only what the first node
// says of it counts.
//
// Guarantees: G-0077.3
func TestForwardedAsReceived(t *testing.T) {
	var got *http.Request
	var body []byte
	a, _, _ := pair(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusTeapot)
	})
	for _, secure := range []bool{false, true} {
		inner := http.StripPrefix("/app", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.To("b").ServeHTTP(w, r) }))
		site := httptest.NewUnstartedServer(inner)
		if secure {
			site.StartTLS()
		} else {
			site.Start()
		}
		r := request(t, "POST", site.URL+"/app/m%2Fcp/x?q=1;2&z=%41", strings.NewReader("hello"))
		r.Host = "mcp.example.com"
		r.Header.Set("Authorization", "Bearer secret")
		r.Header["X-Forwarded-For"] = []string{"203.0.113.7", "198.51.100.1"}
		r.Header.Set("X-Forwarded-Proto", "https")
		r.Header.Set("X-Forwarded-Host", "other.example.com")
		r.Header.Set("Forwarded", "for=1.2.3.4")
		r.Header.Set(headerReceived, "for=6.6.6.6&proto=https")
		response, err := site.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		site.Close()
		if response.StatusCode != http.StatusTeapot || response.Header.Get("X-Answer") != "yes" {
			t.Errorf("got %d %v, want the answer of the node", response.StatusCode, response.Header)
		}
		local, _ := got.Context().Value(http.LocalAddrContextKey).(net.Addr)
		for what, pair := range map[string][2]string{
			"path": {got.URL.Path, "/app/m/cp/x"}, "escaped path": {got.URL.EscapedPath(), "/app/m%2Fcp/x"},
			"query": {got.URL.RawQuery, "q=1;2&z=%41"}, "RequestURI": {got.RequestURI, "/app/m%2Fcp/x?q=1;2&z=%41"},
			"method": {got.Method, "POST"}, "host": {got.Host, "mcp.example.com"}, "body": {string(body), "hello"},
			"credentials":       {got.Header.Get("Authorization"), "Bearer secret"},
			"X-Forwarded-For":   {strings.Join(got.Header["X-Forwarded-For"], "|"), "203.0.113.7|198.51.100.1"},
			"X-Forwarded-Proto": {got.Header.Get("X-Forwarded-Proto"), "https"},
			"X-Forwarded-Host":  {got.Header.Get("X-Forwarded-Host"), "other.example.com"},
			"Forwarded":         {got.Header.Get("Forwarded"), "for=1.2.3.4"},
			"received":          {got.Header.Get(headerReceived), ""},
			"local address":     {local.String(), site.Listener.Addr().String()},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: got %q, want %q", what, pair[0], pair[1])
			}
		}
		if !strings.HasPrefix(got.RemoteAddr, "127.0.0.1:") || got.RemoteAddr == a.address {
			t.Errorf("got the client's address %q", got.RemoteAddr)
		}
		if (got.TLS != nil) != secure || secure && len(got.TLS.PeerCertificates) > 0 {
			t.Errorf("secure %t: got the TLS state %+v, want none of the connection between the nodes", secure, got.TLS)
		}
	}
}

// A node tells the next one which client a proxy has named, if it trusts that proxy. What the request says of that itself
// does not count.
//
// Guarantees: G-0086.5
func TestTheClientSurvivesTheHop(t *testing.T) {
	var got string
	a, _, _ := pair(t, func(_ http.ResponseWriter, r *http.Request) { got = network.Client(r.Context()) })
	for _, want := range []string{"", "192.0.2.1", "2001:db8::1"} {
		site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if want != "" {
				r = r.WithContext(network.WithClient(r.Context(), want))
			}
			a.To("b").ServeHTTP(w, r)
		}))
		r := request(t, "POST", site.URL, nil)
		r.Header.Set(headerReceived, "for=6.6.6.6&client=6.6.6.6&proto=https")
		response, err := site.Client().Transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		site.Close()
		if got != want {
			t.Errorf("got the client %q, want %q", got, want)
		}
	}
}

// Nobody is served without a key that a living node has published, and no request is sent to a
// node with another key. In both cases the request was not sent.
//
// Guarantees: G-0077.1, G-0077.2
func TestKeysOfLivingNodesOnly(t *testing.T) {
	t.Parallel() // it waits
	served := false
	a, b, of := pair(t, func(http.ResponseWriter, *http.Request) { served = true })
	stranger := begin(t, of)
	for name, c := range map[string]struct {
		from *testHop
		b    Peer
	}{
		"a stranger asks":                     {stranger, peerOf("b", b)},
		"another one has the address of b":    {a, Peer{Node: "b", Address: stranger.address, SPKI: b.SPKI()}},
		"b publishes another key than it has": {a, Peer{Node: "b", Address: b.address, SPKI: stranger.SPKI()}},
	} {
		t.Run(name, func(t *testing.T) {
			of.set(c.b)
			site := front(t, c.from)
			status, body := do(t, request(t, "POST", site.URL, strings.NewReader("{}")))
			if status != http.StatusMisdirectedRequest || !strings.Contains(body, "not sent") || served {
				t.Errorf("got %d %q, served %t, want 421", status, body, served)
			}
			if s := c.from.Stats(); s.Unsent == 0 || s.Unknown != 0 || s.Open != 0 {
				t.Errorf("got %+v, want unsent requests only", s)
			}
		})
	}
	if n := b.Stats().Refused; n != 1 {
		t.Errorf("b has refused %d keys, want 1", n)
	}
	if n := b.Stats().Received; n != 0 {
		t.Errorf("b has received %d requests, want 0", n)
	}
}

// Connections without TLS, with TLS 1.2, without a certificate, or with another protocol end before a request.
//
// Guarantees: G-0077.1
func TestDoorRequiresTLSAndACertificate(t *testing.T) {
	a, b, _ := pair(t, func(http.ResponseWriter, *http.Request) { t.Error("a request is served") })
	for name, settings := range map[string]*tls.Config{
		"no TLS":         nil,
		"TLS 1.2":        {MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{a.certificate}, NextProtos: []string{"h2"}},
		"no certificate": {NextProtos: []string{"h2"}},
		"HTTP/1.1":       {Certificates: []tls.Certificate{a.certificate}, NextProtos: []string{"http/1.1"}},
		"no protocol":    {Certificates: []tls.Certificate{a.certificate}},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := net.Dial("tcp", b.address)
			if err != nil {
				t.Fatal(err)
			}
			defer raw.Close()
			raw.SetDeadline(time.Now().Add(guard))
			c := raw
			if settings != nil {
				settings.InsecureSkipVerify = true
				c = tls.Client(raw, settings)
			}
			io.WriteString(c, "GET /session/ HTTP/1.1\r\nHost: b\r\n"+headerReceived+": proto=http\r\n\r\n")
			got, err := io.ReadAll(c)
			if settings != nil && (err == nil || len(got) > 0) {
				t.Errorf("got %q, %v, want an error of TLS", got, err)
			}
			if settings == nil && strings.Contains(string(got), "200 OK") {
				t.Errorf("got %q, want no service", got)
			}
		})
	}
}

// A node that has just begun is served as soon as the others hear of it.
func TestNodeThatIsFasterThanTheNewsOfIt(t *testing.T) {
	t.Parallel() // it waits
	asked := make(chan struct{})
	inner := newTable()
	of := &signalling{table: inner, asked: asked}
	a, b := begin(t, inner), begin(t, of)
	inner.set(peerOf("b", b))
	b.Mount(SessionPath, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	go func() {
		<-asked
		inner.set(peerOf("a", a))
	}()
	if status, body := do(t, request(t, "GET", front(t, a).URL, nil)); status != http.StatusOK {
		t.Errorf("got %d %q, want 200", status, body)
	}
}

// A signalling table says when it is asked for a key.
type signalling struct {
	*table
	once  sync.Once
	asked chan struct{}
}

func (s *signalling) OfKey(spki string) (string, <-chan struct{}) {
	node, changed := s.table.OfKey(spki)
	s.once.Do(func() { close(s.asked) })
	return node, changed
}

// The requests of a node that no longer lives are not served, also over a connection that it
// already has. What it has asked before goes on.
//
// Guarantees: G-0077.1
func TestNodeThatHasEnded(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	a, b, of := pair(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			close(begun)
			<-goOn
		}
		io.WriteString(w, "done")
	})
	site := front(t, a)
	long := make(chan string, 1)
	r := request(t, "GET", site.URL+"/long", nil)
	go func() {
		response, err := site.Client().Do(r)
		if err != nil {
			long <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		long <- string(body)
	}()
	testenv.Receive(t, begun, "the node serves the request")
	of.remove("a")
	if status, _ := do(t, request(t, "GET", site.URL+"/short", nil)); status != http.StatusMisdirectedRequest {
		t.Errorf("got %d, want 421", status)
	}
	close(goOn)
	if got := testenv.Receive(t, long, "the request that had begun ends"); got != "done" {
		t.Errorf("the request that had begun got %q, want its response", got)
	}
	if got := b.Stats().Received; got != 1 {
		t.Errorf("b has served %d requests, want 1", got)
	}
	of.remove("b")
	if a.To("b") != nil || a.RoundTripper("b") != nil || a.To("nobody") != nil {
		t.Error("got a way to a node that does not live, want none")
	}
}

// A node that lives and cannot be reached is named in the log, once. The body of the request is closed, also a long one.
func TestNodeThatCannotBeReached(t *testing.T) {
	of := newTable()
	var log bytes.Buffer
	h := newHopWithLog(t, of, slog.NewTextHandler(&log, nil))
	b := begin(t, of)
	refuses, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refuses.Close()
	of.set(Peer{Node: "b", Address: refuses.Addr().String(), SPKI: b.SPKI()})
	for range 3 {
		answer := httptest.NewRecorder()
		h.To("b").ServeHTTP(answer, httptest.NewRequest("POST", "/", strings.NewReader("{}")))
		if answer.Code != http.StatusMisdirectedRequest {
			t.Errorf("got %d, want 421", answer.Code)
		}
	}
	for _, length := range []int64{2, maxKept + 1, -1} {
		body := &closing{Reader: strings.NewReader("{}")}
		r := request(t, "POST", "http://b/session/", body)
		r.ContentLength = length
		if _, err := h.RoundTripper("b").RoundTrip(r); err == nil || !body.closed {
			t.Errorf("%d bytes: got %v, and the body is closed: %t", length, err, body.closed)
		}
	}
	if said := log.String(); strings.Count(said, "cannot be reached") != 1 || !strings.Contains(said, refuses.Addr().String()) {
		t.Errorf("the log says %q", said)
	}
}

// A closing reader is a body that knows whether it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// A node that begins again has another address and another key, and gets the next request. What the run before it still serves goes on,
// and the connection to that ends with it.
//
// Guarantees: G-0077.1
func TestNodeThatBeginsAgain(t *testing.T) {
	goOn := make(chan struct{})
	a, _, of := pair(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "first")
		if r.URL.Path == "/long" {
			http.NewResponseController(w).Flush()
			<-goOn
		}
	})
	site := front(t, a)
	long, err := a.RoundTripper("b").RoundTrip(request(t, "GET", "http://b/session/long", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer long.Body.Close()
	again := begin(t, of)
	again.Mount(SessionPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "second") }))
	for n, want := range []string{"first", "second"} {
		if n == 1 {
			of.set(peerOf("b", again))
		}
		if _, got := do(t, request(t, "GET", site.URL, nil)); got != want {
			t.Errorf("request %d: got %q, want %q", n, got, want)
		}
	}
	close(goOn)
	if got, err := io.ReadAll(long.Body); string(got) != "first" || err != nil {
		t.Errorf("what goes on got %q, %v", got, err)
	}
	long.Body.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.outgoing) != 1 {
		t.Errorf("there are %d connections, want that to the second run only", len(a.outgoing))
	}
}

// Handlers are mounted at paths. Other paths do not exist, and no path of a client leads out of
// that of the sessions.
func TestPaths(t *testing.T) {
	a, b, _ := pair(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "session "+r.URL.Path) })
	b.Mount("/server/x/mcp", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "server "+r.URL.Path) }))
	site := front(t, a)
	if _, got := do(t, request(t, "GET", site.URL+"/../server/x/mcp", nil)); !strings.HasPrefix(got, "session ") {
		t.Errorf("got %q, want the handler of sessions", got)
	}
	own := func(path string) (int, string) {
		r := request(t, "GET", "https://b"+path, nil)
		response, err := a.RoundTripper("b").RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	for path, want := range map[string]int{
		"/server/x/mcp": 200, "/server/x/mcp/below": 200, "/session/mcp": 200, "/server/x": 404, "/server/x/mcpx": 404,
		"/server/": 404, "/": 404, "/sessions": 404, "/admin": 404,
	} {
		if status, body := own(path); status != want {
			t.Errorf("%s: got %d %q, want %d", path, status, body, want)
		}
	}
}

// The address that is published is one that others can use.
func TestAdvertisedAddress(t *testing.T) {
	listening := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 7777}
	everywhere := &net.TCPAddr{IP: net.IPv6zero, Port: 7777}
	for _, c := range []struct {
		wanted string
		on     net.Addr
		want   string // "": an error
	}{
		{"", listening, "10.0.0.7:7777"}, {"", everywhere, ""}, {"node-1", everywhere, "node-1:7777"},
		{"node-1:0", everywhere, "node-1:7777"}, {"node-1:1", everywhere, "node-1:1"}, {"10.0.0.8", everywhere, "10.0.0.8:7777"},
		{"2001:db8::1", everywhere, "[2001:db8::1]:7777"}, {"[2001:db8::1]:5", everywhere, "[2001:db8::1]:5"}, {"0.0.0.0:1", listening, ""}, {":1", listening, ""},
	} {
		got, err := advertised(c.wanted, c.on)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q on %v: got %q, %v, want %q", c.wanted, c.on, got, err, c.want)
		}
	}
	h := newHop(t, newTable())
	for _, c := range [][2]string{{"127.0.0.1:0", "[::]:1"}, {"127.0.0.1:-1", ""}} {
		if address, err := h.Listen(c[0], c[1]); err == nil {
			t.Errorf("%q: got %q, want an error", c, address)
		}
	}
}

// A process is gone if its machine refuses connections, or if somebody else answers at its address.
// If nobody answers, nobody knows.
func TestGone(t *testing.T) {
	t.Parallel() // it waits
	a, b, of := pair(t, nil)
	other := begin(t, of)
	another := peerOf("b", b)
	another.Address = other.address
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	hasty := httptest.NewUnstartedServer(http.NotFoundHandler())
	hasty.Config.ConnState = func(c net.Conn, _ http.ConnState) { c.Close() } // as a balancer without servers does
	hasty.Start()
	defer hasty.Close()
	at := func(address string) Peer { return Peer{Node: "b", Address: address, SPKI: b.SPKI()} }
	for what, c := range map[string]struct {
		peer Peer
		want bool
	}{
		"itself":            {peerOf("b", b), false},
		"another node":      {another, true},
		"another program":   {at(plain.Listener.Addr().String()), true},
		"nobody":            {at(closed.Addr().String()), true},
		"a silent machine":  {at(silent.Addr().String()), false},
		"one that hangs up": {at(hasty.Listener.Addr().String()), false},
		"no address":        {at("nowhere"), false},
	} {
		if got := a.Gone(t.Context(), c.peer); got != c.want {
			t.Errorf("%s: got %t, want %t", what, got, c.want)
		}
	}
}
