package guard

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDialled = errors.New("dialled")

// resolver returns a net.Resolver whose server has an address for each name, or none.
func resolver(answer func(name string) netip.Addr) *net.Resolver {
	return resolverOf(func(name string, _ uint16) netip.Addr { return answer(name) })
}

// resolverOf returns a net.Resolver whose server has an address for each name and type of record.
func resolverOf(answer func(name string, kind uint16) netip.Addr) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			size := make([]byte, 2)
			for {
				if _, err := io.ReadFull(there, size); err != nil {
					return
				}
				query := make([]byte, binary.BigEndian.Uint16(size))
				if _, err := io.ReadFull(there, query); err != nil {
					return
				}
				reply := answerQuery(query, answer)
				if _, err := there.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
					return
				}
			}
		}()
		return here, nil
	}}
}

// answerQuery answers a DNS query for one name (RFC 1035, section 4).
func answerQuery(query []byte, answer func(string, uint16) netip.Addr) []byte {
	at, labels := 12, []string{}
	for size := int(query[at]); size > 0; size = int(query[at]) {
		labels = append(labels, string(query[at+1:at+1+size]))
		at += 1 + size
	}
	kind := binary.BigEndian.Uint16(query[at+1:])
	address := answer(strings.Join(labels, "."), kind)
	reply := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:at+5]...)
	if address.Is4() && kind == 1 || address.Is6() && kind == 28 {
		reply[7] = 1
		reply = append(reply, 0xc0, 12, 0, byte(kind), 0, 1, 0, 0, 0, 60, 0, byte(len(address.AsSlice())))
		reply = append(reply, address.AsSlice()...)
	}
	return reply
}

// get fetches an address with a guard that dials nothing.
func get(t *testing.T, g *Guard, address string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.Do(request)
	return err
}

var classes = map[string][]string{
	loopback.rule():  {"127.0.0.1", "127.8.9.10", "::1"},
	private.rule():   {"10.1.2.3", "172.16.0.1", "172.31.255.254", "192.168.1.1", "fd00::1", "fc00::1"},
	shared.rule():    {"100.64.0.1", "100.101.102.103", "100.127.255.254"},
	linkLocal.rule(): {"169.254.169.254", "fe80::1"},
	special.rule(): {
		"0.0.0.0", "0.1.2.3", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
		"224.0.0.1", "239.1.2.3", "240.0.0.1", "255.255.255.255", "::", "ff02::1", "2001:db8::1", "fec0::1", "100::1", "2001:2::1",
	},
	"": {"8.8.8.8", "100.63.255.255", "172.32.0.1", "192.169.0.1", "2606:4700::1111"},
}

// hostForms returns the ways in which a URL may lead to an address: hosts, and what
// they resolve to.
func hostForms(a netip.Addr) map[string]netip.Addr {
	hosts := map[string]netip.Addr{bracketed(a): a, "name.test": a, "NAME.test.": a}
	if !a.Is4() {
		return hosts
	}
	b := a.As4()
	number := binary.BigEndian.Uint32(b[:])
	// What the resolver of an operating system makes of numbers (inet_aton).
	hosts[fmt.Sprint(number)] = a
	hosts[fmt.Sprintf("0x%08x", number)] = a
	hosts[fmt.Sprintf("0%o.0%o.0%o.0%o", b[0], b[1], b[2], b[3])] = a
	hosts[fmt.Sprintf("0x%x.%d.0x%x%02x", b[0], b[1], b[2], b[3])] = a
	mapped := netip.AddrFrom16(a.As16())
	for _, wrapped := range []netip.Addr{
		mapped,
		netip.MustParseAddr(fmt.Sprintf("64:ff9b::%02x%02x:%02x%02x", b[0], b[1], b[2], b[3])),
		netip.MustParseAddr(fmt.Sprintf("2002:%02x%02x:%02x%02x::1", b[0], b[1], b[2], b[3])),
		netip.MustParseAddr(fmt.Sprintf("2001::1:%02x%02x:%02x%02x", ^b[0], ^b[1], ^b[2], ^b[3])),
	} {
		hosts[bracketed(wrapped)] = wrapped
		hosts[fmt.Sprintf("wrapped%x.test", wrapped.As16())] = wrapped
	}
	return hosts
}

func bracketed(a netip.Addr) string {
	if a.Is4() {
		return a.String()
	}
	return "[" + a.String() + "]"
}

