package resource_test

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/go-jose/go-jose/v4"
)

// check returns the principal of a POST request with headers, or the denial.
func check(t testing.TB, g *resource.Guard, lines ...string) (*resource.Principal, *streamable.Denial) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	who, denied := g.Check(r)
	if denied != nil {
		return nil, denied
	}
	return who.(*resource.Principal), nil
}

// textOf returns what a denial says; "" for none.
func textOf(denied *streamable.Denial) string {
	if denied == nil {
		return ""
	}
	return denied.Text
}

// A denial has exactly these challenges: they name the scopes, the metadata and, if there was a token, what is wrong with it. With
// DPoP there is one for each scheme, that of the client first.
//
// Guarantees: G-0046.1, G-0046.3
func TestChallengesOfDenials(t *testing.T) {
	const metadata = `resource_metadata="https://mcp.example/.well-known/oauth-protected-resource/mcp", scope="read write"`
	const malformed = `error="invalid_token", error_description="the token is malformed", ` + metadata
	const unsigned = `error="invalid_token", error_description="the token is not a signed JWT", ` + metadata
	tooLong := strings.Replace(malformed, "the token is malformed", "the token is too long", 1)
	const algs = `DPoP algs="RS256 PS256 ES256 ES384 EdDSA", `
	const invalid, needless = `error="invalid_request", error_description="`, `", `
	const twice, inURL = invalid + "the header Authorization is given more than once" + needless + metadata, invalid + "a token must not be part of a URL" + needless + metadata
	scopes := func(mode resource.DPoPMode) func(*resource.Options) {
		return func(o *resource.Options) { o.DPoP, o.Scopes = mode, []string{"read", "write"} }
	}
	off, allowed, required := scopes(resource.DPoPOff), scopes(resource.DPoPAllowed), scopes(resource.DPoPRequired)
	for name, c := range map[string]struct {
		change     func(*resource.Options)
		target     string
		headers    []string
		status     int
		text       string
		challenges []string
	}{
		"no token":              {off, "/mcp", nil, 401, "a token is needed", []string{"Bearer " + metadata}},
		"no scopes":             {nil, "/mcp", nil, 401, "a token is needed", []string{"Bearer " + strings.TrimSuffix(metadata, `, scope="read write"`)}},
		"another scheme":        {off, "/mcp", []string{"Basic YTpi"}, 401, "a token is needed", []string{"Bearer " + metadata}},
		"an empty header":       {off, "/mcp", []string{""}, 401, "a token is needed", []string{"Bearer " + metadata}},
		"DPoP where it is off":  {off, "/mcp", []string{"DPoP x"}, 401, "a token is needed", []string{"Bearer " + metadata}},
		"malformed":             {off, "/mcp", []string{"Bearer a,b"}, 401, "the token is malformed", []string{"Bearer " + malformed}},
		"no more than a scheme": {off, "/mcp", []string{"Bearer"}, 401, "the token is malformed", []string{"Bearer " + malformed}},
		"only padding":          {off, "/mcp", []string{"Bearer =="}, 401, "the token is malformed", []string{"Bearer " + malformed}},
		"padding inside":        {off, "/mcp", []string{"Bearer a=b"}, 401, "the token is malformed", []string{"Bearer " + malformed}},
		"of no JWT":             {off, "/mcp", []string{"Bearer   azAZ09-._~+/=="}, 401, "the token is not a signed JWT", []string{"Bearer " + unsigned}},
		"8 KiB":                 {off, "/mcp", []string{"Bearer " + strings.Repeat("x", 8<<10)}, 401, "the token is not a signed JWT", []string{"Bearer " + unsigned}},
		"longer":                {off, "/mcp", []string{"Bearer " + strings.Repeat("x", 8<<10+1)}, 401, "the token is too long", []string{"Bearer " + tooLong}},
		"longer, with DPoP":     {allowed, "/mcp", []string{"DPoP " + strings.Repeat("x", 8<<10+1)}, 401, "the token is too long", []string{algs + tooLong, "Bearer " + tooLong}},
		"a space after":         {off, "/mcp", []string{"Bearer x "}, 401, "the token is malformed", []string{"Bearer " + malformed}},
		"a URL with a slash":    {func(o *resource.Options) { off(o); o.URL += "/" }, "/mcp", nil, 401, "a token is needed", []string{"Bearer " + metadata}},
		"of no JWT, two issuers": {func(o *resource.Options) {
			off(o)
			o.Issuers = append(o.Issuers, resource.Issuer{URL: "https://b.example"})
		}, "/mcp", []string{"Bearer x"}, 401, "the token is not a signed JWT", []string{"Bearer " + unsigned}},
		"two headers":             {off, "/mcp", []string{"Bearer x", "Bearer x"}, 400, "the header Authorization is given more than once", []string{"Bearer " + twice}},
		"in the URL":              {off, "/mcp?a&access_token=x", []string{"Bearer x"}, 400, "a token must not be part of a URL", []string{"Bearer " + inURL}},
		"another query":           {off, "/mcp?a=access_token", nil, 401, "a token is needed", []string{"Bearer " + metadata}},
		"no token, DPoP allowed":  {allowed, "/mcp", nil, 401, "a token is needed", []string{"Bearer " + metadata, algs + metadata}},
		"malformed, DPoP allowed": {allowed, "/mcp", []string{"Bearer a,b"}, 401, "the token is malformed", []string{"Bearer " + malformed, algs + malformed}},
		"malformed, with DPoP":    {allowed, "/mcp", []string{"dpop a,b"}, 401, "the token is malformed", []string{algs + malformed, "Bearer " + malformed}},
		"of no JWT, with DPoP":    {allowed, "/mcp", []string{"DPoP x"}, 401, "the token is not a signed JWT", []string{algs + unsigned, "Bearer " + unsigned}},
		"of no JWT, without DPoP": {allowed, "/mcp", []string{"Bearer x"}, 401, "the token is not a signed JWT", []string{"Bearer " + unsigned, algs + unsigned}},
		"[, DPoP allowed":         {allowed, "/mcp", []string{"Bearer ["}, 401, "the token is malformed", []string{"Bearer " + malformed, algs + malformed}},
		"{, DPoP allowed":         {allowed, "/mcp", []string{"Bearer {"}, 401, "the token is malformed", []string{"Bearer " + malformed, algs + malformed}},
		"another, DPoP allowed":   {allowed, "/mcp", []string{"Basic YTpi"}, 401, "a token is needed", []string{"Bearer " + metadata, algs + metadata}},
		"two, DPoP allowed":       {allowed, "/mcp", []string{"DPoP x", "DPoP x"}, 400, "the header Authorization is given more than once", []string{"Bearer " + twice, algs + twice}},
		"URL, DPoP allowed":       {allowed, "/mcp?access_token=x", nil, 400, "a token must not be part of a URL", []string{"Bearer " + inURL, algs + inURL}},
		"no token, DPoP required": {required, "/mcp", nil, 401, "a token is needed", []string{algs + metadata}},
		"malformed, and required": {required, "/mcp", []string{"DPoP a,b"}, 401, "the token is malformed", []string{algs + malformed}},
	} {
		g, _ := newGuard(t, c.change, authtest.Options{})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.target, nil)
		r.Host = "evil.example"
		r.Header["Authorization"] = c.headers
		if c.headers == nil {
			delete(r.Header, "Authorization")
		}
		who, denied := g.Check(r)
		if denied == nil {
			t.Errorf("%s: %v is accepted", name, who)
			continue
		}
		if got := denied.Header["Www-Authenticate"]; denied.Status != c.status || denied.Text != c.text || strings.Join(got, "\n") != strings.Join(c.challenges, "\n") {
			t.Errorf("%s: %d, %q\n%s\nwant %d, %q\n%s", name, denied.Status, denied.Text, strings.Join(got, "\n"), c.status, c.text, strings.Join(c.challenges, "\n"))
		}
	}
	own := []string{"read"}
	g, _ := newGuard(t, func(o *resource.Options) { o.Scopes = own }, authtest.Options{})
	own[0] = "other" // which changes the program's list only
	if _, denied := check(t, g); !strings.HasSuffix(denied.Header.Get("Www-Authenticate"), `, scope="read"`) {
		t.Errorf("after a change of the options: %v", denied.Header)
	}
}

