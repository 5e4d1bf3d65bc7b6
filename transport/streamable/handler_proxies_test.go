package streamable

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
)

// A proxied handler is behind a reverse proxy.
type proxied struct {
	*Handler
	proxy *httputil.ReverseProxy
	log   bytes.Buffer
}

func newProxied(t *testing.T, o HandlerOptions) *proxied {
	p := new(proxied)
	o.Log = slog.New(slog.NewTextHandler(&p.log, nil))
	p.Handler = NewHandler(accepting(func(link transport.Link) { newEcho(link) }), o)
	site := httptest.NewServer(p.Handler)
	to, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	connections := new(http.Transport)
	p.proxy = &httputil.ReverseProxy{Transport: connections, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
		r.SetXForwarded()
	}}
	t.Cleanup(func() {
		connections.CloseIdleConnections()
		site.Close()
		p.Close(0)
	})
	return p
}

// post sends a message from an address to the proxy.
func (p *proxied) post(address, body string, lines ...string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), newRequest("POST", body, lines...)
	r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(address), 1).String()
	p.proxy.ServeHTTP(w, r)
	return w
}

// begin begins a session, and returns the header that names it.
func (p *proxied) begin(t *testing.T, address string, lines ...string) (session string) {
	t.Helper()
	w := p.post(address, initializeBody("2025-11-25"), lines...)
	if w.Code != 200 {
		t.Fatalf("initialize from %s: got %d %s", address, w.Code, w.Body)
	}
	return headerSession + ": " + w.Header().Get(headerSession)
}

// sharing returns how many sessions each client has.
func (p *proxied) sharing() map[string]int {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	of := make(map[string]int)
	for _, l := range p.table.sessions {
		of[l.key.Network]++
	}
	return of
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// A thousand anonymous users behind a proxy that is trusted are served alike, whatever headers they send. One that
// begins as many sessions as it can leaves room for all of them, and ends none of theirs.
//
// Guarantees: G-0086.1
func TestUsersBehindATrustedProxyAreServedAlike(t *testing.T) {
	p := newProxied(t, HandlerOptions{TrustedProxies: loopback, MaxSessions: 2000})
	const users, greedy = 1000, "203.0.113.1"
	for range 1000 {
		p.begin(t, greedy, "X-Forwarded-For: 198.51.100.7")
	}
	address := func(n int) string { return fmt.Sprintf("192.0.%d.%d", 2+n/250, n%250) }
	sessions := make([]string, users)
	for n := range sessions {
		sessions[n] = p.begin(t, address(n))
		p.begin(t, greedy)
	}
	for n, session := range sessions {
		if w := p.post(address(n), echoBody, session); w.Code != 200 {
			t.Fatalf("the session of user %d: got %d %s", n, w.Code, w.Body)
		}
	}
	of := p.sharing()
	if len(of) != users+1 || of[address(0)] != 1 || of[greedy] < users/4 || of[greedy] > 2000*39/100 {
		t.Errorf("%d clients, and the greedy one has %d sessions", len(of), of[greedy])
	}
	if p.log.Len() > 0 {
		t.Errorf("the log says %s", &p.log)
	}
}

// Users behind a proxy that is not trusted are one client, also if no proxy is. The log says so once, and what to set.
//
// Guarantees: G-0086.3
func TestAProxyThatIsNotTrustedIsLogged(t *testing.T) {
	for _, trusted := range [][]netip.Prefix{nil, {netip.MustParsePrefix("10.0.0.0/8")}} {
		p := newProxied(t, HandlerOptions{TrustedProxies: trusted})
		for n := range 20 {
			p.begin(t, fmt.Sprint("192.0.2.", n))
		}
		if of := p.sharing(); len(of) != 1 || of["127.0.0.1"] != 20 {
			t.Errorf("%v: got the clients %v, want the proxy", trusted, of)
		}
		if text := p.log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "set HandlerOptions.TrustedProxies") || !strings.Contains(text, "sender=127.0.0.1:") {
			t.Errorf("%v: the log says %s", trusted, text)
		}
	}
}