// Guarantees: G-0045.1, G-0045.2
func TestEveryWayToEveryAddress(t *testing.T) {
	for rule, addresses := range classes {
		for _, text := range addresses {
			address := netip.MustParseAddr(text)
			for host, resolved := range hostForms(address) {
				if rule == "" && strings.HasPrefix(host, "[2001::") {
					continue // Teredo itself is reserved
				}
				if rule == "" && strings.HasPrefix(host, "wrapped20010000") {
					continue
				}
				checkHostForm(t, rule, host, resolved)
			}
		}
	}
}

func checkHostForm(t *testing.T, rule, host string, resolved netip.Addr) {
	t.Helper()
	g := New(Options{Proxy: noProxy, Resolver: resolver(func(string) netip.Addr { return resolved })})
	g.dialing = func(netip.AddrPort) error { return errDialled }
	err := get(t, g, "https://"+host+"/x?secret=1")
	if strings.Contains(err.Error(), "no such host") { // Go's resolver refuses numbers; the system's takes them
		err = g.admit(host, "443", netip.AddrPortFrom(resolved, 443).String())
	}
	var refused *Error
	switch {
	case rule == "" && !errors.Is(err, errDialled):
		t.Errorf("%s, which is %s, is public: %v", host, resolved, err)
	case rule != "" && (!errors.As(err, &refused) || refused.Rule != rule):
		t.Errorf("%s, which is %s: %v, want %s", host, resolved, err, rule)
	case strings.Contains(err.Error(), "secret"):
		t.Errorf("the error shows the query: %v", err)
	}
}

func noProxy(*http.Request) (*url.URL, error) { return nil, nil }

