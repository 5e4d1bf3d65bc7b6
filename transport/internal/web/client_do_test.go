package web

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// A tripper is a function as an HTTP transport.
type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newGet(t *testing.T, ctx context.Context) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://host.example/?key=secret", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A connection that could not be made is named with the address that was dialled, also behind a proxy. A request that was given up says
// nothing of that, and no error quotes the address of the endpoint.
func TestWhatCouldNotBeReached(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 3128}, Err: syscall.ECONNREFUSED}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx     context.Context
		err     error
		address string // "": it is no such error
	}{
		"a dial":            {t.Context(), dial, "192.0.2.1:3128"},
		"a dial of a proxy": {t.Context(), &net.OpError{Op: "proxyconnect", Net: "tcp", Err: dial}, "192.0.2.1:3128"},
		"a lookup":          {t.Context(), &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Name: "host.example", Err: "no such host"}}, "host.example"},
		"a read":            {t.Context(), &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, ""},
		"given up":          {over, dial, ""},
	} {
		jar, _ := cookiejar.New(nil)
		for _, client := range []*http.Client{{}, {Jar: jar}} {
			client.Transport = tripper(func(*http.Request) (*http.Response, error) { return nil, test.err })
			_, err := Do(client, newGet(t, test.ctx))
			var unreachable *transport.UnreachableError
			if is := errors.As(err, &unreachable); is != (test.address != "") || is && unreachable.Address != test.address {
				t.Errorf("%s: got %v, want the address %q", name, err, test.address)
			}
			if !errors.Is(err, test.err) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: got %v, want %v without the address of the endpoint", name, err, test.err)
			}
		}
	}
}

// A RoundTripper may leave out a body that is empty.
func TestAResponseWithoutABody(t *testing.T) {
	response, err := Do(&http.Client{Transport: tripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusAccepted}, nil
	})}, newGet(t, t.Context()))
	if err != nil || response.Body == nil {
		t.Fatalf("got %+v, %v; want a body", response, err)
	}
}

// However a redirect leads to another host, that gets neither the user's headers nor MCP's. What the program adds for it stays.
//
// Guarantees: G-0022.7
func TestHeadersForAnotherHost(t *testing.T) {
	endpoint, elsewhere := newGet(t, t.Context()), newGet(t, t.Context())
	elsewhere.URL = &url.URL{Scheme: "http", Host: "other.example", Path: "/a"}
	client := new(Pool).Client(&http.Client{CheckRedirect: func(next *http.Request, _ []*http.Request) error {
		next.Header.Set("X-Program", "1")
		return nil
	}}, endpoint.URL)
	for _, via := range [][]*http.Request{{endpoint}, {endpoint, elsewhere}} {
		next := newGet(t, t.Context())
		next.URL = &url.URL{Scheme: "http", Host: "other.example", Path: "/b"}
		next.Header = http.Header{"Authorization": {"Bearer secret"}, "Accept": {"text/event-stream"}}
		if err := client.CheckRedirect(next, via); err != nil || len(next.Header) != 2 || next.Header.Get("Accept") == "" || next.Header.Get("X-Program") != "1" {
			t.Errorf("after %d requests: got the headers %v and %v, want Accept and what the program has added", len(via), next.Header, err)
		}
	}
}

// A bearer whose method panics.
type panickingBearer struct{ transport.Authorizer }

func (panickingBearer) Bearer(context.Context, *url.URL) []string { panic("no way") }

// A Bearer that panics has no credentials: the Authorizer is asked then.
func TestABearerThatPanics(t *testing.T) {
	if got := BearerOf(t.Context(), panickingBearer{}, newGet(t, t.Context()).URL); got != nil {
		t.Errorf("got %q, want nothing", got)
	}
}

// A page of another origin of the same site is a page of another site.
func TestPagesOfTheSameSite(t *testing.T) {
	for site, allowed := range map[string]bool{"": true, "none": true, "same-origin": true, "same-site": false, "cross-site": false} {
		r := newGet(t, t.Context())
		if r.Header.Set("Sec-Fetch-Site", site); site == "" {
			r.Header.Del("Sec-Fetch-Site")
		}
		if err := (Allowed{}).Check(r); (err == nil) != allowed {
			t.Errorf("%q: got %v, want it allowed: %t", site, err, allowed)
		}
	}
}
