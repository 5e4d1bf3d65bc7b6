package streamable

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// userKey is the context key of the user.
type userKey struct{}

// authenticated is ordinary middleware: it uses the subject of the request's token as
// its user.
func authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, r.Header.Get("Authorization"))))
	})
}

func user(r *http.Request) string { return r.Context().Value(userKey{}).(string) }

// identityHandler answers with the user in its context, and with the identity of the message.
type identityHandler struct{}

func (identityHandler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	if in.Method == protocol.MethodInitialize {
		return json.RawMessage(`{"protocolVersion":"2025-03-26"}`), nil
	}
	return fmt.Appendf(nil, `"%v %s %s %v %v"`, ctx.Value(userKey{}), in.Origin.Identity, in.Origin.Header("x-trace"),
		in.Origin.RemoteAddr != "", in.Origin.TLS != nil), nil
}

func (identityHandler) ServeNotification(context.Context, *conn.Incoming) {}

// newIdentitySite serves who behind the middleware.
func newIdentitySite(t *testing.T, o HandlerOptions, start func(*httptest.Server)) *site {
	h := NewHandler(accepting(func(link transport.Link) {
		c := conn.Accept(link, conn.Options{Handler: identityHandler{}, Dialect: batching{}})
		if err := c.Start(context.Background(), func(error) {}); err != nil {
			t.Error(err)
		}
	}), o)
	server := httptest.NewUnstartedServer(authenticated(h))
	start(server)
	ctx, cancel := context.WithTimeout(context.Background(), hangLimit)
	t.Cleanup(func() {
		h.Close(0)
		cancel()
		server.Close()
	})
	return &site{t: t, handler: h, server: server, ctx: ctx}
}

type batching struct{ streamDialect }

func (batching) Batches() bool { return true }

// If two users share a session, each request is served for its own user, also in a
// batch.
//
// Guarantees: G-0028.2
func TestEachMessageOfASessionHasItsOwnOrigin(t *testing.T) {
	s := newIdentitySite(t, HandlerOptions{}, (*httptest.Server).Start)
	session := s.initialize("2025-03-26")
	for _, name := range []string{"alice", "bob", "alice"} {
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":5,"result":"%s  t-%s true false"}`, name, name)
		if r := s.post(echoBody, session, "Authorization: "+name, "X-Trace: t-"+name); r.body != want {
			t.Errorf("%s: got %s, want %s", name, r.body, want)
		}
		want2 := fmt.Sprintf(`{"jsonrpc":"2.0","id":6,"result":"%s  t-%s true false"}`, name, name)
		r := s.post("["+echoBody+","+echoBody2+"]", session, "Authorization: "+name, "X-Trace: t-"+name)
		if r.header.Get("Content-Type") != "application/json" || r.body != "["+want+","+want2+"]" && r.body != "["+want2+","+want+"]" {
			t.Errorf("the batch of %s: got %+v", name, r)
		}
	}
}

const echoBody2 = `{"jsonrpc":"2.0","id":6,"method":"echo"}`

// Each modern message is served for its own user.
//
// Guarantees: G-0028.2
func TestEachModernMessageHasItsOwnOrigin(t *testing.T) {
	s := newIdentitySite(t, HandlerOptions{Identify: user}, (*httptest.Server).StartTLS)
	for _, name := range []string{"alice", "bob", "alice"} {
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"result":"%s %s t-%s true true"}`, name, name, name)
		if r := s.modern("echo", "", "Authorization: "+name, "X-Trace: t-"+name); r.body != want {
			t.Errorf("%s: got %s, want %s", name, r.body, want)
		}
	}
}

// A session can be used only by the identity that began it.
//
// Guarantees: G-0028.3
func TestASessionBelongsToItsIdentity(t *testing.T) {
	for _, owner := range []string{"alice", ""} {
		s := newIdentitySite(t, HandlerOptions{Identify: user}, (*httptest.Server).Start)
		begun := s.post(initializeBody("2025-11-25"), "Authorization: "+owner)
		session := "Mcp-Session-Id: " + begun.header.Get("Mcp-Session-Id")
		for _, other := range []string{"bob", ""} {
			if other == owner {
				continue
			}
			for _, r := range []reply{
				s.post(echoBody, session, "Authorization: "+other),
				s.do("GET", "", header{session, "Accept: text/event-stream", "Authorization: " + other}),
				s.do("DELETE", "", header{session, "Authorization: " + other}),
			} {
				if r.status != http.StatusForbidden {
					t.Errorf("%q in the session of %q: got %+v, want %v", other, owner, r, http.StatusForbidden)
				}
			}
		}
		if r := s.post(echoBody, "Mcp-Session-Id: unknown", "Authorization: bob"); r.status != http.StatusNotFound {
			t.Errorf("an unknown session: got %+v, want %v", r, http.StatusNotFound)
		}
		if r := s.post(echoBody, session, "Authorization: "+owner); r.status != http.StatusOK {
			t.Errorf("the owner: got %+v, want %v", r, http.StatusOK)
		}
		if r := s.do("DELETE", "", header{session, "Authorization: " + owner}); r.status != http.StatusNoContent {
			t.Errorf("DELETE of the owner: got %+v, want %v", r, http.StatusNoContent)
		}
	}
}
