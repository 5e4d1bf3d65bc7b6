package resource_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
)

// slowReader answers each request after a while.
type slowReader struct {
	http.RoundTripper
	by time.Duration
}

func (s slowReader) RoundTrip(r *http.Request) (*http.Response, error) {
	sleep(s.by)
	return s.RoundTripper.RoundTrip(r)
}

// introspecting makes a Guard introspect each token.
func introspecting(o *resource.Options) {
	o.Issuers[0].Introspect = &resource.Introspection{ClientID: "server", ClientSecret: "secret"}
}

func opaque() authtest.Options {
	return authtest.Options{Opaque: true, Clients: []authtest.Client{{ID: "server", Secret: "secret"}}}
}

// statusFrom returns the status for a request with a token from an address.
func statusFrom(t testing.TB, g *resource.Guard, address, token string) int {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
	r.RemoteAddr = address
	r.Header.Set("Authorization", "Bearer "+token)
	if _, denied := g.Check(r); denied != nil {
		return denied.Status
	}
	return http.StatusOK
}

// TestARefusedTokenIsRemembered checks that a refused token is introspected once within 5 s.
//
// Guarantees: G-0046.10
func TestARefusedTokenIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as := newGuard(t, introspecting, opaque())
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { wantStatus(t, "at once", status(t, g, bearer("bad")), http.StatusUnauthorized) })
		}
		all.Wait()
		sleep(4 * time.Second)
		wantStatus(t, "after 4 s", status(t, g, bearer("bad")), http.StatusUnauthorized)
		first := len(as.Sink.Requests(authtest.Introspect))
		if first > 16 { // those that ran at the same time
			t.Errorf("one token was introspected %d times", first)
		}
		sleep(time.Second)
		wantStatus(t, "after 5 s", status(t, g, bearer("bad")), http.StatusUnauthorized)
		if n := len(as.Sink.Requests(authtest.Introspect)); n != first+1 {
			t.Errorf("one token was introspected %d times after 5 s, want once", n-first)
		}
		as.Lie(authtest.Introspect, serverError)
		wantStatus(t, "away", status(t, g, bearer("good")), http.StatusServiceUnavailable)
		before := len(as.Sink.Requests(authtest.Introspect))
		wantStatus(t, "away", status(t, g, bearer("good")), http.StatusServiceUnavailable)
		if n := len(as.Sink.Requests(authtest.Introspect)); n != before+1 {
			t.Error("a token was refused because the issuer was down before")
		}
	})
}

// TestOneAddressDoesNotDelayOthers checks that invalid tokens from one address do not delay others.
//
// Guarantees: G-0046.10
func TestOneAddressDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as := newGuard(t, func(o *resource.Options) {
			introspecting(o)
			o.HTTP = &http.Client{Transport: slowReader{o.HTTP.Transport, 200 * time.Millisecond}}
		}, opaque())
		good := as.Issue("ada", "read")
		wantStatus(t, "the first", statusFrom(t, g, "198.51.100.1:1", as.Issue("ada", "read")), http.StatusOK)
		var all sync.WaitGroup
		for n := range 1500 {
			all.Go(func() { statusFrom(t, g, "203.0.113.7:"+strconv.Itoa(1000+n), fmt.Sprint("bad", n)) })
		}
		synctest.Wait()
		start := time.Now()
		wantStatus(t, "from another address", statusFrom(t, g, "198.51.100.1:2", good), http.StatusOK)
		if waited := time.Since(start); waited > 200*time.Millisecond {
			t.Errorf("the request has waited for %v", waited)
		}
		all.Wait()
	})
}

// A heldReader holds introspections back. The first byte of a token names its group.
type heldReader struct {
	http.RoundTripper
	mu      sync.Mutex
	arrived map[byte]int
	release map[byte]chan struct{} // closed: the group is answered
}

