package resource_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// noLeeway accepts no token after its expiry.
func noLeeway(o *resource.Options) { o.Leeway = -1 }

// TestAStreamEndsWithItsToken opens the streams of both eras, and reads them to their end.
//
// Guarantees: G-0046.13
func TestAStreamEndsWithItsToken(t *testing.T) {
	t.Parallel() // it waits, as others do here
	s := newSite(t, noLeeway, authtest.Options{})
	for era, open := range map[string]func(token string) reply{
		"GET": func(token string) reply {
			first := s.send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
				`"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, bearer(token))
			return s.send(http.MethodGet, "", bearer(token), "Mcp-Session-Id: "+first.header.Get("Mcp-Session-Id"))
		},
		"listen": func(token string) reply {
			return s.send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{`+
				`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
				bearer(token), "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: subscriptions/listen")
		},
	} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			claims := s.as.Claims("read")
			expiry := time.Now().Add(2 * time.Second).Truncate(time.Second)
			claims["exp"] = expiry.Unix()
			token := s.as.IssueClaims(claims)
			r := open(token)
			if r.status != http.StatusOK || time.Now().Before(expiry) {
				t.Errorf("the stream ended %v before the token: %+v", time.Until(expiry), r)
			}
			s.wantChallenge(s.call("whoami", bearer(token)), http.StatusUnauthorized, "invalid_token")
		})
	}
}

// TestAStreamOfARevokedTokenEnds checks that streams end so often that a revoked token is checked
// again when its client reconnects.
//
// Guarantees: G-0046.13
func TestAStreamOfARevokedTokenEnds(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*resource.Options)
		of     authtest.Options
		lie    func(*authtest.Answer)
		want   time.Duration
	}{
		"signed":             {nil, authtest.Options{}, nil, time.Hour + time.Minute}, // with the leeway
		"introspected":       {introspecting, opaque(), nil, 5 * time.Minute},
		"without an expiry":  {introspecting, opaque(), func(a *authtest.Answer) { delete(a.Object, "exp") }, 5 * time.Minute},
		"that expires first": {introspecting, opaque(), func(a *authtest.Answer) { a.Object["exp"] = time.Now().Add(time.Minute).Unix() }, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, as := newGuard(t, c.change, c.of)
				as.Lie(authtest.Introspect, c.lie)
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/mcp", nil)
				r.Header.Set("Authorization", "Bearer "+as.Issue("ada", "read"))
				opened := time.Now()
				ends := func() time.Duration {
					who, denied := g.Check(r)
					if denied != nil {
						t.Fatal(denied.Text)
					}
					return who.(*resource.Principal).Until().Sub(opened)
				}
				if got := ends(); got != c.want {
					t.Errorf("a stream ends after %v, want %v", got, c.want)
				}
				sleep(20 * time.Second)
				if got := ends(); got != c.want {
					t.Errorf("20 s later, without another introspection, a stream ends after %v, want %v", got, c.want)
				}
				as.RevokeAll()
				sleep(11 * time.Second)
				if _, denied := g.Check(r); (denied != nil) != (c.change != nil) {
					t.Errorf("the next request of the revoked token: %v", denied)
				}
			})
		})
	}
}

// TestACallOutlivesItsToken checks that an accepted call is answered after its token has expired.
//
// Guarantees: G-0046.13
func TestACallOutlivesItsToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, noLeeway, authtest.Options{})
	claims := s.as.Claims("read")
	expiry := time.Now().Add(2 * time.Second).Truncate(time.Second)
	claims["exp"] = expiry.Unix()
	server.AddTool(s.tools, protocol.Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
		pause(t, time.Until(expiry)+10*time.Millisecond)
		return "done", ctx.Err()
	})
	if r := s.call("slow", bearer(s.as.IssueClaims(claims))); r.status != http.StatusOK || !strings.Contains(r.body, "done") {
		t.Errorf("%+v", r)
	}
}

// TestASessionOutlivesItsTokens checks that a client whose streams have ended with their tokens
// reconnects with new tokens, and receives changes as before.
//
// Guarantees: G-0046.13
func TestASessionOutlivesItsTokens(t *testing.T) {
	t.Parallel()
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, noLeeway, authtest.Options{Life: 2 * time.Second})
			login := auth.New(auth.Options{Resource: s.url, Interact: consent, Offline: true})
			defer login.Close()
			changed := make(chan struct{}, 100)
			c := client.New(protocol.Implementation{Name: "test", Version: "1"}, client.Options{
				ProtocolVersion: version,
				OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
					if _, ok := e.(*client.ToolsChanged); ok {
						changed <- struct{}{}
					}
				},
			})
			session, err := c.Connect(t.Context(), &streamable.Client{URL: s.url, Authorizer: login})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			if _, err := session.ListTools(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			for renewed := 0; renewed < 2; { // only a stream requests the next token
				renewed = 0
				for _, r := range s.as.Sink.Requests(authtest.Token) {
					if r.Form.Get("grant_type") == "refresh_token" {
						renewed++
					}
				}
				pause(t, 20*time.Millisecond)
			}
			for len(changed) > 0 {
				<-changed
			}
			server.AddTool(s.tools, protocol.Tool{Name: "late"}, func(context.Context, struct{}) (string, error) { return "", nil })
			select {
			case <-changed:
			case <-t.Context().Done():
			}
			if n := len(s.as.Sink.Requests(authtest.Authorize)); n != 1 {
				t.Errorf("%d logins", n)
			}
		})
	}
}

func pause(t *testing.T, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
}
