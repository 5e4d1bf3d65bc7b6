package resource_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
)

// slowIssuer returns a Guard whose issuer is asked at the pace of a reader, and has been asked before.
func slowIssuer(t *testing.T) (*resource.Guard, *authtest.Server, *slowReader) {
	slow := new(slowReader)
	g, as := newGuard(t, func(o *resource.Options) {
		introspecting(o)
		slow.RoundTripper = o.HTTP.Transport
		o.HTTP = &http.Client{Transport: slow}
	}, opaque())
	wantStatus(t, "the first", status(t, g, bearer(as.Issue("ada", "read"))), http.StatusOK)
	return g, as, slow
}

// TestAnIntrospectedTokenIsKnownSinceItsRequest checks that the 30 s of a result begin when the issuer was asked: what it says may
// be outdated when it arrives.
//
// Guarantees: G-0046.5
func TestAnIntrospectedTokenIsKnownSinceItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as, slow := slowIssuer(t)
		token := as.Issue("ada", "read")
		slow.by = 8 * time.Second
		wantStatus(t, "an issuer that takes 8 s", status(t, g, bearer(token)), http.StatusOK)
		slow.by = 0
		asked := len(as.Sink.Requests(authtest.Introspect))
		sleep(21 * time.Second)
		wantStatus(t, "29 s after the request", status(t, g, bearer(token)), http.StatusOK)
		if n := len(as.Sink.Requests(authtest.Introspect)); n != asked {
			t.Errorf("the token was introspected %d times within 30 s, want once", n-asked+1)
		}
		sleep(2 * time.Second)
		wantStatus(t, "31 s after the request", status(t, g, bearer(token)), http.StatusOK)
		if n := len(as.Sink.Requests(authtest.Introspect)); n != asked+1 {
			t.Errorf("the token was introspected %d times after 30 s, want once", n-asked)
		}
	})
}

// TestARefusedTokenWaitsForNoSlot checks that a token that was refused before is refused at once, although as many tokens of its
// address are being introspected as may be.
//
// Guarantees: G-0046.10
func TestARefusedTokenWaitsForNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, slow := slowIssuer(t)
		const address = "203.0.113.7:1"
		wantStatus(t, "at first", statusFrom(t, g, address, "bad"), http.StatusUnauthorized)
		slow.by = 3 * time.Second
		var all sync.WaitGroup
		for n := range 16 {
			all.Go(func() { statusFrom(t, g, address, fmt.Sprint("bad", n)) })
		}
		synctest.Wait()
		start := time.Now()
		wantStatus(t, "while all slots are taken", statusFrom(t, g, address, "bad"), http.StatusUnauthorized)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("it has waited for %v", waited)
		}
		all.Wait()
	})
}

// TestAClientThatLeavesSaysNothingOfTheIssuer checks that the metadata is not read again because a client has left while its token
// was introspected.
//
// Guarantees: G-0046.4
func TestAClientThatLeavesSaysNothingOfTheIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as, slow := slowIssuer(t)
		sleep(time.Minute)
		slow.by = 5 * time.Second
		ctx, leave := context.WithCancel(t.Context())
		defer time.AfterFunc(time.Second, leave).Stop()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", nil)
		r.Header.Set("Authorization", "Bearer "+as.Issue("ada", "read"))
		if _, denied := g.Check(r); denied == nil || denied.Status != http.StatusServiceUnavailable {
			t.Errorf("a client that has left: got %v, want the status 503", denied)
		}
		slow.by = 0
		sleep(time.Minute)
		wantStatus(t, "the next", status(t, g, bearer(as.Issue("ada", "read"))), http.StatusOK)
		if n := len(as.Sink.Requests(authtest.Metadata)); n != 1 {
			t.Errorf("the metadata was read %d times, want once", n)
		}
	})
}

// TestAnEndpointThatWorksAgainIsKept checks that the metadata is read once after introspections failed, and not again later.
//
// Guarantees: G-0046.4
func TestAnEndpointThatWorksAgainIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as, _ := slowIssuer(t)
		sleep(time.Minute)
		as.Lie(authtest.Introspect, serverError)
		wantStatus(t, "while it is down", status(t, g, bearer(as.Issue("ada", "read"))), http.StatusServiceUnavailable)
		as.Lie(authtest.Introspect, nil)
		for range 10 {
			sleep(time.Minute)
			wantStatus(t, "afterwards", status(t, g, bearer(as.Issue("ada", "read"))), http.StatusOK)
		}
		if n := len(as.Sink.Requests(authtest.Metadata)); n != 2 {
			t.Errorf("the metadata was read %d times, want twice", n)
		}
	})
}

// TestMetadataIsReadForAllThatWait checks that the metadata is read to its end although the request that began it has left.
//
// Guarantees: G-0046.4
func TestMetadataIsReadForAllThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, as := newGuard(t, func(o *resource.Options) {
			introspecting(o)
			o.HTTP = &http.Client{Transport: leavingReader{o.HTTP.Transport}}
		}, opaque())
		ctx, leave := context.WithCancel(t.Context())
		defer time.AfterFunc(time.Second, leave).Stop()
		var all sync.WaitGroup
		all.Go(func() {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp", nil)
			r.Header.Set("Authorization", "Bearer "+as.Issue("ada", "read"))
			if _, denied := g.Check(r); denied == nil || denied.Status != http.StatusServiceUnavailable {
				t.Errorf("a client that has left: got %v, want the status 503", denied)
			}
		})
		synctest.Wait()
		wantStatus(t, "another", status(t, g, bearer(as.Issue("ada", "read"))), http.StatusOK)
		all.Wait()
		if n := len(as.Sink.Requests(authtest.Metadata)); n != 1 {
			t.Errorf("the metadata was read %d times, want once", n)
		}
	})
}

// A leavingReader answers each request after two seconds, unless its context ends.
type leavingReader struct{ http.RoundTripper }

func (l leavingReader) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.NewTimer(2 * time.Second).C:
		return l.RoundTripper.RoundTrip(r)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// TestKeysAreFetchedAgainWhenTheIssuerSays checks that keys are used for as long as the issuer says, but for at least five minutes
// and at most a day.
//
// Guarantees: G-0046.4
func TestKeysAreFetchedAgainWhenTheIssuerSays(t *testing.T) {
	for control, life := range map[string]time.Duration{
		"":                             5 * time.Minute,
		"max-age=0":                    5 * time.Minute,
		"max-age=-7":                   5 * time.Minute,
		"max-age=soon":                 5 * time.Minute,
		"public, max-age=600":          10 * time.Minute,
		`must-revalidate,MAX-AGE="60"`: 5 * time.Minute,
		"max-age=9223372036854775807":  24 * time.Hour,
	} {
		synctest.Test(t, func(t *testing.T) {
			g, as := newGuard(t, nil, authtest.Options{})
			as.Lie(authtest.Keys, func(a *authtest.Answer) { a.Header.Set("Cache-Control", control) })
			check := func(when string, want int) {
				t.Helper()
				wantStatus(t, control+", "+when, status(t, g, bearer(as.Issue("ada", "read"))), http.StatusOK)
				if n := len(as.Sink.Requests(authtest.Keys)); n != want {
					t.Errorf("%q, %s: the keys were fetched %d times, want %d", control, when, n, want)
				}
			}
			check("at first", 1)
			sleep(life - time.Second)
			check("at the end of their life", 1)
			sleep(time.Second)
			check("after their life", 2)
		})
	}
}