// A token is refused for the first rule that it breaks. Each time counts to the second, with the leeway.
//
// Guarantees: G-0046.2
func TestRulesForTokens(t *testing.T) {
	leeway := func(d time.Duration) func(*resource.Options) { return func(o *resource.Options) { o.Leeway = d } }
	const expired, early = "the token has expired", "the token is not valid yet"
	for name, c := range map[string]struct {
		change func(*resource.Options)
		claim  string
		value  any // a time.Duration is from now
		want   string
	}{
		"good":                               {nil, "x", "y", ""},
		"another issuer":                     {nil, "iss", "https://other.example", "the token is from another issuer"},
		"another audience":                   {nil, "aud", "https://other.example/mcp", "the token is for another audience"},
		"no subject, no client":              {nil, "nobody", nil, "the token has neither subject nor client"},
		"no expiry":                          {nil, "exp", nil, "the token does not say when it expires"},
		"an expiry in words":                 {nil, "exp", "soon", "the claims of the token cannot be read"},
		"an expiry that is NaN":              {nil, "exp", "NaN", "the claims of the token cannot be read"},
		"expired within the leeway":          {nil, "exp", -59 * time.Second, ""},
		"expired":                            {nil, "exp", -60 * time.Second, expired},
		"expired within a leeway of its own": {leeway(5 * time.Minute), "exp", -299 * time.Second, ""},
		"expired after it":                   {leeway(5 * time.Minute), "exp", -300 * time.Second, expired},
		"expired without a leeway":           {leeway(-1), "exp", time.Duration(0), expired},
		"not expired, without a leeway":      {leeway(-1), "exp", time.Second, ""},
		"early within the leeway":            {nil, "nbf", 60 * time.Second, ""},
		"early":                              {nil, "nbf", 61 * time.Second, early},
		"early without a leeway":             {leeway(-1), "nbf", time.Second, early},
		"now, without a leeway":              {leeway(-1), "nbf", time.Duration(0), ""},
		"issued within the leeway":           {nil, "iat", 60 * time.Second, ""},
		"issued later":                       {nil, "iat", 61 * time.Second, early},
		"bound to a key":                     {nil, "cnf", map[string]any{"jkt": "x"}, "the token is bound to a key in a way that is not accepted"},
		"bound in two ways":                  {allowed, "cnf", map[string]any{"jkt": "x", "x5t#S256": "y"}, "the token is bound to a key in a way that is not accepted"},
		"bound to a certificate":             {allowed, "cnf", map[string]any{"x5t#S256": "y"}, "the token is bound to a key in a way that is not accepted"},
		"bound to nothing":                   {allowed, "cnf", map[string]any{"jkt": ""}, "the token is bound to a key in a way that is not accepted"},
		"bound, as a bearer":                 {allowed, "cnf", map[string]any{"jkt": "x"}, "the scheme does not fit the token"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, as := newGuard(t, c.change, authtest.Options{})
				claims := as.Claims("read")
				switch value := c.value.(type) {
				case time.Duration:
					claims[c.claim] = time.Now().Add(value).Unix()
				case nil:
					delete(claims, c.claim)
				default:
					claims[c.claim] = value
				}
				if c.claim == "nobody" {
					maps.DeleteFunc(claims, func(name string, _ any) bool { return name == "sub" || name == "client_id" })
				}
				who, denied := check(t, g, bearer(as.IssueClaims(claims)))
				if textOf(denied) != c.want || (who == nil) == (denied == nil) {
					t.Errorf("got %q, want %q", textOf(denied), c.want)
				}
				if denied != nil && denied.Status != http.StatusUnauthorized {
					t.Errorf("the status is %d", denied.Status)
				}
			})
		})
	}
}