// Headers in which the client is malformed are ignored, and so are those of anybody who is no trusted proxy.
//
// Guarantees: G-0086.2
func TestForgedClientsAreIgnored(t *testing.T) {
	p := newProxied(t, HandlerOptions{TrustedProxies: loopback})
	for _, test := range []struct{ from, header, want string }{
		{"127.0.0.1:1", "X-Forwarded-For: 192.0.2.1", "192.0.2.1"},
		{"[::1]:1", "X-Forwarded-For: [2001:db8::1]:80", "2001:db8::/64"},
		{"127.0.0.1:1", "Forwarded: for=192.0.2.3", "192.0.2.3"},
		{"127.0.0.1:1", "X-Forwarded-For: 192.0.2.1, me", "127.0.0.1"},
		{"127.0.0.1:1", "X-Forwarded-For: " + strings.Repeat("127.0.0.1,", 10_000) + "127.0.0.1", "127.0.0.1"},
		{"127.0.0.1:1", "X-Real-Ip: 192.0.2.1", "127.0.0.1"},
		{"198.51.100.1:1", "X-Forwarded-For: 192.0.2.1", "198.51.100.1"},
		{"@", "X-Forwarded-For: 192.0.2.1", "@"},
	} {
		r := newRequest("POST", initializeBody("2025-11-25"), test.header)
		r.RemoteAddr = test.from
		w := httptest.NewRecorder()
		p.ServeHTTP(w, r)
		l := p.table.lookup(w.Header().Get(headerSession))
		if l == nil {
			t.Fatalf("got %d %s, want a session", w.Code, w.Body)
		}
		if l.key.Client != (share.Client{Network: test.want}) {
			t.Errorf("%.100s from %s: got %v, want %s", test.header, test.from, l.key.Client, test.want)
		}
	}
}

// What a proxy tells of a client does not matter for the check against DNS rebinding: the request arrives on a
// loopback address.
//
// Guarantees: G-0086.4
func TestATrustedProxyDoesNotHideALoopbackAddress(t *testing.T) {
	s := newSite(t, HandlerOptions{TrustedProxies: loopback})
	for _, header := range []string{"X-Forwarded-For: 192.0.2.1", "Forwarded: for=192.0.2.1;host=localhost", "X-Forwarded-Host: localhost"} {
		if r := s.post(initializeBody("2025-11-25"), header, "Host: evil.example"); r.status != 403 {
			t.Errorf("%s: got %+v, want 403", header, r)
		}
	}
}

// A node that trusts another one sees the client of a request that this one forwards, also if the other node has it from
// a proxy.
//
// Guarantees: G-0086.5
func TestForwardNamesTheClient(t *testing.T) {
	h := NewHandler(accepting(func(link transport.Link) { newEcho(link) }), HandlerOptions{TrustedProxies: loopback})
	site := httptest.NewServer(h)
	defer h.Close(0)
	defer site.Close()
	to, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	connections := new(http.Transport)
	defer connections.CloseIdleConnections()
	for told, want := range map[string]string{"": "203.0.113.9", "192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::/64"} {
		r := newRequest("POST", initializeBody("2025-11-25"), "X-Forwarded-For: 6.6.6.6", "Forwarded: for=6.6.6.6")
		r.Host, r.RemoteAddr = "localhost", "203.0.113.9:1"
		if told != "" {
			r = r.WithContext(network.WithClient(r.Context(), told))
		}
		w := httptest.NewRecorder()
		newForwarder(to, connections).ServeHTTP(w, r)
		l := h.table.lookup(w.Header().Get(headerSession))
		if l == nil {
			t.Fatalf("got %d %s, want a session", w.Code, w.Body)
		}
		if l.key.Network != want {
			t.Errorf("%q: got %v, want %s", told, l.key.Client, want)
		}
	}
}

// The address that another node has established stays, whatever the headers of a request say that comes from a trusted proxy.
//
// Guarantees: G-0086.5
func TestAnotherNodeHasEstablishedTheAddress(t *testing.T) {
	a := newAcceptor(respond)
	h := NewHandler(a, HandlerOptions{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	defer a.finish(t)
	defer h.Close(0)
	r := newRequest("POST", modernBody("echo", ""), modernHeader("echo", "X-Forwarded-For: 203.0.113.9")...)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, Forwarded(r.WithContext(network.WithClient(r.Context(), "198.51.100.7"))))
	if w.Code != http.StatusOK {
		t.Fatalf("got %d %s, want 200", w.Code, w.Body)
	}
	if got := a.peer(t, 0).received[0].Origin.Client; got != "198.51.100.7" {
		t.Errorf("the client is %q, want the one that the other node has named", got)
	}
}
