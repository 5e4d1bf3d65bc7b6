package resource_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// The Guard requires a token, accepts it, and requires more scopes.
//
// Guarantees: G-0046.1
func TestATokenIsAskedForAndTaken(t *testing.T) {
	s := newSite(t, nil, authtest.Options{})
	none := s.call("whoami")
	s.wantChallenge(none, http.StatusUnauthorized, "")
	if challenge := none.header.Get("Www-Authenticate"); !strings.HasPrefix(challenge, "Bearer ") || !strings.Contains(challenge, `scope="read"`) {
		t.Errorf("without a token: %q", challenge)
	}
	s.wantChallenge(s.call("whoami", "Authorization: Basic YTpi"), http.StatusUnauthorized, "")
	s.wantChallenge(s.send(http.MethodGet, "", "Mcp-Session-Id: x"), http.StatusUnauthorized, "")
	s.wantChallenge(s.send(http.MethodDelete, "", "Mcp-Session-Id: x"), http.StatusUnauthorized, "")

	token := s.as.Issue("ada", "read")
	for _, scheme := range []string{"Bearer", "bearer", "BEARER"} {
		if r := s.call("whoami", "Authorization: "+scheme+" "+token); r.status != http.StatusOK || !strings.Contains(r.body, s.as.Issuer()+" ada client") {
			t.Errorf("%s: %+v", scheme, r)
		}
	}
	more := s.call("change", bearer(token))
	s.wantChallenge(more, http.StatusForbidden, "insufficient_scope")
	if challenge := more.header.Get("Www-Authenticate"); !strings.Contains(challenge, `scope="read write"`) {
		t.Errorf("with too few scopes: %q", challenge)
	}
	if r := s.call("change", bearer(s.as.Issue("ada", "read write"))); r.status != http.StatusOK || !strings.Contains(r.body, "changed") {
		t.Errorf("with all scopes: %+v", r)
	}
}

// TestChallengesFitTheToken checks that a client which lacks scopes, or has used the wrong scheme, gets the challenge for its kind of
// token first.
//
// Guarantees: G-0046.3
func TestChallengesFitTheToken(t *testing.T) {
	p, as := newProving(t, func(o *resource.Options) {
		o.DPoP, o.Needs = resource.DPoPAllowed, func(op streamable.Operation) []string { return []string{op.Method} }
	})
	unbound := as.Issue("ada", "read")
	first := func(name string, denied *streamable.Denial, want string) {
		t.Helper()
		if denied == nil {
			t.Fatalf("%s: the request is accepted", name)
		}
		if challenges := denied.Header["Www-Authenticate"]; len(challenges) != 2 || !strings.HasPrefix(challenges[0], want) {
			t.Errorf("%s: the challenges are %q, want that for %s first", name, challenges, want)
		}
	}
	for scheme, lines := range map[string][]string{"Bearer": {bearer(unbound)}, "DPoP": {"Authorization: DPoP " + p.token, "DPoP: " + p.sign(p.site.prove(p.token))}} {
		who, denied := check(t, p.g, lines...)
		if denied != nil {
			t.Fatalf("%s: %s", scheme, denied.Text)
		}
		first("few scopes", who.Allow(streamable.Operation{Method: "admin"}), scheme+" ")
	}
	for scheme, line := range map[string]string{"Bearer": "Authorization: DPoP " + unbound, "DPoP": bearer(p.token)} {
		_, denied := check(t, p.g, line)
		if textOf(denied) != "the scheme does not fit the token" {
			t.Errorf("%s: %+v", line, denied)
		}
		first("another scheme", denied, scheme+" ")
	}
}

