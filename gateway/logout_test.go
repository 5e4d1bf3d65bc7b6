package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
)

// loggedIn returns the session of a client whose user has logged in at the server, and then cannot be asked any more.
func (v *vault) loggedIn(who person) *client.Session {
	v.t.Helper()
	session := v.connect(protocol.Latest, who, nil)
	if text := v.visit(pageIn(v.call(session, string(who)))); !strings.Contains(text, "You are logged in") {
		v.t.Fatal(text)
	}
	v.wantCall(session, who)
	return session
}

func (v *vault) wantCall(session *client.Session, who person) {
	v.t.Helper()
	if result := v.call(session, string(who)); result.IsError {
		v.t.Fatal(result.Content.Text())
	}
}

// Who runs the gateway ends the login of one user at a server: its tokens are revoked, and the user is asked for another one. Others notice nothing.
//
// Guarantees: G-0102.13
func TestLogout(t *testing.T) {
	v := newVault(t, protocol.Latest, `{"login":"user"}`, authtest.Options{})
	ada, bob := v.loggedIn("ada"), v.loggedIn("bob")
	key := auth.Key{Resource: v.as.Resource(), Principal: person("ada").Identity()}
	e, err := v.logins.Load(t.Context(), key)
	failOn(t, err)
	failOn(t, v.gateway.Logout(timeout(t), "a", person("ada").Identity()))
	var revoked []string
	for _, r := range v.as.Sink.Requests(authtest.Revoke) {
		revoked = append(revoked, r.Form.Get("token"))
	}
	if want := []string{e.Refresh.Reveal(), e.Access.Reveal()}; !slices.Equal(revoked, want) {
		t.Errorf("%d tokens were revoked", len(revoked))
	}
	if left, err := v.logins.Load(t.Context(), key); left != nil || err != nil {
		t.Errorf("in the store is %v, %v", left, err)
	}
	logins := len(v.as.Sink.Requests(authtest.Authorize))
	v.wantCall(bob, "bob")
	page := pageIn(v.call(ada, "ada"))
	if text := v.visit(page); !strings.Contains(text, "You are logged in") || len(v.as.Sink.Requests(authtest.Authorize)) != logins+1 {
		t.Error(text)
	}
	v.wantCall(ada, "ada")
	if len(v.tokensFor(`"bob"`)) != 1 || len(v.tokensFor(`"ada"`)) != 2 {
		t.Error("the calls of bob have another token, or those of ada have not")
	}
	for _, wrong := range []struct{ server, user, want string }{{"a", "token eve", "no login at a"}, {"b", "token ada", admin.ErrNoServer.Error()}} {
		if err := v.gateway.Logout(timeout(t), wrong.server, wrong.user); err == nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	if got, want := v.records.about("logout"), []string{"admin token ada a/", "admin token eve a/ failed", "admin token ada b/ failed"}; !slices.Equal(got, want) {
		t.Errorf("records: %q", got)
	}
	if printed, err := e.MarshalBinary(); err != nil || len(v.as.Printed(string(printed))) == 0 || len(v.as.Printed(v.log.String())) > 0 {
		t.Error("a token is in the log", err)
	}
}

// A token that its server would still accept is not used any more: not at the gateway that was asked, and after a second at no other one that has it in memory.
//
// Guarantees: G-0102.13
func TestLogoutWithoutRevocation(t *testing.T) {
	const entry = `{"login":"user"}`
	v := newVault(t, protocol.Latest, entry, authtest.Options{})
	v.as.Lie(authtest.Metadata, func(a *authtest.Answer) { delete(a.Object, "revocation_endpoint") })
	w := v.another(entry)
	here, bob := v.loggedIn("ada"), v.loggedIn("bob")
	again := v.connect(protocol.Latest, "ada-again", nil) // the same person
	v.wantCall(again, "ada")
	there := w.connect(protocol.Latest, "ada", nil)
	w.wantCall(there, "ada")
	failOn(t, v.gateway.Logout(timeout(t), "a", person("ada").Identity()))
	for _, session := range []*client.Session{here, again} {
		if pageIn(v.call(session, "ada")) == "" {
			t.Error("who was logged out calls as before")
		}
	}
	for ctx := timeout(t); pageIn(w.call(there, "ada")) == ""; {
		if ctx.Err() != nil {
			t.Fatal("the other gateway does not notice")
		}
	}
	v.wantCall(bob, "bob")
	if text := w.visit(pageIn(w.call(there, "ada"))); !strings.Contains(text, "You are logged in") {
		t.Fatal(text)
	}
	w.wantCall(there, "ada")
	v.wantCall(here, "ada")
	v.wantCall(again, "ada")
}

// An authorization server that fails to revoke is named, and the login is removed all the same.
//
// Guarantees: G-0102.13
func TestLogoutThatCannotRevoke(t *testing.T) {
	v := newVault(t, protocol.LatestLegacy, `{"login":"user"}`, authtest.Options{})
	ada := v.loggedIn("ada")
	v.as.Lie(authtest.Revoke, func(a *authtest.Answer) { a.Status = http.StatusServiceUnavailable })
	err := v.gateway.Logout(timeout(t), "a", person("ada").Identity())
	if err == nil || !strings.Contains(err.Error(), "the login is removed, and may be valid until it ends") || errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if pageIn(v.call(ada, "ada")) == "" {
		t.Error("who was logged out calls as before")
	}
}

// Where users do not log in, nobody can be logged out.
//
// Guarantees: G-0102.13
func TestLogoutWhereNobodyLogsIn(t *testing.T) {
	for entry, want := range map[string]string{
		`{}`: `users have no logins of their own at a`,
		`{"login":{"exchange":{"issuer":"ISSUER","clientId":"gateway","clientSecret":"S3CRET"}}}`: `users do not log in at a`,
	} {
		v := newVault(t, protocol.Latest, entry, authtest.Options{})
		if err := v.gateway.Logout(timeout(t), "a", "token ada"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", entry, err)
		}
	}
}

// A connection that ends with the login of its user begins anew if the user has subscribed over it.
//
// Guarantees: G-0102.13
func TestASubscriptionOutlivesALogout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := new(isle)
		i.fleet = loginsAt(t, auth.NewMemory(), func() *server.Server {
			k := newKeeper()
			i.keepers = append(i.keepers, k)
			return k.Server
		})
		ann := i.clientOf("ann", protocol.LatestLegacy)
		failOn(t, ann.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "kept:/it"}))
		callKeep(t, ann)
		failOn(t, i.Logout(t.Context(), "a", "ann"))
		if anew, before := i.connections(), len(i.of("x")); anew != 1 || before != 0 {
			t.Errorf("after the logout, %d connections run, of them %d from before", anew, before)
		}
	})
}