// The first and last address of every range that IANA has reserved, and addresses with a zone.
//
// Guarantees: G-0045.1
func TestEveryReservedRange(t *testing.T) {
	for _, prefix := range reserved {
		last := prefix.Masked().Addr().AsSlice()
		for bit := prefix.Bits(); bit < len(last)*8; bit++ {
			last[bit/8] |= 0x80 >> (bit % 8)
		}
		end, _ := netip.AddrFromSlice(last)
		for _, a := range []netip.Addr{prefix.Masked().Addr(), end} {
			if c := classOf(a); c == public {
				t.Errorf("%s of %s is public", a, prefix)
			}
		}
	}
	for address, want := range map[string]class{"fe80::1%eth0": linkLocal, "::1%lo": loopback, "fd00::1%1": private, "ff02::1%eth0": special, "::ffff:127.0.0.1": loopback, "::127.0.0.1": loopback} {
		if c := classOf(netip.MustParseAddr(address)); c != want {
			t.Errorf("%s is of class %d, want %d", address, c, want)
		}
	}
	for address, want := range map[string]class{ // of IPv6 only 2000::/3 is public
		"::ffff:0:10.0.0.1": special, "::ffff:0:8.8.8.8": special, "::1.2.3.4": special, "1::1": special, "1fff:ffff::1": special, "4000::1": special,
		"64:ff9b:1::8.8.8.8": special, "100::1": special, "5f00::1": special, "fec0::1": special, "fbff::1": special,
		"64:ff9b::8.8.8.8": public, "64:ff9b::10.0.0.1": private, "64:ff9b::127.0.0.1": loopback, "64:ff9b::169.254.169.254": linkLocal, "64:ff9b::192.0.2.1": special,
		"2000::1": public, "2606:4700::1111": public, "2a00:1450::1": public, "3ffe::1": public, "2001:db8::1": special,
		"2002:0a00:0001::1": private, "2002:0808:0808::1": public, "2001:0:1:1:1:1:f5ff:fffe": private,
	} {
		if c := classOf(netip.MustParseAddr(address)); c != want {
			t.Errorf("%s is of class %d, want %d", address, c, want)
		}
	}
	g := New(Options{Endpoint: "https://mcp.test/mcp"})
	for _, address := range []string{"https://[fe80::1%25eth0]/", "https://[::ffff:169.254.169.254]/latest", "https://[::ffff:a9fe:a9fe]/"} {
		var refused *Error
		if err := g.Check(address); !errors.As(err, &refused) || refused.Rule != linkLocal.rule() {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// Each address of a name is checked: when the public one does not answer, the private one is not
// dialled.
//
// Guarantees: G-0045.1
func TestANameOfTwoAddresses(t *testing.T) {
	kinds := map[uint16]netip.Addr{1: netip.MustParseAddr("8.8.8.8"), 28: netip.MustParseAddr("::1")}
	g := New(Options{Proxy: noProxy, Resolver: resolverOf(func(_ string, kind uint16) netip.Addr { return kinds[kind] })})
	dialled := make(chan netip.AddrPort, 4)
	g.dialing = func(address netip.AddrPort) error { dialled <- address; return errDialled }
	err := get(t, g, "https://two.test/")
	close(dialled)
	for address := range dialled {
		if address.Addr() != kinds[1] {
			t.Errorf("%s was dialled", address)
		}
	}
	if err == nil {
		t.Error("no error")
	}
}

// If the address of a name changes, the address that is dialled is checked.
//
// Guarantees: G-0045.1
func TestANameThatMoves(t *testing.T) {
	var moved atomic.Bool
	g := New(Options{Proxy: noProxy, Resolver: resolver(func(string) netip.Addr {
		if moved.Load() {
			return netip.MustParseAddr("169.254.169.254")
		}
		return netip.MustParseAddr("8.8.8.8")
	})})
	g.dialing = func(netip.AddrPort) error { return errDialled }
	if err := get(t, g, "https://moving.test/"); !errors.Is(err, errDialled) {
		t.Fatal(err)
	}
	moved.Store(true)
	if err := get(t, g, "https://moving.test/"); err == nil || errors.Is(err, errDialled) {
		t.Errorf("%v", err)
	}
}

// Guarantees: G-0045.3
func TestConfiguredHostsAreAllowed(t *testing.T) {
	for _, c := range []struct {
		endpoint, address string
		hosts             []string
		allowed           bool
	}{
		{"http://127.0.0.1:8080/mcp", "http://127.0.0.1:9/", nil, true},
		{"http://localhost/mcp", "http://[::1]:9/", nil, true},
		{"http://localhost/mcp", "https://10.0.0.1/", nil, false},
		{"https://10.0.0.2/mcp", "https://192.168.0.1/", nil, true},
		{"https://10.0.0.2/mcp", "https://127.0.0.1/", nil, false},
		{"https://10.0.0.2/mcp", "http://10.0.0.3/", nil, false},
		{"https://mcp.test/mcp", "http://127.0.0.1/", []string{"127.0.0.1"}, false},
		{"http://127.0.0.1:8080/mcp", "http://8.8.8.8/", nil, false},
		{"", "https://8.8.8.8/", nil, true},
		{"%zz", "https://8.8.8.8/", nil, true},
		{"https://169.254.1.1/mcp", "https://169.254.1.1/x", nil, false},
		{"https://169.254.1.1/mcp", "https://169.254.169.254/", []string{"169.254.169.254"}, false},
		{"https://mcp.test/mcp", "https://10.0.0.1/", nil, false},
		{"https://mcp.test/mcp", "https://10.0.0.1/", []string{"10.0.0.1"}, true},
		{"https://mcp.test/mcp", "https://private.test/", nil, false},
		{"https://mcp.test/mcp", "https://PRIVATE.test./", []string{"private.test"}, true},
		{"https://private.test/mcp", "https://private.test/.well-known/x", nil, true},
		{"https://private.test/mcp", "https://private.test:8443/x", nil, false},
		{"https://private.test/mcp", "https://10.0.0.1/x", nil, false},
		{"http://private.test/mcp", "http://private.test/x", nil, false},
		{"https://100.101.102.103/mcp", "https://100.101.102.103/x", nil, true},
		{"https://100.101.102.103/mcp", "https://100.64.0.1/", nil, true},
		{"https://100.101.102.103/mcp", "https://10.0.0.1/", nil, false},
		{"https://10.0.0.2/mcp", "https://100.101.102.103/", nil, false},
		{"https://overlay.test/mcp", "https://overlay.test/x", nil, true},
		{"https://mcp.test/mcp", "https://overlay.test/", nil, false},
		{"https://203.0.113.1/mcp", "https://203.0.113.1/x", nil, false},
	} {
		g := New(Options{Endpoint: c.endpoint, AllowHosts: c.hosts, Proxy: noProxy, Resolver: resolver(func(name string) netip.Addr {
			if name == "overlay.test" {
				return netip.MustParseAddr("100.101.102.103")
			}
			return netip.MustParseAddr("10.9.9.9")
		})})
		g.dialing = func(netip.AddrPort) error { return errDialled }
		if err := get(t, g, c.address); errors.Is(err, errDialled) != c.allowed {
			t.Errorf("with endpoint %s and hosts %q, %s: %v, want allowed: %v", c.endpoint, c.hosts, c.address, err, c.allowed)
		}
	}
}

// Guarantees: G-0045.2
func TestInvalidDocumentURLs(t *testing.T) {
	g := New(Options{Endpoint: "https://mcp.test/mcp"})
	for _, address := range []string{
		"", "/x", "javascript:alert(1)", "file:///etc/passwd", "data:text/plain,x", "ftp://as.test/", "http://as.test/", "https://", "https:as.test",
		"https://user:pass@as.test/", "https://user@as.test/", "https://[::1/", "http://127.0.0.1/", "https://localhost/", "https://a.localhost./",
	} {
		if err := g.Check(address); err == nil || strings.Contains(err.Error(), "pass") && !strings.Contains(err.Error(), "password in it") {
			t.Errorf("%q: %v", address, err)
		}
	}
	if err := g.Check("https://as.test/tenant?x=y"); err != nil {
		t.Error(err)
	}
}

// local returns a guard for a server on this machine.
func local(t *testing.T, handler http.HandlerFunc) (*Guard, string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	g := New(Options{Endpoint: server.URL, Proxy: noProxy})
	t.Cleanup(g.Close)
	return g, server.URL
}

// Guarantees: G-0045.4
func TestRedirects(t *testing.T) {
	var header atomic.Pointer[http.Header]
	g, at := local(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/once":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/twice":
			http.Redirect(w, r, "/once", http.StatusMovedPermanently)
		case "/thrice":
			http.Redirect(w, r, "/twice", http.StatusTemporaryRedirect)
		case "/created":
			w.Header().Set("Location", "/thrice")
			w.WriteHeader(http.StatusCreated)
		case "/nowhere":
			w.WriteHeader(http.StatusNotModified)
		case "/metadata":
			http.Redirect(w, r, "https://169.254.169.254/latest", http.StatusFound)
		case "/file":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		default:
			sent := r.Header.Clone()
			header.Store(&sent)
		}
	})
	for path, works := range map[string]bool{"/once": true, "/twice": true, "/thrice": false, "/metadata": false, "/file": false} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, at+path, nil)
		request.Header.Set("Accept", "application/json")
		request.Header.Set("Authorization", "Bearer secret")
		if _, err := g.Do(request); (err == nil) != works {
			t.Errorf("GET %s: %v, want it to work: %v", path, err, works)
		}
	}
	for path, status := range map[string]int{"/created": http.StatusCreated, "/nowhere": http.StatusNotModified} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, at+path, nil)
		if response, err := g.Do(request); err != nil || response.Status != status {
			t.Errorf("GET %s: %+v, %v: this redirects nowhere", path, response, err)
		}
	}
	if sent := header.Load(); sent.Get("Authorization") != "" || sent.Get("Accept") != "application/json" {
		t.Errorf("redirected with %v", *sent)
	}
	header.Store(nil)
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/once", strings.NewReader("code=1"))
	if response, err := g.Do(request); err != nil || response.Status != http.StatusFound || header.Load() != nil {
		t.Errorf("POST: %+v, %v: a redirect must not be followed", response, err)
	}
}