// A Principal has what the token says. The client may be named in two ways, and the scopes in three.
//
// Guarantees: G-0046.6
func TestPrincipals(t *testing.T) {
	for name, c := range map[string]struct {
		claims                            map[string]any
		subject, client, scopes, identity string
	}{
		"a user":             {nil, "user", "client", "read write", "https://as.example user"},
		"a client":           {map[string]any{"sub": nil}, "", "client", "read write", "https://as.example\nclient"},
		"authorized":         {map[string]any{"client_id": nil, "azp": "other"}, "user", "other", "read write", "https://as.example user"},
		"both":               {map[string]any{"azp": "other"}, "user", "client", "read write", "https://as.example user"},
		"a list":             {map[string]any{"scope": []string{"read", "admin"}}, "user", "client", "read admin", "https://as.example user"},
		"a list by scp":      {map[string]any{"scope": nil, "scp": []string{"read", "admin"}}, "user", "client", "read admin", "https://as.example user"},
		"a text by scp":      {map[string]any{"scope": nil, "scp": "read admin"}, "user", "client", "read admin", "https://as.example user"},
		"both names":         {map[string]any{"scp": "admin"}, "user", "client", "read write", "https://as.example user"},
		"no scopes":          {map[string]any{"scope": nil}, "user", "client", "", "https://as.example user"},
		"a subject of words": {map[string]any{"sub": "a b"}, "a b", "client", "read write", "https://as.example a b"},
	} {
		g, as := newGuard(t, func(o *resource.Options) {
			o.Implies = func(granted, needed string) bool { return granted == "admin" && needed == "write" }
			o.Needs = func(op streamable.Operation) []string { return strings.Fields(op.Method) }
			o.Scopes = []string{"read"}
		}, authtest.Options{})
		claims := as.Claims("read write")
		maps.Copy(claims, c.claims)
		maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
		who, denied := check(t, g, bearer(as.IssueClaims(claims)))
		if denied != nil {
			t.Errorf("%s: %s", name, denied.Text)
			continue
		}
		if who.Issuer != as.Issuer() || who.Subject != c.subject || who.Client != c.client || strings.Join(who.Scopes, " ") != c.scopes || who.Identity() != c.identity ||
			who.Expires.Unix() != claims["exp"] || !strings.Contains(string(who.Claims), `"jti"`) {
			t.Errorf("%s: the principal is %+v with the identity %q", name, who, who.Identity())
		}
		for needs, has := range map[string]bool{
			"": true, "read": strings.Contains(c.scopes, "read"), "write": strings.Contains(c.scopes, "write") || strings.Contains(c.scopes, "admin"), "read other": false, "other read": false,
		} {
			denied := who.Allow(streamable.Operation{Method: needs})
			if (denied == nil) != has {
				t.Errorf("%s: with the scopes %q, an operation that needs %q is allowed: %t", name, c.scopes, needs, denied == nil)
			}
			if want := `Bearer error="insufficient_scope", error_description="the operation needs more scopes", resource_metadata="https://mcp.example/.well-known/oauth-protected-resource/mcp", scope="` + needs + `"`; denied != nil &&
				(denied.Status != http.StatusForbidden || denied.Text != "the operation needs more scopes" || denied.Header.Get("Www-Authenticate") != want) {
				t.Errorf("%s: %+v", name, denied)
			}
		}
	}
}

