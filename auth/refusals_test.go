package auth

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/transport"
)

// Where the documents of an offline authorization server are.
const (
	resourceDocument = offlineIssuer + "/.well-known/oauth-protected-resource/mcp"
	serverDocument   = offlineIssuer + "/.well-known/oauth-authorization-server"
	openIDDocument   = offlineIssuer + "/.well-known/openid-configuration"
)

// A refusedAnswer is an answer that a login refuses, and what the error says.
type refusedAnswer struct {
	at   authtest.Endpoint
	lie  authtest.Lie
	want string // the error of the login, or how it begins if it ends with "..."; "": the login works
}

// wantRefusals logs in once with each answer.
func wantRefusals(t *testing.T, o func(*offline) Options, refusals map[string]refusedAnswer) {
	t.Helper()
	for name, c := range refusals {
		t.Run(name, func(t *testing.T) {
			f := newOffline(authtest.Options{})
			f.as.Lie(c.at, c.lie)
			a := f.login(t, o(f))
			err := a.Login(t.Context())
			if c.want == "" {
				if err != nil {
					t.Errorf("Login: %v", err)
				}
				return
			}
			text, found := strings.CutPrefix(errorText(err), "auth: log in to "+offlineURL+" first: ")
			want, begins := strings.CutSuffix(c.want, "...")
			if !found || begins && !strings.HasPrefix(text, want) || !begins && text != want {
				t.Errorf("Login: %s\nwant:  %s", text, c.want)
			}
			var missing *LoginError
			if !errors.As(err, &missing) || missing.Resource != offlineURL || !errors.Is(err, transport.ErrAuthRequired) {
				t.Errorf("the error is a %T", err)
			}
			if e, err := a.Status(t.Context()); e != nil || err != nil {
				t.Errorf("there is the login %+v, %v", e, err)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}

func byConsent(f *offline) Options { return Options{Interact: f.consent} }

func pageWith(status int, kind, text string) authtest.Lie {
	return func(a *authtest.Answer) {
		a.Status, a.Body, a.Redirect = status, []byte(text), ""
		a.Header.Set("Content-Type", kind)
	}
}

// inQuery changes a parameter of the redirect; without values the parameter is missing.
func inQuery(name string, values ...string) authtest.Lie {
	return func(a *authtest.Answer) { a.Query[name] = values }
}

// The error of a login says which document is refused, and why.
//
// Guarantees: G-0044.7
func TestRefusedMetadata(t *testing.T) {
	const (
		resource = "auth: metadata at " + resourceDocument + ": "
		server   = "auth: metadata at " + serverDocument + ": "
		strange  = server + "it is not that of the authorization server: "
		absent   = ": there is no such document"
	)
	servers := func(list ...string) authtest.Lie { return setMember("authorization_servers", list) }
	refusals := map[string]refusedAnswer{
		"no resource": {authtest.ResourceMetadata, setMember("resource", nil), resource + "it names no resource"},
		"another resource": {authtest.ResourceMetadata, setMember("resource", "https://other.example/mcp"),
			resource + `it is about another resource: the server at https://mcp.example/mcp calls itself "https://other.example/mcp", so log in to that if you trust it`},
		"no servers":                 {authtest.ResourceMetadata, servers(), resource + "it names no authorization server"},
		"a server over http":         {authtest.ResourceMetadata, servers("http://as.example"), resource + "it names no authorization server that may be asked: http://as.example: http is for loopback hosts only: use https"},
		"a server with a query":      {authtest.ResourceMetadata, servers(offlineIssuer + "?a"), resource + "it names no authorization server that may be asked: an issuer is no URL without query and fragment"},
		"a server with a fragment":   {authtest.ResourceMetadata, servers(offlineIssuer + "#a"), resource + "it names no authorization server that may be asked: an issuer is no URL without query and fragment"},
		"a server that is no URL":    {authtest.ResourceMetadata, servers("https://as.example:x"), resource + "it names no authorization server that may be asked: an issuer is no URL without query and fragment"},
		"the second server":          {authtest.ResourceMetadata, servers("http://as.example", offlineIssuer), ""},
		"the sixteenth server":       {authtest.ResourceMetadata, servers(append(strings.Split(strings.Repeat("http://as.example ", 15), " ")[:15], offlineIssuer)...), ""},
		"the seventeenth server":     {authtest.ResourceMetadata, servers(append(strings.Split(strings.Repeat("http://as.example ", 16), " ")[:16], offlineIssuer)...), resource + "it names no authorization server that may be asked: ..."},
		"absent, though named":       {authtest.ResourceMetadata, answerWith(http.StatusNotFound, ""), resource + "status 404" + absent},
		"forbidden":                  {authtest.ResourceMetadata, answerWith(http.StatusForbidden, ""), resource + "status 403" + absent},
		"too many requests":          {authtest.ResourceMetadata, answerWith(http.StatusTooManyRequests, ""), resource + "status 429"},
		"an error":                   {authtest.ResourceMetadata, answerWith(http.StatusInternalServerError, ""), resource + "status 500"},
		"another success":            {authtest.ResourceMetadata, func(a *authtest.Answer) { a.Status = http.StatusAccepted }, resource + "status 202"},
		"a page":                     {authtest.ResourceMetadata, pageWith(http.StatusOK, "text/html", "<html>"), resource + "it is not JSON" + absent},
		"half a document":            {authtest.ResourceMetadata, pageWith(http.StatusOK, "application/json", `{"resource"`), resource + "it cannot be read: ..."},
		"the server is absent":       {authtest.Metadata, answerWith(http.StatusNotFound, ""), "auth: metadata at " + openIDDocument + ": status 404" + absent},
		"the server has an error":    {authtest.Metadata, answerWith(http.StatusBadGateway, ""), server + "status 502"},
		"another issuer":             {authtest.Metadata, setMember("issuer", "https://evil.example"), strange + "its issuer is another"},
		"no token endpoint":          {authtest.Metadata, setMember("token_endpoint", nil), strange + "it has no token endpoint"},
		"no authorization endpoint":  {authtest.Metadata, setMember("authorization_endpoint", nil), "auth: metadata at " + offlineIssuer + ": it has no authorization endpoint"},
		"no PKCE":                    {authtest.Metadata, setMember("code_challenge_methods_supported", []string{"plain"}), "auth: metadata at " + offlineIssuer + ": it does not list the PKCE method S256"},
		"no registration":            {authtest.Metadata, setMember("registration_endpoint", nil), "auth: no client at " + offlineIssuer + ": it registers no clients by itself: register one there, and name it in Registered"},
		"only at the second address": {authtest.Metadata, onlyAt("/.well-known/openid-configuration"), ""},
	}
	for _, endpoint := range []string{"authorization", "token", "registration", "revocation", "device_authorization"} {
		refusals["the "+endpoint+" endpoint over http"] = refusedAnswer{authtest.Metadata, setMember(endpoint+"_endpoint", "http://as.example/it"),
			strange + "http://as.example/it: http is for loopback hosts only: use https"}
	}
	wantRefusals(t, byConsent, refusals)
}

func onlyAt(path string) authtest.Lie {
	return func(a *authtest.Answer) {
		if a.Request.URL.Path != path {
			a.Status = http.StatusNotFound
		}
	}
}

// A long text with so many bytes.
func long(n int) string { return strings.Repeat("x", n) }

// The error of a login says why there is no client.
//
// Guarantees: G-0044.7
func TestRefusedRegistrations(t *testing.T) {
	const failed = "auth: no client at " + offlineIssuer + ": "
	answer := func(status int, text string) authtest.Lie { return pageWith(status, "application/json", text) }
	wantRefusals(t, byConsent, map[string]refusedAnswer{
		"refused":              {authtest.Register, answer(400, `{"error":"invalid_client_metadata"}`), failed + "it refuses to register this program (status 400, invalid_client_metadata)"},
		"refused with a page":  {authtest.Register, answer(403, `<html>`), failed + "it refuses to register this program (status 403)"},
		"half an error":        {authtest.Register, answer(400, `{"error":"invalid_client_metadata"`), failed + "it refuses to register this program (status 400)"},
		"a code in words":      {authtest.Register, answer(400, `{"error":"an error"}`), failed + "it refuses to register this program (status 400)"},
		"a code of 63 bytes":   {authtest.Register, answer(400, `{"error":"`+long(63)+`"}`), failed + "it refuses to register this program (status 400, " + long(63) + ")"},
		"a code of 64 bytes":   {authtest.Register, answer(400, `{"error":"`+long(64)+`"}`), failed + "it refuses to register this program (status 400)"},
		"redirected":           {authtest.Register, answer(302, ``), failed + "it refuses to register this program (status 302)"},
		"registered as nobody": {authtest.Register, setMember("client_id", ""), failed + "its answer to the registration has no client id"},
		"an id of 4097 bytes":  {authtest.Register, setMember("client_id", long(4097)), failed + "its answer to the registration has no client id"},
		"an id of 4096 bytes":  {authtest.Register, setMember("client_id", long(4096)), "the browser shows status 400"},
		"half an answer":       {authtest.Register, answer(201, `{"client_id":"x"`), failed + "its answer to the registration has no client id"},
	})
	wantRefusals(t, func(f *offline) Options {
		return Options{Interact: f.consent, Registered: []Registered{{Issuer: "https://other.example", ID: "other"}}}
	}, map[string]refusedAnswer{
		"no registration, with a client elsewhere": {authtest.Metadata, setMember("registration_endpoint", nil), failed + "it registers no clients by itself: register one there, and name it in Registered, with this Issuer"},
	})
	none := func(*offline) Options { return Options{Grant: ClientCredentials{}} }
	wantRefusals(t, none, map[string]refusedAnswer{"no client that was given": {authtest.Keys, nil, failed + "name the client in Registered, with this Issuer"}})
}

// The error of a login says why the authorization response is refused, or what the server says, unless that is no error
// code.
//
// Guarantees: G-0044.7
func TestRefusedAuthorizationResponses(t *testing.T) {
	const refused = "auth: the authorization response of " + offlineIssuer + " is not accepted: "
	const denied = "auth: " + offlineIssuer + " gives no authorization: "
	twice := func(name string) authtest.Lie {
		return func(a *authtest.Answer) { a.Query[name] = []string{a.Query.Get(name), a.Query.Get(name)} }
	}
	refusals := map[string]refusedAnswer{
		"another state":       {authtest.Authorize, inQuery("state", "x"), refused + "its state is not that of the request"},
		"no state":            {authtest.Authorize, inQuery("state"), refused + "its state is not that of the request"},
		"another issuer":      {authtest.Authorize, inQuery("iss", "https://evil.example"), refused + "it is from another issuer"},
		"an empty issuer":     {authtest.Authorize, inQuery("iss", ""), refused + "it is from another issuer"},
		"no issuer":           {authtest.Authorize, inQuery("iss"), refused + "it does not say which issuer it is from"},
		"no code":             {authtest.Authorize, inQuery("code"), refused + "it has no code"},
		"a code of 64 KB":     {authtest.Authorize, inQuery("code", long(64<<10)), "auth: as.example gave no token: status 400, invalid_grant"},
		"a longer code":       {authtest.Authorize, inQuery("code", long(64<<10+1)), refused + "it has no code"},
		"denied":              {authtest.Authorize, inQuery("error", "access_denied"), denied + "access_denied"},
		"an error in words":   {authtest.Authorize, inQuery("error", "call 555"), denied + "an error"},
		"an empty error":      {authtest.Authorize, inQuery("error", ""), denied + "an error"},
		"an error of 64":      {authtest.Authorize, inQuery("error", long(64)), denied + long(64)},
		"an error of 65":      {authtest.Authorize, inQuery("error", long(65)), denied + "an error"},
		"an unreadable query": {authtest.Authorize, func(a *authtest.Answer) { a.Redirect = ""; a.Header.Set("Location", testRedirect+"?a=%zz") }, refused + "it cannot be read"},
	}
	for _, name := range []string{"state", "iss", "code", "error"} {
		refusals["two of "+name] = refusedAnswer{authtest.Authorize, twice(name), refused + name + " is repeated"}
	}
	wantRefusals(t, byConsent, refusals)
	nothing := func(*offline) Options {
		return Options{Interact: func(ctx context.Context, i Interaction) (*url.URL, error) {
			_, err := i.Start(ctx, testRedirect)
			return nil, err
		}}
	}
	wantRefusals(t, nothing, map[string]refusedAnswer{"no response": {authtest.Keys, nil, refused + "there is none"}})
	idle := func(*offline) Options {
		return Options{Interact: func(context.Context, Interaction) (*url.URL, error) { return url.Parse(testRedirect) }}
	}
	wantRefusals(t, idle, map[string]refusedAnswer{"not started": {authtest.Keys, nil, "auth: Interact has not started the login"}})
}

// A server that does not say that it names the issuer in its responses may leave it out. If it names one, that must be it.
//
// Guarantees: G-0044.7
func TestAnIssuerThatIsNotNamed(t *testing.T) {
	f := newOffline(authtest.Options{})
	f.as.Lie(authtest.Metadata, setMember("authorization_response_iss_parameter_supported", nil))
	f.as.Lie(authtest.Authorize, inQuery("iss"))
	f.wantCall(t, f.login(t, byConsent(f)))
	f.as.Lie(authtest.Authorize, inQuery("iss", "https://evil.example"))
	if err := f.login(t, byConsent(f)).Login(t.Context()); err == nil || !strings.Contains(err.Error(), "it is from another issuer") {
		t.Errorf("Login with the response of another issuer: %v", err)
	}
}

// The error of a login says why the answer of the token endpoint is refused.
//
// Guarantees: G-0044.7, G-0044.18
func TestRefusedTokens(t *testing.T) {
	const failed = "auth: as.example gave no token: status 200, "
	answer := func(status int, text string) authtest.Lie { return pageWith(status, "application/json", text) }
	wantRefusals(t, byConsent, map[string]refusedAnswer{
		"spent":                             {authtest.Token, answer(400, `{"error":"invalid_grant"}`), "auth: as.example gave no token: status 400, invalid_grant"},
		"down":                              {authtest.Token, answer(503, `<html>`), "auth: as.example gave no token: status 503"},
		"another success":                   {authtest.Token, answer(201, `{"access_token":"t","token_type":"Bearer"}`), "auth: as.example gave no token: status 201"},
		"half an error":                     {authtest.Token, answer(400, `{"error":"invalid_grant"`), "auth: as.example gave no token: status 400"},
		"a code in words":                   {authtest.Token, answer(400, `{"error":"call 555"}`), "auth: as.example gave no token: status 400"},
		"a code of 63 bytes":                {authtest.Token, answer(400, `{"error":"`+long(63)+`"}`), "auth: as.example gave no token: status 400, " + long(63)},
		"a code of 64 bytes":                {authtest.Token, answer(400, `{"error":"`+long(64)+`"}`), "auth: as.example gave no token: status 400"},
		"a page":                            {authtest.Token, pageWith(200, "text/html", `{"access_token":"t","token_type":"Bearer"}`), failed + "its answer is not JSON"},
		"half an answer":                    {authtest.Token, answer(200, `{"access_token":"t"`), failed + "its answer cannot be read"},
		"no token":                          {authtest.Token, setMember("access_token", ""), failed + "its answer has no access token that can be sent"},
		"a token with a space":              {authtest.Token, setMember("access_token", "a b"), failed + "its answer has no access token that can be sent"},
		"a token with DEL":                  {authtest.Token, setMember("access_token", "a\x7fb"), failed + "its answer has no access token that can be sent"},
		"a token with a letter of no ASCII": {authtest.Token, setMember("access_token", "é"), failed + "its answer has no access token that can be sent"},
		"a token of visible letters":        {authtest.Token, setMember("access_token", "!~"), ""},
		"a token of 64 KB":                  {authtest.Token, setMember("access_token", long(64<<10)), ""},
		"a longer token":                    {authtest.Token, setMember("access_token", long(64<<10+1)), failed + "its answer has no access token that can be sent"},
		"a refresh token with a space":      {authtest.Token, setMember("refresh_token", "a b"), failed + "its refresh token cannot be sent"},
		"no refresh token":                  {authtest.Token, setMember("refresh_token", ""), ""},
		"a type in another case":            {authtest.Token, setMember("token_type", "bEARER"), ""},
		"an issued type that nobody wanted": {authtest.Token, setMember("issued_token_type", "x"), ""},
		"another type":                      {authtest.Token, setMember("token_type", "mac"), failed + "its token is of an unknown type"},
		"a type of a key that is not there": {authtest.Token, setMember("token_type", "dpop"), failed + "the token is bound to a DPoP key, although none was requested"},
	})
	bound := func(f *offline) Options { return Options{Interact: f.consent, DPoP: true} }
	wantRefusals(t, bound, map[string]refusedAnswer{
		"not bound":              {authtest.Token, setMember("token_type", "Bearer"), failed + "the token is not bound to the DPoP key"},
		"a type in another case": {authtest.Token, setMember("token_type", "dpop"), ""},
		"a nonce without end": {authtest.Token, func(a *authtest.Answer) {
			a.Status, a.Body = http.StatusBadRequest, []byte(`{"error":"use_dpop_nonce"}`)
			a.Header.Set("DPoP-Nonce", "again")
		}, "auth: as.example gave no token: status 400, use_dpop_nonce"},
		"no nonce": {authtest.Token, answer(400, `{"error":"use_dpop_nonce"}`), "auth: as.example gave no token: status 400, use_dpop_nonce"},
	})
}
