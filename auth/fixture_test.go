package auth

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
)

// The test binary is also a process of the refresh storm, see storm_test.go.
func TestMain(m *testing.M) {
	runStormProcess()
	testenv.Once()
	goleak.VerifyTestMain(m)
}

const testRedirect = authtest.Redirect

// A fixture is a protected server and its authorization server.
type fixture struct {
	as    *authtest.Server
	url   string
	serve http.HandlerFunc // nil: a request with a valid token is served

	printed *safeBuffer // all logs and errors, and the frames that the server gets
	quiet   bool        // frames are not printed
}

// newFixture starts both servers. The protected server answers each request with a valid
// token.
func newFixture(t *testing.T, o authtest.Options) *fixture {
	t.Helper()
	listening := httptest.NewUnstartedServer(nil)
	f := &fixture{url: "http://" + listening.Listener.Addr().String() + "/mcp", printed: new(safeBuffer)}
	o.Resource = f.url
	f.as = authtest.Start(t, o)
	t.Cleanup(func() {
		if found := f.as.Printed(f.printed.String()); len(found) > 0 {
			t.Errorf("%d secrets are printed, one of %d bytes, in %s", len(found), len(found[0]), f.printed)
		}
	})
	protected := f.as.Protect(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, "served") }))
	listening.Config.Handler = f.as.Sink.Record("http://"+listening.Listener.Addr().String(), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !f.quiet {
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(r.Body, f.printed), r.Body}
		}
		if f.serve != nil {
			f.serve(rw, r)
			return
		}
		protected.ServeHTTP(rw, r)
	}))
	listening.Start()
	t.Cleanup(listening.Close)
	return f
}

// login returns an Authorizer for the server.
func (f *fixture) login(t *testing.T, o Options) *Authorizer {
	t.Helper()
	o.Resource = f.url
	if o.Log == nil {
		o.Log = slog.New(recorder{slog.NewJSONHandler(f.printed, &slog.HandlerOptions{Level: slog.LevelDebug}), f.printed})
	}
	a := New(o)
	t.Cleanup(func() {
		e, err := a.Status(context.Background())
		fmt.Fprintf(f.printed, "%+v %#v %v\n", e, e, err)
		a.Close()
	})
	return a
}

// consent simulates the browser of a person who consents.
func consent(ctx context.Context, i Interaction) (*url.URL, error) {
	return authtest.Consent(ctx, i.Start)
}

// A recorder is the log of an Authorizer in a fixture, and also records the errors of calls.
type recorder struct {
	slog.Handler
	printed *safeBuffer
}

// call makes one request as a link does, and returns its last status.
func call(ctx context.Context, a *Authorizer, address string) (status int, err error) {
	return callThrough(ctx, http.DefaultTransport, a, address)
}

func callThrough(ctx context.Context, network http.RoundTripper, a *Authorizer, address string) (status int, err error) {
	defer func() {
		if r, ok := a.o.Log.Handler().(recorder); ok && err != nil {
			fmt.Fprintf(r.printed, "%v %+v %#v\n", err, err, err)
		}
	}()
	for challenges := 0; ; challenges++ {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader("{}"))
		if err != nil {
			return 0, err
		}
		if err := a.Authorize(ctx, r); err != nil {
			return 0, err
		}
		response, err := network.RoundTrip(r)
		if err != nil {
			return 0, err
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		refused := &transport.StatusError{
			Status: response.StatusCode, Challenge: response.Header.Get("WWW-Authenticate"), Nonce: response.Header.Get("DPoP-Nonce"),
		}
		if !refused.Denied() || challenges == 3 {
			return response.StatusCode, nil
		}
		again, err := a.Challenged(ctx, r, refused)
		if err != nil || !again {
			return response.StatusCode, err
		}
	}
}

func wantCall(t *testing.T, a *Authorizer, address string) {
	t.Helper()
	if status, err := call(t.Context(), a, address); err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v", status, err)
	}
}

// grants counts the token requests of a type.
func (f *fixture) grants(kind string) (n int) {
	for _, r := range f.as.Sink.Requests(authtest.Token) {
		if r.Form.Get("grant_type") == kind {
			n++
		}
	}
	return n
}

// expireBy changes the stored login, as if time had passed.
func expireBy(t *testing.T, a *Authorizer, by time.Duration) {
	t.Helper()
	if err := a.store.Locked(t.Context(), a.key(), func(e *Entry) (*Entry, error) {
		older := *e
		older.Issued, older.Expires = e.Issued.Add(-by), e.Expires.Add(-by)
		return &older, nil
	}); err != nil {
		t.Fatal(err)
	}
	a.current.Store(nil)
}

// refuseAll makes the server refuse every token with a status.
func (f *fixture) refuseAll(status int, challenge string) {
	f.serve = func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("WWW-Authenticate", fmt.Sprintf(challenge, f.as.URL(authtest.ResourceMetadata)))
		if r.Header.Get("Authorization") != "" {
			rw.WriteHeader(status)
			return
		}
		rw.WriteHeader(http.StatusUnauthorized)
	}
}

// stepUp makes the server require the scope write of a token with the scope read.
func (f *fixture) stepUp() {
	f.serve = func(rw http.ResponseWriter, r *http.Request) {
		metadata := f.as.URL(authtest.ResourceMetadata)
		authorizations := f.as.Sink.Requests(authtest.Authorize)
		switch {
		case r.Header.Get("Authorization") == "":
			rw.Header().Set("WWW-Authenticate", `Bearer scope="read", resource_metadata="`+metadata+`"`)
			rw.WriteHeader(http.StatusUnauthorized)
		case !strings.Contains(authorizations[len(authorizations)-1].Form.Get("scope"), "write"):
			rw.Header().Set("WWW-Authenticate", `Bearer error="insufficient_scope", scope="write", resource_metadata="`+metadata+`"`)
			rw.WriteHeader(http.StatusForbidden)
		}
	}
}