// A proof counts for five minutes, to the second, for this method, server and token. Its id has at most 256 bytes.
//
// Guarantees: G-0046.7
func TestRulesForProofs(t *testing.T) {
	const old, elsewhere, other, noID = "the proof is too old, or from the future", "the proof is for another request", "the proof is for another token", "the proof has no id, or one that is too long"
	for name, c := range map[string]struct {
		claim string
		value any
		want  string
	}{
		"good": {"x", "y", ""}, "another method": {"htm", "GET", elsewhere}, "another server": {"htu", "https://other.example/mcp", elsewhere}, "no URL": {"htu", "https://mcp.example:x", elsewhere},
		"with a query": {"htu", "https://mcp.example/mcp?a#b", ""}, "only with its mark": {"htu", "https://MCP.example:443/mcp/?", ""}, "another path": {"htu", "https://mcp.example/", elsewhere},
		"no token": {"ath", "", other}, "no id": {"jti", "", noID}, "256 bytes": {"jti", strings.Repeat("x", 256), ""}, "257 bytes": {"jti", strings.Repeat("x", 257), noID},
		"5 min old": {"iat", -5 * time.Minute, ""}, "older": {"iat", -5*time.Minute - time.Second, old}, "5 min ahead": {"iat", 5 * time.Minute, ""}, "more ahead": {"iat", 5*time.Minute + time.Second, old}, "no time": {"iat", 0, old},
		"a time in words": {"iat", "now", "the claims of the proof cannot be read"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := newProving(t, allowed)
			claims := p.site.prove(p.token)
			claims[c.claim] = c.value
			if d, ok := c.value.(time.Duration); ok {
				claims[c.claim] = time.Now().Add(d).Unix()
			}
			_, denied := check(t, p.g, "Authorization: DPoP "+p.token, "DPoP: "+p.sign(claims))
			if textOf(denied) != c.want || denied != nil && (denied.Status != http.StatusUnauthorized || !strings.Contains(denied.Header.Get("Www-Authenticate"), `error="invalid_dpop_proof"`)) {
				t.Errorf("%s: %+v, want %q", name, denied, c.want)
			}
		})
	}
	key, stranger := newKey(t), newKey(t)
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	g, as := newGuard(t, allowed, authtest.Options{})
	token := bound(t, as, thumbprint(t, key))
	s := &site{t: t, url: "https://mcp.example/mcp"}
	claims := mustJSON(t, s.prove(token))
	for name, c := range map[string]struct {
		proofs []string
		want   string
	}{
		"none": {nil, "one proof is needed"}, "two": {[]string{"a", "b"}, "one proof is needed"}, "9 KiB": {[]string{strings.Repeat("x", 8<<10+1)}, "one proof is needed"},
		"8 KiB": {[]string{strings.Repeat("x", 8<<10)}, "the header of the proof is not accepted"}, "of another type": {[]string{signedBy(t, key, jose.ES256, "JWT", claims)}, "the proof is of another type"},
		"without a key":      {[]string{signedWithHeader(t, key, jose.ES256, s.prove(token), map[jose.HeaderKey]any{"typ": "dpop+jwt"})}, "the proof has no public key that fits its algorithm"},
		"with a private key": {[]string{signedWithHeader(t, key, jose.ES256, s.prove(token), map[jose.HeaderKey]any{"typ": "dpop+jwt", "jwk": jose.JSONWebKey{Key: key}})}, "the proof has no public key that fits its algorithm"},
		"of a stranger":      {[]string{signedBy(t, stranger, jose.ES256, "dpop+jwt", claims)}, "the proof is of another key than the token"},
		"cut":                {[]string{signedBy(t, key, jose.ES256, "dpop+jwt", claims)[:300]}, "the proof is malformed"},
		"changed":            {[]string{signedWithHeader(t, stranger, jose.ES256, s.prove(token), map[jose.HeaderKey]any{"typ": "dpop+jwt", "jwk": jose.JSONWebKey{Key: key.Public()}})}, "the signature of the proof is wrong"},
		"of a short key":     {[]string{signedBy(t, short, jose.RS256, "dpop+jwt", claims)}, "the proof has no public key that fits its algorithm"},
		"no claims":          {[]string{signedBy(t, key, jose.ES256, "dpop+jwt", []byte(`[]`))}, "the claims of the proof cannot be read"},
	} {
		lines := []string{"Authorization: DPoP " + token}
		for _, proof := range c.proofs {
			lines = append(lines, "DPoP: "+proof)
		}
		if _, denied := check(t, g, lines...); textOf(denied) != c.want {
			t.Errorf("a proof, %s: %+v, want %q", name, denied, c.want)
		}
	}
}