func (h *heldReader) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/introspect") {
		return h.RoundTripper.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	group := form.Get("token")[0]
	h.mu.Lock()
	h.arrived[group]++
	released := h.release[group]
	h.mu.Unlock()
	select {
	case <-released:
		return h.RoundTripper.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestGivingUpKeepsNoSlot checks that requests which give up while all slots are taken leave the
// slots of their address free, whether they wait for one of their address or for one of all.
//
// Guarantees: G-0046.10
func TestGivingUpKeepsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := &heldReader{arrived: map[byte]int{}, release: map[byte]chan struct{}{'a': make(chan struct{}), 'b': make(chan struct{}), 'c': make(chan struct{})}}
		g, _ := newGuard(t, func(o *resource.Options) {
			introspecting(o)
			held.RoundTripper = o.HTTP.Transport
			o.HTTP = &http.Client{Transport: held}
		}, opaque())
		var all sync.WaitGroup
		// send sends requests with tokens of a group, each of which gives up after a time.
		send := func(n int, group, address string, after time.Duration) {
			for i := range n {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), after)
					defer cancel()
					r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", nil)
					r.RemoteAddr = address + ":1"
					r.Header.Set("Authorization", "Bearer "+group+address+"-"+strconv.Itoa(i))
					g.Check(r)
				})
			}
			synctest.Wait()
		}
		want := func(group byte, n int) {
			t.Helper()
			held.mu.Lock()
			defer held.mu.Unlock()
			if held.arrived[group] != n {
				t.Errorf("%d requests of group %c are being introspected, want %d", held.arrived[group], group, n)
			}
		}
		send(1, "a", "203.0.113.7", time.Hour)
		for n, of := range []int{16, 16, 16, 15} {
			send(of, "b", "198.51.100."+strconv.Itoa(n+1), time.Hour)
		}
		want('a', 1)
		want('b', 63)
		send(20, "x", "203.0.113.7", time.Second) // 15 of them wait for one of all slots, and 5 for one of their address
		sleep(2 * time.Second)
		want('x', 0)
		close(held.release['b'])
		synctest.Wait()
		send(16, "c", "203.0.113.7", time.Hour)
		want('c', 15)
		close(held.release['a']) // its slot is the next one's
		synctest.Wait()
		want('c', 16)
		close(held.release['c'])
		all.Wait()
	})
}

// TestOneNewTokenIsIntrospectedOnce checks that of many requests with the same new token, those that
// have waited for a slot use the result of the others.
//
// Guarantees: G-0046.5, G-0046.10
func TestOneNewTokenIsIntrospectedOnce(t *testing.T) {
	for name, want := range map[string]int{"good": http.StatusOK, "bad": http.StatusUnauthorized} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, as := newGuard(t, func(o *resource.Options) {
					introspecting(o)
					o.HTTP = &http.Client{Transport: slowReader{o.HTTP.Transport, 200 * time.Millisecond}}
				}, opaque())
				token := "bad"
				if want == http.StatusOK {
					token = as.Issue("ada", "read")
				}
				start := time.Now()
				var all sync.WaitGroup
				for range 100 {
					all.Go(func() { wantStatus(t, "a new token", status(t, g, bearer(token)), want) })
				}
				all.Wait()
				if n := len(as.Sink.Requests(authtest.Introspect)); n > 16 {
					t.Errorf("one token was introspected %d times, want at most 16", n)
				}
				if took := time.Since(start); took > 400*time.Millisecond { // the metadata, and one introspection
					t.Errorf("the last request was answered after %v", took)
				}
			})
		})
	}
}

// TestAnIntrospectingIssuerThatHangs checks that the pause after metadata that could not be read
// begins when that is known.
//
// Guarantees: G-0046.4
func TestAnIntrospectingIssuerThatHangs(t *testing.T) {
	testHangingIssuer(t, introspecting, opaque())
}

// TestAnIntrospectionEndpointMoves checks that the metadata is read again, at most every 5 s.
//
// Guarantees: G-0046.4
func TestAnIntrospectionEndpointMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as := newGuard(t, introspecting, opaque())
		read := func() int { return len(as.Sink.Requests(authtest.Metadata)) }
		check := func(want int) {
			t.Helper()
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() { wantStatus(t, "a new token", status(t, g, bearer(as.Issue("ada", "read"))), want) })
			}
			all.Wait()
		}
		as.Lie(authtest.Metadata, func(a *authtest.Answer) { a.Object["introspection_endpoint"] = "https://as.example/moved" })
		check(http.StatusServiceUnavailable)
		as.Lie(authtest.Metadata, nil)
		sleep(4 * time.Second)
		check(http.StatusServiceUnavailable)
		if n := read(); n != 1 {
			t.Errorf("the metadata was read %d times within 5 s", n)
		}
		sleep(time.Second)
		wantStatus(t, "after 5 s", status(t, g, bearer(as.Issue("ada", "read"))), http.StatusOK)
		check(http.StatusOK)
		if n := read(); n != 2 {
			t.Errorf("the metadata was read %d times, want 2", n)
		}

		sleep(time.Minute)
		check(http.StatusOK)
		as.Lie(authtest.Introspect, serverError)
		as.Lie(authtest.Metadata, serverError)
		check(http.StatusServiceUnavailable)
		check(http.StatusServiceUnavailable)
		if n := read(); n > 4 { // at two addresses
			t.Errorf("the metadata was read %d times at once", n-2)
		}
		as.Lie(authtest.Introspect, nil)
		check(http.StatusOK) // where it was
	})
}

