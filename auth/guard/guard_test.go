package guard

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
		err := DecodeJSON([]byte(document), &into)
		if (err == nil) != works {
			t.Errorf("%.40s: %v, want it to work: %v", document, err, works)
		}
		if document == deep(33) && !errors.Is(err, errDepth) {
			t.Errorf("%.40s: %v, want %v", document, err, errDepth)
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

// An idle connection stays open for 30 s, and is closed at once by Close: to the endpoint, and to other hosts, whose certificates may be
// checked differently.
func TestAnIdleConnectionIsClosed(t *testing.T) {
	viaProxy := func(*http.Request) (*url.URL, error) { return url.Parse("http://127.0.0.2") }
	insecure := &tls.Config{InsecureSkipVerify: true}
	for name, o := range map[string]Options{
		"direct":                   {Endpoint: "http://127.0.0.1/", Proxy: noProxy},
		"proxied":                  {Endpoint: "http://127.0.0.1/", Proxy: viaProxy},
		"insecure, the endpoint":   {Endpoint: "http://127.0.0.1/", Proxy: noProxy, TLS: insecure},
		"insecure, proxied":        {Endpoint: "http://127.0.0.1/", Proxy: viaProxy, TLS: insecure},
		"insecure, another origin": {Endpoint: "http://127.0.0.1:8080/", Proxy: noProxy, TLS: insecure},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := New(o)
				closed := make(chan time.Time, 1)
				dial := func(context.Context, string, string) (net.Conn, error) {
					here, there := net.Pipe()
					go func() {
						from := bufio.NewReader(there)
						for _, err := http.ReadRequest(from); err == nil; _, err = http.ReadRequest(from) {
							io.WriteString(there, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
						}
						closed <- time.Now()
					}()
					return here, nil
				}
				for _, of := range []transports{g.transports, g.toEndpoint} {
					of.direct.DialContext, of.proxied.DialContext = dial, dial
				}
				for after, end := range map[time.Duration]func(){30 * time.Second: func() {}, 0: g.Close} {
					if err := get(t, g, "http://127.0.0.1/"); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					idle := time.Now()
					end()
					if got := (<-closed).Sub(idle); got != after {
						t.Errorf("it was closed after %v, want %v", got, after)
					}
				}
			})
		})
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
	var fetch context.Context
	g := New(Options{Endpoint: "https://mcp.example/mcp", Transport: answering(func(r *http.Request) *http.Response {
		sent, fetch = append(sent, r.URL.String()), r.Context()
		if r.URL.Path == "/away" {
			return &http.Response{StatusCode: http.StatusFound, Header: http.Header{"Location": {"https://10.0.0.1/"}}, Body: http.NoBody}
		}
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}
	})})
	for address, works := range map[string]bool{"https://as.example/": true, "https://as.example/away": false, "http://as.example/": false, "https://169.254.169.254/": false} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Do(request); (err == nil) != works {
			t.Errorf("%s: %v", address, err)
		}
	}
	if slices.Sort(sent); !slices.Equal(sent, []string{"https://as.example/", "https://as.example/away"}) {
		t.Errorf("the requests %q were sent", sent)
	}
	if fetch.Err() == nil {
		t.Error("what the Transport has begun does not learn that the fetch has ended")
	}
}