// Keys are used for as long as their response may be cached, between five minutes and a day.
//
// Guarantees: G-0046.4
func TestHowLongKeysAreFresh(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 5 * time.Minute, "max-age=600": 10 * time.Minute, "max-age=1": 5 * time.Minute, "max-age=86401": 24 * time.Hour, "max-age=99999999999": 24 * time.Hour, "max-age=-1": 5 * time.Minute, "max-age=-99999999999": 5 * time.Minute, "max-age=300": 5 * time.Minute, "max-age=soon, max-age=600": 10 * time.Minute, "max-age=301": 301 * time.Second,
		"public, Max-Age=\"600\", x=900": 10 * time.Minute, "s-maxage=600": 5 * time.Minute, "max-age=soon": 5 * time.Minute, "max-age=86400": 24 * time.Hour, "no-store,max-age=3600,max-age=600": time.Hour,
		"no-transform\nmax-age=600": 10 * time.Minute, // in two headers
	} {
		synctest.Test(t, func(t *testing.T) {
			g, as := newGuard(t, nil, authtest.Options{Life: 100 * time.Hour})
			as.Lie(authtest.Keys, func(a *authtest.Answer) { a.Header["Cache-Control"] = strings.Split(header, "\n") })
			fetches := func(after time.Duration) int {
				sleep(after)
				wantStatus(t, header, status(t, g, bearer(as.Issue("ada", "read"))), http.StatusOK)
				return len(as.Sink.Requests(authtest.Keys))
			}
			if first, before, after := fetches(0), fetches(want-1), fetches(1); first != 1 || before != 1 || after != 2 {
				t.Errorf("with %q: %d, %d and %d fetches, want 1, 1 and 2", header, first, before, after)
			}
		})
	}
}

