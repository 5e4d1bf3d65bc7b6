package guard

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"testing/iotest"
	"testing/synctest"
	"time"
)

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

// An error names the URL at which the fetch ended, without what may be secret, and the rule.
func TestAnErrorSaysWhatWasRefused(t *testing.T) {
	g := New(Options{Endpoint: "http://127.0.0.1:1/mcp", Proxy: noProxy, Resolver: resolver(func(name string) netip.Addr {
		if name == "private.test" {
			return netip.MustParseAddr("10.0.0.1")
		}
		return netip.MustParseAddr("8.8.8.8")
	})})
	g.dialing = func(netip.AddrPort) error { return errDialled }
	g.direct.RegisterProtocol("http", answering(func(r *http.Request) *http.Response {
		response := &http.Response{StatusCode: http.StatusFound, Header: http.Header{}, Body: http.NoBody}
		switch r.URL.Path {
		case "/no-url":
			response.Header.Set("Location", "http://%zz")
		case "/thrice":
			response.Header.Set("Location", "/twice?secret=2")
		case "/twice":
			response.Header.Set("Location", "/once?secret=3")
		case "/once":
			response.Header.Set("Location", "/again?secret=4")
		case "/away":
			response.Header.Set("Location", "https://private.test/latest?secret=5")
		case "/long":
			response.StatusCode, response.Body = http.StatusOK, &countedBody{left: 1 << 30}
		case "/broken":
			response.StatusCode, response.Body = http.StatusOK, io.NopCloser(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(io.ErrUnexpectedEOF)))
		}
		return response
	}))
	const at = "http://127.0.0.1:1"
	for address, want := range map[string]string{
		"http://%zz":                            "an address: it is no URL",
		"https://user:secret@as.test/x":         "https://as.test/x: it has a user or password in it",
		"ftp://as.test/x?secret=1":              "ftp://as.test/x: only https is fetched",
		"averyverylongschemeindeed:secret":      `an address of scheme "averyverylongschemei": it has no host`,
		"data:text/plain,secret":                `an address of scheme "data": it has no host`,
		"https://192.168.0.1/x?secret=1#secret": "https://192.168.0.1/x: it leads to a private address",
		"https://100.64.0.1/x":                  "https://100.64.0.1/x: it leads to an address that a carrier's customers share",
		"https://169.254.169.254/x":             "https://169.254.169.254/x: it leads to a link-local address",
		"https://192.0.2.1/x":                   "https://192.0.2.1/x: it leads to an address that is reserved",
		"https://private.test:8443/x?secret=1":  "https://private.test:8443/x: it leads to a private address",
		"https://public.test/x?secret=1":        "https://public.test/x: it cannot be fetched: dial tcp 8.8.8.8:443: dialled",
		at + "/no-url?secret=1":                 at + "/no-url: it redirects to what is no URL",
		at + "/thrice?secret=1":                 at + "/once: it redirects too often",
		at + "/away?secret=1":                   "https://private.test/latest: it leads to a private address",
		at + "/broken?secret=1":                 at + "/broken: it cannot be fetched: unexpected EOF",
		at + "/long?secret=1":                   at + "/long: its answer has more than 262144 bytes",
	} {
		err := g.Check(address)
		if err == nil {
			err = get(t, g, address)
		}
		if !errors.As(err, new(*Error)) || err.Error() != want {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
	elsewhere := New(Options{Endpoint: "https://mcp.test/mcp"})
	if err := elsewhere.Check("https://127.0.0.1/"); err == nil || err.Error() != "https://127.0.0.1/: it leads to a loopback address" {
		t.Errorf("%v", err)
	}
	unknown := errors.New("no proxy is known")
	elsewhere = New(Options{Endpoint: "https://mcp.test/mcp", Proxy: func(*http.Request) (*url.URL, error) { return nil, unknown }})
	if err := get(t, elsewhere, "https://as.test/x?secret=1"); !errors.As(err, new(*Error)) || !errors.Is(err, unknown) || err.Error() != "https://as.test/x: it cannot be fetched: no proxy is known" {
		t.Errorf("%v", err)
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
		if err := get(t, g, secure.URL+path); !errors.As(err, &refused) || refused.URL != secure.URL+"/plain" || refused.Rule != "it redirects from https to another scheme" || plain.Load() != before {
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
		case "/long-header":
			w.Header().Set("X-Long", strings.Repeat("x", 31<<10))
		}
	})
	if err := get(t, g, at+"/long-header"); err != nil {
		t.Errorf("a header of 31 KiB: %v", err)
	}
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