// An https URL never leads to http, not even where http would do.
//
// Guarantees: G-0045.2, G-0045.4
func TestNoRedirectLeavesHTTPS(t *testing.T) {
	var plain atomic.Int64
	onward := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { plain.Add(1) }))
	defer onward.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/plain":
			http.Redirect(w, r, onward.URL, http.StatusFound)
		case "/later":
			http.Redirect(w, r, "/plain", http.StatusFound)
		}
	}))
	defer secure.Close()
	authorities := x509.NewCertPool()
	authorities.AddCert(secure.Certificate())
	g := New(Options{Endpoint: onward.URL, TLS: &tls.Config{RootCAs: authorities}, Proxy: noProxy})
	defer g.Close()
	for _, allowed := range []string{secure.URL + "/here", onward.URL} {
		if err := get(t, g, allowed); err != nil {
			t.Errorf("%s: %v", allowed, err)
		}
	}
	for _, path := range []string{"/plain", "/later"} {
		before := plain.Load()
		var refused *Error
		if err := get(t, g, secure.URL+path); !errors.As(err, &refused) || refused.Rule != "it redirects from https to another scheme" || plain.Load() != before {
			t.Errorf("%s: %v, and %d requests over http", path, err, plain.Load()-before)
		}
	}
}

// Guarantees: G-0045.5
func TestAnswersAreBounded(t *testing.T) {
	trickle := new(bytes.Buffer) // made beforehand: a fetch ends after 10 s
	z := gzip.NewWriter(trickle)
	for n := range 1 << 17 {
		fmt.Fprintf(z, "%d ", n)
	}
	z.Close()
	g, at := local(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			z.Write(make([]byte, 2<<20))
			z.Close()
		case "/trickle":
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(trickle.Bytes())
		case "/headers":
			for n := range 100 {
				w.Header().Set(fmt.Sprint("X-", n), strings.Repeat("x", 1<<10))
			}
		}
	})
	for path, rule := range map[string]string{
		"/endless": "its answer has more than 262144 bytes", "/bomb": "its answer has more than 262144 bytes",
		"/trickle": "its answer has more than 262144 bytes", "/headers": "it cannot be fetched",
	} {
		var refused *Error
		if err := get(t, g, at+path); !errors.As(err, &refused) || refused.Rule != rule {
			t.Errorf("%s: %v, want %s", path, err, rule)
		}
	}
}

