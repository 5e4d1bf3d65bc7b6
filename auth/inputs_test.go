package auth

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/internal/testenv"
)

// If a server accepts the redirect address only for the other application_type, the program
// registers with that type.
//
// Guarantees: G-0044.1
func TestARegistrationOfTheOtherType(t *testing.T) {
	f := newFixture(t, authtest.Options{Clients: []authtest.Client{{ID: "web", Auth: "none", Redirects: []string{testRedirect}}}})
	f.as.Lie(authtest.Register, func(a *authtest.Answer) {
		a.Status, a.Body = http.StatusBadRequest, []byte(`{"error":"invalid_redirect_uri"}`)
		if strings.Contains(string(a.Request.Body), `"web"`) {
			a.Status, a.Body = http.StatusCreated, []byte(`{"client_id":"web","token_endpoint_auth_method":"none"}`)
		}
	})
	wantCall(t, f.login(t, Options{Interact: consent}), f.url)
	asked := f.as.Sink.Requests(authtest.Register)
	if len(asked) != 2 || !strings.Contains(string(asked[0].Body), `"native"`) || !strings.Contains(string(asked[1].Body), `"web"`) {
		t.Errorf("%d registrations", len(asked))
	}
}

// Of a hundred authorization servers, the first one that the guard allows is used.
//
// Guarantees: G-0044.7
func TestAHundredAuthorizationServers(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	many := make([]string, 100)
	for i := range many {
		many[i] = fmt.Sprintf("https://10.0.0.%d", i)
	}
	f.as.Lie(authtest.ResourceMetadata, setMember("authorization_servers", many))
	_, err := call(t.Context(), f.login(t, Options{Interact: consent}), f.url)
	var refused *MetadataError
	if !errors.As(err, &refused) || len(err.Error()) > 2000 {
		t.Errorf("%v", err)
	}
	many[3] = f.as.Issuer()
	f.as.Lie(authtest.ResourceMetadata, setMember("authorization_servers", many))
	wantCall(t, f.login(t, Options{Interact: consent}), f.url)
}

// An error response with another issuer is refused, and its description is not shown.
//
// Guarantees: G-0044.7
func TestAnErrorOfAnotherIssuer(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	f.as.Lie(authtest.Authorize, func(a *authtest.Answer) {
		a.Query = url.Values{"error": {"access_denied"}, "error_description": {"call 555-1234"}, "state": a.Query["state"], "iss": {"https://evil.test"}}
	})
	_, err := call(t.Context(), f.login(t, Options{Interact: consent}), f.url)
	var refused *ResponseError
	if !errors.As(err, &refused) || refused.Code != "" || !strings.Contains(refused.Rule, "another issuer") || strings.Contains(err.Error(), "555-") {
		t.Errorf("%v", err)
	}
}

// If the server's clock is a day ahead, the error of a refused refresh says so.
//
// Guarantees: G-0044.5
func TestAClockThatIsWrong(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	expireBy(t, a, 2*time.Hour)
	f.as.Lie(authtest.Token, func(a *authtest.Answer) {
		a.Header.Set("Date", time.Now().Add(24*time.Hour).UTC().Format(http.TimeFormat))
		a.Status, a.Body = http.StatusBadRequest, []byte(`{"error":"invalid_request"}`)
	})
	_, err := call(t.Context(), a, f.url)
	var refused *TokenError
	if !errors.As(err, &refused) || refused.Skew < 23*time.Hour || !strings.Contains(err.Error(), "clock differs") {
		t.Errorf("%v", err)
	}
}

// After a response with Retry-After, there is no request before that time.
//
// Guarantees: G-0044.5
func TestAServerThatSaysWhenToComeAgain(t *testing.T) {
	for header, wants := range map[string]time.Duration{"120": 2 * time.Minute, "100000000": time.Hour, "-1": shortestDelay, "soon": shortestDelay, "100000000000000000000": shortestDelay} {
		f := newFixture(t, authtest.Options{})
		a := loggedIn(t, f, Options{})
		expireBy(t, a, 2*time.Hour)
		f.as.Lie(authtest.Token, func(a *authtest.Answer) {
			a.Header.Set("Retry-After", header)
			a.Status, a.Body = http.StatusTooManyRequests, []byte(`{}`)
		})
		before := time.Now()
		var refused *TokenError
		if _, err := call(t.Context(), a, f.url); !errors.As(err, &refused) || refused.RetryAfter != wants && (wants != shortestDelay || refused.RetryAfter != 0) {
			t.Errorf("Retry-After %s: %v", header, err)
		}
		a.attempts.mu.Lock()
		until := a.attempts.backoff.until
		a.attempts.mu.Unlock()
		if until.Before(before.Add(wants)) || until.After(time.Now().Add(wants)) {
			t.Errorf("Retry-After %s: again in %v, want %v", header, until.Sub(before), wants)
		}
		if _, err := call(t.Context(), a, f.url); err == nil || f.grants("refresh_token") != 1 {
			t.Errorf("%v after %d refreshes", err, f.grants("refresh_token"))
		}
	}
}

// A token without a known expiry is used until the server refuses it.
//
// Guarantees: G-0044.3
func TestATokenOfUnknownLife(t *testing.T) {
	for _, life := range []any{nil, -1, 1e9, "soon"} {
		f := newFixture(t, authtest.Options{})
		f.as.Lie(authtest.Token, setMember("expires_in", life))
		a := loggedIn(t, f, Options{})
		if e, err := a.Status(t.Context()); err != nil || !e.Expires.IsZero() {
			t.Errorf("%v: it ends at %v, %v", life, e.Expires, err)
		}
		wantCall(t, a, f.url)
		if n := f.grants("refresh_token"); n != 0 {
			t.Errorf("%v: %d refreshes", life, n)
		}
	}
}

// Before the server is known, there is no login, and an error says so.
func TestWithoutAServerThereIsNoLogin(t *testing.T) {
	for _, resource := range []string{"", "/mcp", "https://mcp.example:x"} {
		a := New(Options{Resource: resource, Interact: consent})
		t.Cleanup(func() { a.Close() })
		_, status := a.Status(t.Context())
		for name, err := range map[string]error{"Login": a.Login(t.Context()), "Logout": a.Logout(t.Context()), "Status": status} {
			if errorText(err) != "auth: Options.Resource is not set, or no URL" {
				t.Errorf("%s with the resource %q: %v", name, resource, err)
			}
		}
	}
}

// After Close, no connection to the server is left open.
//
// Guarantees: G-0044.4
func TestCloseLeavesNoConnection(t *testing.T) {
	closed := make(chan struct{}, 16)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	defer server.Close()
	a := New(Options{Resource: server.URL, Interact: consent})
	if err := a.Login(t.Context()); err == nil {
		t.Error("Login succeeded")
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	testenv.Receive(t, closed, "the connection is closed")
}