// TestAnIssuerWithoutIntrospection checks that the metadata is not read for each token.
//
// Guarantees: G-0046.4
func TestAnIssuerWithoutIntrospection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as := newGuard(t, introspecting, opaque())
		as.Lie(authtest.Metadata, func(a *authtest.Answer) { delete(a.Object, "introspection_endpoint") })
		for range 20 {
			wantStatus(t, "a token", status(t, g, bearer(as.Issue("ada", "read"))), http.StatusServiceUnavailable)
		}
		if n := len(as.Sink.Requests(authtest.Metadata)); n != 1 {
			t.Errorf("the metadata was read %d times within 5 s", n)
		}
	})
}

// TestConnectionsToAnIntrospectingIssuerAreKept checks that connections are reused for many tokens.
func TestConnectionsToAnIntrospectingIssuerAreKept(t *testing.T) {
	const atOnce, waves = 8, 10
	var dialled, arrived atomic.Int64
	gate := make(chan struct{})
	as := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if arrived.Add(1)%atOnce == 0 {
			for range atOnce - 1 {
				gate <- struct{}{}
			}
		} else {
			<-gate
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"active":false}`)
	}))
	as.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dialled.Add(1)
		}
	}
	as.Start()
	defer as.Close()
	g, err := resource.New(resource.Options{URL: "https://mcp.example/mcp", Issuers: []resource.Issuer{{URL: as.URL, Introspect: &resource.Introspection{URL: as.URL, ClientID: "server"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for wave := range waves {
		var all sync.WaitGroup
		for n := range atOnce {
			all.Go(func() { statusFrom(t, g, "192.0.2.1:1", fmt.Sprint("bad", wave, "-", n)) })
		}
		all.Wait()
	}
	if n := dialled.Load(); n > waves*atOnce/2 {
		t.Errorf("%d connections for %d waves of %d", n, waves, atOnce)
	}
}

// TestATokenWithoutAnIssuerIsIntrospected checks that the issuer with Introspect is asked
// about a JWT that does not name its issuer, and that such a token is refused if there is
// no such issuer, or if the token is not active.
//
// Guarantees: G-0046.2
func TestATokenWithoutAnIssuerIsIntrospected(t *testing.T) {
	unnamed := func(as *authtest.Server) string {
		claims := as.Claims("read")
		delete(claims, "iss")
		return as.IssueClaims(claims)
	}
	clients := authtest.Options{Clients: []authtest.Client{{ID: "server", Secret: "secret"}}}
	g, as := newGuard(t, introspecting, clients)
	wantStatus(t, "active", status(t, g, bearer(unnamed(as))), http.StatusOK)
	foreign := as.Claims("read")
	delete(foreign, "iss")
	wantStatus(t, "unknown", status(t, g, bearer(as.Signed("at+jwt", foreign))), http.StatusUnauthorized)
	foreign["iss"] = "https://other.test"
	before := len(as.Sink.Requests(authtest.Introspect))
	wantStatus(t, "of another issuer", status(t, g, bearer(as.IssueClaims(foreign))), http.StatusUnauthorized)
	if n := len(as.Sink.Requests(authtest.Introspect)) - before; n != 0 {
		t.Errorf("the issuer was asked %d times about the token of another issuer, want never", n)
	}
	g, as = newGuard(t, nil, authtest.Options{})
	wantStatus(t, "without introspection", status(t, g, bearer(unnamed(as))), http.StatusUnauthorized)
}