// A body of the greatest size is read as a whole, and of a longer one only what shows that it is.
//
// Guarantees: G-0045.5
func TestNoMoreIsReadThanIsAllowed(t *testing.T) {
	for size, works := range map[int]bool{256 << 10: true, 256<<10 + 1: false, 1 << 30: false} {
		body := &countedBody{left: size}
		g := New(Options{Endpoint: "http://127.0.0.1/", Transport: answering(func(*http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body}
		})})
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := g.Do(request)
		if (err == nil) != works || works && len(response.Body) != size {
			t.Errorf("%d bytes: %v", size, err)
		}
		if body.read > 256<<10+1 || !body.closed {
			t.Errorf("of %d bytes, %d were read; closed: %v", size, body.read, body.closed)
		}
	}
}

// answering is an http.RoundTripper without a network.
type answering func(*http.Request) *http.Response

func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	response := a(r)
	response.Request = r
	return response, r.Context().Err()
}

// A countedBody counts what is read of it.
type countedBody struct {
	left, read int
	closed     bool
}

func (b *countedBody) Read(into []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n := min(len(into), b.left)
	b.left, b.read = b.left-n, b.read+n
	return n, nil
}

func (b *countedBody) Close() error { b.closed = true; return nil }

// Guarantees: G-0045.5
func TestAFetchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{Endpoint: "http://127.0.0.1/"})
		g.proxy = noProxy
		g.direct.DialContext = func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go io.Copy(io.Discard, there) // it never answers
			return here, nil
		}
		start := time.Now()
		if err := get(t, g, "http://127.0.0.1/"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("the fetch ended after %v", took)
		}
		g.Close()
	})
}

// Redirects and a body that comes slowly have no time of their own.
//
// Guarantees: G-0045.5
func TestAFetchEndsWithItsRedirectsAndBody(t *testing.T) {
	for name, slow := range map[string]func(r *http.Request) *http.Response{
		"redirects": func(r *http.Request) *http.Response {
			pause(r.Context(), 6*time.Second)
			return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {r.URL.Path + "x"}}, Body: http.NoBody}
		},
		"a body": func(r *http.Request) *http.Response {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: &slowBody{ctx: r.Context()}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := New(Options{Endpoint: "http://127.0.0.1/", Proxy: noProxy})
				g.direct.RegisterProtocol("http", answering(slow))
				start := time.Now()
				if err := get(t, g, "http://127.0.0.1/"); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if took := time.Since(start); took != 10*time.Second {
					t.Errorf("the fetch ended after %v", took)
				}
			})
		})
	}
}

// pause lets the time of a bubble of testing/synctest pass, unless ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// A slowBody has one byte each second, for a minute.
type slowBody struct {
	ctx  context.Context
	read int
}

func (b *slowBody) Read(into []byte) (int, error) {
	pause(b.ctx, time.Second)
	if b.read++; b.read > 60 {
		return 0, io.EOF
	}
	return copy(into, "x"), b.ctx.Err()
}

func (b *slowBody) Close() error { return nil }

// With a proxy, which usually has a private address, names are checked by the proxy.
//
// Guarantees: G-0045.6
func TestAProxyDials(t *testing.T) {
	asked := make(chan string, 1)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	at, _ := url.Parse(proxy.URL)
	g := New(Options{Endpoint: "https://mcp.test/", Proxy: http.ProxyURL(at)})
	defer g.Close()
	if err := get(t, g, "https://as.test/x"); err == nil {
		t.Error("the proxy has refused")
	}
	if got := <-asked; got != "CONNECT as.test:443" {
		t.Errorf("the proxy got %q", got)
	}
	if err := get(t, g, "https://10.0.0.1/x"); err == nil || len(asked) > 0 {
		t.Errorf("an IP address must be checked before the proxy: %v", err)
	}
}