// The metadata may be at three places. An answer that is no JSON, not 200 or too long, and a document of another issuer are
// passed over.
//
// Guarantees: G-0046.2, G-0046.4
func TestWhereTheKeysOfAnIssuerAre(t *testing.T) {
	page := func(kind string) authtest.Lie { return func(a *authtest.Answer) { a.Header.Set("Content-Type", kind) } }
	at := func(path string) authtest.Lie {
		return func(a *authtest.Answer) {
			if a.Request.URL.Path != path {
				a.Status = http.StatusNotFound
			}
		}
	}
	padded := func(size int) authtest.Lie {
		return func(a *authtest.Answer) {
			a.Object["x"] = ""
			text := mustJSON(t, a.Object)
			a.Object["x"] = strings.Repeat("x", size-len(text))
		}
	}
	for name, c := range map[string]struct {
		at       authtest.Endpoint
		lie      authtest.Lie
		accepted bool
	}{
		"at the first place":      {authtest.Metadata, at("/.well-known/oauth-authorization-server/tenant"), true},
		"at the second":           {authtest.Metadata, at("/.well-known/openid-configuration/tenant"), true},
		"at the third":            {authtest.Metadata, at("/tenant/.well-known/openid-configuration"), true},
		"nowhere":                 {authtest.Metadata, at("/"), false},
		"of another issuer":       {authtest.Metadata, func(a *authtest.Answer) { a.Object["issuer"] = "https://as.example" }, false},
		"without keys":            {authtest.Metadata, func(a *authtest.Answer) { delete(a.Object, "jwks_uri") }, false},
		"a page":                  {authtest.Metadata, page("text/html"), false},
		"of another kind of JSON": {authtest.Metadata, page("application/metadata+json; charset=utf-8"), true},
		"half a document": {authtest.Metadata, func(a *authtest.Answer) {
			a.Body = []byte(`{"issuer"`)
			a.Header.Set("Content-Type", "application/json")
		}, false},
		"keys on a page":            {authtest.Keys, page("text/plain"), false},
		"keys of their own kind":    {authtest.Keys, page("application/jwk-set+json"), true},
		"keys with another success": {authtest.Keys, func(a *authtest.Answer) { a.Status = http.StatusAccepted }, false},
		"no set":                    {authtest.Keys, func(a *authtest.Answer) { delete(a.Object, "keys") }, false},
		"256 KiB of keys":           {authtest.Keys, padded(256 << 10), true},
		"more":                      {authtest.Keys, padded(256<<10 + 1), false},
		"an unknown key beside":     {authtest.Keys, func(a *authtest.Answer) { a.Object["keys"] = append([]any{map[string]any{"kty": "new"}}, keysOf(a)...) }, true},
	} {
		g, as := newGuard(t, func(o *resource.Options) { o.Issuers[0].URL = "https://as.example/tenant" }, authtest.Options{Path: "/tenant"})
		as.Lie(c.at, c.lie)
		_, denied := check(t, g, bearer(as.Issue("ada", "read")))
		if (denied == nil) != c.accepted || denied != nil && (denied.Status != http.StatusServiceUnavailable || denied.Header.Get("Retry-After") != "5" || denied.Text != "the keys of the authorization server cannot be fetched now") {
			t.Errorf("%s: %+v, want it accepted: %t", name, denied, c.accepted)
		}
	}
}

func keysOf(a *authtest.Answer) (keys []any) {
	for _, key := range a.Object["keys"].([]jose.JSONWebKey) {
		keys = append(keys, key)
	}
	return keys
}

// An unreachable network notes what is asked of it.
type unreachable func(*http.Request)

func (f unreachable) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return nil, errors.New("nobody is there")
}

// The metadata of an issuer is asked for under the path of its URL as it is written there.
func TestPathOfAnIssuerStaysAsItIs(t *testing.T) {
	for path, want := range map[string]string{"/tenant%20a": "/tenant%20a", "/a/b/": "/a/b"} {
		var asked []string
		nowhere := unreachable(func(r *http.Request) { asked = append(asked, r.URL.EscapedPath()) })
		g, as := newGuard(t, func(o *resource.Options) {
			o.Issuers[0].URL, o.HTTP = "https://as.example"+path, &http.Client{Transport: nowhere}
		}, authtest.Options{})
		if _, denied := check(t, g, bearer(as.IssueClaims(map[string]any{"iss": "https://as.example" + path, "sub": "ada"}))); denied == nil {
			t.Errorf("%s: a token of an issuer that nobody has reached was accepted", path)
		}
		all := []string{"/.well-known/oauth-authorization-server" + want, "/.well-known/openid-configuration" + want, want + "/.well-known/openid-configuration"}
		if !slices.Equal(asked, all) {
			t.Errorf("%s: asked for %q, want %q", path, asked, all)
		}
	}
}