// What a client may see depends on the operation that uses the feature: a call of the tool, a request for the prompt, or a read of the
// resource. A request that no Guard has checked sees nothing.
//
// Guarantees: G-0029.3
func TestWhatAFeatureNeeds(t *testing.T) {
	needed := map[string]bool{}
	s := newSite(t, func(o *resource.Options) {
		o.Needs = func(op streamable.Operation) []string {
			if name := op.Name(); name != "" { // not the lists themselves
				needed[op.Method+" "+name] = true
			}
			return nil
		}
	}, authtest.Options{})
	server.AddPrompt(s.tools, protocol.Prompt{Name: "greet"}, func(context.Context, struct{}) (string, error) { return "hello", nil })
	server.AddResource(s.tools, protocol.Resource{Name: "notes", URI: "file:///notes"}, func(context.Context) (string, error) { return "notes", nil })
	for _, list := range []string{"tools/list", "prompts/list", "resources/list"} {
		r := s.send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"`+list+`","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
			bearer(s.as.Issue("ada", "read")), "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: "+list)
		if r.status != http.StatusOK {
			t.Fatalf("%s: status %d: %s", list, r.status, r.body)
		}
	}
	want := []string{"prompts/get greet", "resources/read file:///notes", "tools/call ask", "tools/call change", "tools/call render", "tools/call whoami"}
	if got := slices.Sorted(maps.Keys(needed)); !slices.Equal(got, want) {
		t.Errorf("the operations are %q, want %q", got, want)
	}
	if s.guard.Visible(t.Context(), server.Feature{Kind: server.KindTool, Name: "ask"}) {
		t.Error("a request that was not checked sees a tool")
	}
}

// Clients find the authorization server by the metadata.
//
// Guarantees: G-0046.3
func TestMetadataNamesTheIssuer(t *testing.T) {
	s := newSite(t, nil, authtest.Options{})
	root := strings.TrimSuffix(s.url, "/mcp")
	for path, status := range map[string]int{
		"/.well-known/oauth-protected-resource/mcp":   http.StatusOK,
		"/.well-known/oauth-protected-resource":       http.StatusOK,
		"/.well-known/oauth-protected-resource/other": http.StatusNotFound,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, root+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "evil.example" // must not matter
		r := s.do(request)
		if r.status != status || r.header.Get("Access-Control-Allow-Origin") != "*" {
			t.Errorf("%s: %+v", path, r)
		}
		if status != http.StatusOK {
			continue
		}
		var document struct {
			Resource string   `json:"resource"`
			Issuers  []string `json:"authorization_servers"`
			Scopes   []string `json:"scopes_supported"`
		}
		if err := json.Unmarshal([]byte(r.body), &document); err != nil || document.Resource != s.url || len(document.Issuers) != 1 || document.Issuers[0] != s.as.Issuer() || len(document.Scopes) != 1 {
			t.Errorf("%s: %s, %v", path, r.body, err)
		}
		if r.header.Get("Cache-Control") != "max-age=3600" || strings.Contains(r.body, "evil") {
			t.Errorf("%s: %+v", path, r)
		}
	}
}

// A session belongs to its user: other tokens of that user may use it, and other users may not.
//
// Guarantees: G-0046.6
func TestASessionBelongsToItsUser(t *testing.T) {
	s := newSite(t, nil, authtest.Options{})
	begun := s.send(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
		bearer(s.as.Issue("ada", "read")))
	session := "Mcp-Session-Id: " + begun.header.Get("Mcp-Session-Id")
	if begun.status != http.StatusOK {
		t.Fatalf("initialize: %+v", begun)
	}
	s.send(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, session, bearer(s.as.Issue("ada", "read")))
	ping := `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	if r := s.send(http.MethodPost, ping, session, bearer(s.as.Issue("ada", "read write"))); r.status != http.StatusOK {
		t.Errorf("another token of the same user: %+v", r)
	}
	eve := bearer(s.as.Issue("eve", "read write"))
	unknown := s.send(http.MethodPost, ping, "Mcp-Session-Id: unknown", eve)
	for _, r := range []reply{s.send(http.MethodPost, ping, session, eve), unknown} {
		if r.status != http.StatusNotFound || r.body != unknown.body {
			t.Errorf("another user: %+v", r)
		}
	}
	if r := s.send(http.MethodGet, "", session, eve); r.status != http.StatusNotFound {
		t.Errorf("another user listens: %+v", r)
	}
	if r := s.send(http.MethodDelete, "", session, eve); r.status != http.StatusNotFound {
		t.Errorf("another user ends it: %+v", r)
	}
	list := s.send(http.MethodPost, `{"jsonrpc":"2.0","id":3,"method":"tools/list"}`, session, bearer(s.as.Issue("ada", "read")))
	if !strings.Contains(list.body, "whoami") || strings.Contains(list.body, "change") {
		t.Errorf("with the scope read, the tools are %s", list.body)
	}
}