// Guarantees: G-0045.7
func TestDocumentsAreReadExactly(t *testing.T) {
	deep := func(depth int) string { return strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth) }
	for document, works := range map[string]bool{
		`{"issuer":"x"}`: true, `{"Issuer":"y","issuer":"x"}`: true, deep(32): true, "{}": true,
		`{"issuer":"y","issuer":"x"}`: false, `{"issuer":"x"} {}`: false, deep(33): false, "": false, `[]`: false, "{\"a\":\"\xff\"}": false,
		`{"other":{"a":1,"a":2}}`: false, "<html>": false,
	} {
		var into struct {
			Issuer string `json:"issuer"`
		}
		if err := DecodeJSON([]byte(document), &into); (err == nil) != works {
			t.Errorf("%.40s: %v, want it to work: %v", document, err, works)
		}
		if into.Issuer == "y" && works {
			t.Errorf("%.40s: read as y", document)
		}
	}
}

func TestWhatIsJSON(t *testing.T) {
	for kind, is := range map[string]bool{
		"application/json": true, "Application/JSON; charset=utf-8": true, "application/jwk-set+json": true,
		"": false, "text/html": false, "text/x+json": false, "application/xml": false, "application/jsonp": false, "application/json; =": false,
	} {
		if r := (&Response{Header: http.Header{"Content-Type": {kind}}}); r.JSON() != is {
			t.Errorf("%q is JSON: %v, want %v", kind, !is, is)
		}
	}
}

// As many connections as the options say stay open for the next requests, and none after Close.
func TestIdleConnections(t *testing.T) {
	const atOnce = 3
	var opened, closed atomic.Int64
	arrived, together := make(chan struct{}, atOnce), make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-together:
		case <-r.Context().Done():
		}
	}))
	gone := make(chan struct{}, 1000)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			opened.Add(1)
		case http.StateClosed:
			closed.Add(1)
			gone <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	for name, proxy := range map[string]func(*http.Request) (*url.URL, error){
		"direct": noProxy, "proxied": func(*http.Request) (*url.URL, error) { return url.Parse(server.URL) },
	} {
		g := New(Options{Endpoint: server.URL, IdleConns: atOnce, Proxy: proxy})
		reused := false
		for round := 0; !reused && round < 100; round++ { // a connection becomes idle a moment after its response
			before, errs := opened.Load(), make(chan error, atOnce)
			for range atOnce {
				go func() { errs <- get(t, g, server.URL) }()
			}
			for range atOnce {
				<-arrived
			}
			for range atOnce {
				together <- struct{}{}
			}
			for range atOnce {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
			reused = opened.Load() == before
		}
		if !reused {
			t.Errorf("%s: %d requests at a time always open new connections", name, atOnce)
		}
		g.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		for closed.Load() < opened.Load() {
			select {
			case <-gone:
			case <-ctx.Done():
				t.Fatalf("%s: after Close %d of %d connections are open", name, opened.Load()-closed.Load(), opened.Load())
			}
		}
		cancel()
	}
}

// A server that has HTTP/2 is asked over HTTP/2: one connection carries all requests.
func TestHTTP2IsUsed(t *testing.T) {
	var major atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { major.Store(int64(r.ProtoMajor)) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	authorities := x509.NewCertPool()
	authorities.AddCert(server.Certificate())
	g := New(Options{Endpoint: server.URL, TLS: &tls.Config{RootCAs: authorities}, Proxy: noProxy})
	defer g.Close()
	if err := get(t, g, server.URL); err != nil || major.Load() != 2 {
		t.Errorf("asked over HTTP/%d: %v", major.Load(), err)
	}
}

// With a Transport of the program, URLs are checked, and nothing else is sent.
//
// Guarantees: G-0045.6
func TestATransportOfTheProgram(t *testing.T) {
	var sent []string
	g := New(Options{Endpoint: "https://mcp.example/mcp", Transport: answering(func(r *http.Request) *http.Response {
		sent = append(sent, r.URL.String())
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
	})})
	for address, works := range map[string]bool{"https://as.example/": true, "http://as.example/": false, "https://169.254.169.254/": false} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Do(request); (err == nil) != works {
			t.Errorf("%s: %v", address, err)
		}
	}
	if len(sent) != 1 {
		t.Errorf("the requests %q were sent", sent)
	}
}
