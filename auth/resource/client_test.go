package resource_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// consent simulates the browser of a person who consents.
func consent(ctx context.Context, i auth.Interaction) (*url.URL, error) {
	return authtest.Consent(ctx, i.Start)
}

// TestOurClientLogsIn takes a session through discovery, registration, login, a call, and a call
// that needs more scopes, with tokens that are bound to a key and without.
//
// Guarantees: G-0046.1, G-0046.7
func TestOurClientLogsIn(t *testing.T) {
	for name, mode := range map[string]struct {
		resource.DPoPMode
		nonces bool
	}{"bearer": {}, "DPoP allowed": {DPoPMode: resource.DPoPAllowed}, "DPoP required, with nonces": {resource.DPoPRequired, true}} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, func(o *resource.Options) { o.DPoP, o.DPoPNonces = mode.DPoPMode, mode.nonces }, authtest.Options{DPoPNonces: mode.nonces})
			login := auth.New(auth.Options{Resource: s.url, Interact: consent, DPoP: mode.DPoPMode != resource.DPoPOff})
			defer login.Close()
			c := client.New(protocol.Implementation{Name: "test", Version: "1"}, client.Options{})
			session, err := c.Connect(t.Context(), &streamable.Client{URL: s.url, Authorizer: login})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close(context.Background())
			who, err := client.Call[string](t.Context(), session, "whoami", nil)
			if err != nil || !strings.HasPrefix(who, s.as.Issuer()+" user ") {
				t.Errorf("whoami: %q, %v", who, err)
			}
			changed, err := client.Call[string](t.Context(), session, "change", nil)
			if err != nil || changed != "changed" {
				t.Errorf("change: %q, %v", changed, err)
			}
			if n := len(s.as.Sink.Requests(authtest.Authorize)); n != 2 {
				t.Errorf("%d logins, want one, and one for the scope write", n)
			}
		})
	}
}
