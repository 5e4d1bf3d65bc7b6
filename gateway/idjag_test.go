package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/protocol"
)

// With idjag, each user acts at a server with a token of its authorization server, which has an assertion of the users' identity provider for it. The token that he has for the gateway goes to the
// provider only, once while the server's lasts. One that the provider does not take fails the call, and the next one may do; nobody is asked to open a page.
//
// Guarantees: G-0102.6, G-0102.12
func TestUsersAreAsserted(t *testing.T) {
	claims := func(idp *authtest.Server, who person) string {
		return idp.Signed("JWT", map[string]any{"iss": idp.Issuer(), "sub": string(who), "aud": "gateway", "exp": time.Now().Add(time.Hour).Unix()})
	}
	for _, c := range []struct {
		version, subject, kind string
		token                  func(*authtest.Server, person) string
	}{
		{protocol.LatestLegacy, ``, `access_token`, func(idp *authtest.Server, who person) string { return idp.Issue(string(who), "") }},
		{protocol.Latest, `"subject":"id_token",`, `id_token`, claims},
	} {
		t.Run(c.version, func(t *testing.T) {
			idp := authtest.Start(t, authtest.Options{Clients: []authtest.Client{{ID: "gateway", Secret: "at-the-provider", Auth: "client_secret_basic"}}})
			v := newVault(t, c.version, fmt.Sprintf(`{"login":{"idjag":{"issuer":"ISSUER","clientId":"gateway","clientSecret":"S3CRET",
				"provider":{%s"tokenEndpoint":%q,"clientId":"gateway","clientSecret":"at-the-provider"}}}}`, c.subject, idp.URL(authtest.Token)),
				authtest.Options{Trusts: map[string]func() jose.JSONWebKeySet{idp.Issuer(): idp.Keys}})
			issue := func(as person) string {
				token := c.token(idp, as)
				v.mu.Lock()
				defer v.mu.Unlock()
				v.issued[token] = as
				return token
			}
			opens := func(string) string {
				t.Error("a page is to be opened")
				return protocol.ElicitDecline
			}
			var tokens []string
			for _, who := range []person{"ada", "bob"} {
				tokens = append(tokens, issue(who))
				session := v.connectWith(c.version, tokens[len(tokens)-1], opens)
				for range 2 {
					if result := v.call(session, string(who)); result.IsError {
						t.Fatal(result.Content.Text())
					}
				}
			}
			asserted := map[string]int{}
			for _, r := range idp.Sink.Requests(authtest.Token) {
				asserted[r.Form.Get("subject_token")]++
				if kind := r.Form.Get("subject_token_type"); !strings.HasSuffix(kind, ":token-type:"+c.kind) {
					t.Errorf("it was shown as %s", kind)
				}
			}
			adas, bobs := v.tokensFor(`"ada"`), v.tokensFor(`"bob"`)
			if len(adas) != 1 || len(bobs) != 1 || adas[0] == bobs[0] || asserted[tokens[0]] != 1 || asserted[tokens[1]] != 1 || len(asserted) != 2 {
				t.Errorf("%d tokens of ada, %d of bob, %v", len(adas), len(bobs), asserted)
			}
			if e, err := v.logins.Load(t.Context(), auth.Key{Resource: v.as.Resource(), Principal: person("ada").Identity()}); e != nil || err != nil {
				t.Errorf("what was given is kept: %v, %v", e, err)
			}
			wantUnseen(t, v, tokens)
			eve := v.connect(c.version, "eve", opens) // whose token is of no issuer
			if result := v.call(eve, "eve"); !result.IsError || !strings.Contains(result.Content.Text(), "invalid_grant") || !strings.HasSuffix(result.Content.Text(), "It was not executed") {
				t.Error(result.Content.Text())
			}
			if result := v.call(v.connectWith(c.version, issue("eve"), opens), "eve"); result.IsError {
				t.Error(result.Content.Text())
			}
			v.wantNothingToExchange(c.version, opens)
		})
	}
}

// wantUnseen checks that neither the server nor its authorization server has got one of these tokens.
func wantUnseen(t *testing.T, v *vault, tokens []string) {
	t.Helper()
	v.mu.Lock()
	all := strings.Join(v.sent, "\n")
	v.mu.Unlock()
	for _, r := range v.as.Sink.Requests() {
		all += fmt.Sprintln(r.URL, r.Header, r.Form)
	}
	for _, token := range tokens {
		if strings.Contains(all, token) {
			t.Error("the token of a user for the gateway has left it for the server")
		}
	}
}
