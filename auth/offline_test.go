package auth

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/guard"
)

// An offline is a fixture without a network, so that a test can run in virtual time.
type offline struct {
	as     *authtest.Server
	server http.Handler                                // the protected server
	fetch  func(*http.Request) (*http.Response, error) // nil: every request arrives
}

const (
	offlineIssuer = "https://as.example"
	offlineURL    = "https://mcp.example/mcp"
)

// newOffline returns a protected server that answers each request with a valid token.
func newOffline(o authtest.Options) *offline {
	o.Resource = offlineURL
	f := &offline{as: authtest.New(offlineIssuer, o)}
	f.server = f.as.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	return f
}

// RoundTrip implements http.RoundTripper.
func (f *offline) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if f.fetch != nil {
		if response, err := f.fetch(r); response != nil || err != nil {
			return response, err
		}
	}
	var to http.Handler = f.as
	if r.URL.String() == offlineURL {
		to = f.server
	}
	return answerOf(to, r), nil
}

// answerOf returns the response of a handler to the request of a client.
func answerOf(h http.Handler, r *http.Request) *http.Response {
	served, w := r.Clone(r.Context()), httptest.NewRecorder()
	if served.Body == nil {
		served.Body = http.NoBody
	}
	h.ServeHTTP(w, served)
	return w.Result()
}

// login returns an Authorizer for the server.
func (f *offline) login(t testing.TB, o Options) *Authorizer {
	t.Helper()
	o.Resource, o.Guard = offlineURL, guard.New(guard.Options{Endpoint: offlineURL, Transport: f})
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	a := New(o)
	t.Cleanup(func() { a.Close() })
	return a
}

// consent simulates the browser of a person who consents.
func (f *offline) consent(ctx context.Context, i Interaction) (*url.URL, error) {
	address, err := i.Start(ctx, testRedirect)
	if err != nil {
		return nil, err
	}
	response, err := f.as.Client().Get(address.String())
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusFound {
		return nil, fmt.Errorf("the browser shows status %d", response.StatusCode)
	}
	return response.Location()
}

func (f *offline) call(ctx context.Context, a *Authorizer) (status int, err error) {
	return callThrough(ctx, f, a, offlineURL)
}

func (f *offline) wantCall(t *testing.T, a *Authorizer) {
	t.Helper()
	if status, err := f.call(t.Context(), a); err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v", status, err)
	}
}

// tokenRequests counts the token requests of a grant type.
func (f *offline) tokenRequests(grant string) (n int) {
	for _, r := range f.as.Sink.Requests(authtest.Token) {
		if r.Form.Get("grant_type") == grant {
			n++
		}
	}
	return n
}
