package auth

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

// A falseAnswer changes one answer of the authorization server or of the resource. Evil is
// the URL of an attacker's server.
type falseAnswer struct {
	at      authtest.Endpoint
	change  func(a *authtest.Answer, evil string)
	allowed outcome
}

// An outcome is how far a login may get with a false answer.
type outcome int

const (
	anything outcome = iota // but no secret leaves
	noToken                 // no request to the token endpoint
	nothing                 // only requests for metadata
)

func object(name string, value any) func(*authtest.Answer, string) {
	return func(a *authtest.Answer, _ string) { a.Object[name] = value }
}

func toEvil(name string) func(*authtest.Answer, string) {
	return func(a *authtest.Answer, evil string) { a.Object[name] = evil + "/" + name }
}

func query(name string, values ...string) func(*authtest.Answer, string) {
	return func(a *authtest.Answer, _ string) { a.Query[name] = values }
}

func body(status int, text string) func(*authtest.Answer, string) {
	return func(a *authtest.Answer, _ string) { a.Status, a.Body = status, []byte(text) }
}

func document(text string) func(*authtest.Answer, string) {
	return func(a *authtest.Answer, _ string) {
		a.Body = []byte(text)
		a.Header.Set("Content-Type", "application/json")
	}
}

func redirected(status int) func(*authtest.Answer, string) {
	return func(a *authtest.Answer, evil string) {
		a.Status, a.Body = status, []byte{}
		a.Header.Set("Location", evil+"/token")
	}
}

func challenged(text string) func(*authtest.Answer, string) {
	return func(a *authtest.Answer, evil string) {
		a.Header.Set("WWW-Authenticate", strings.ReplaceAll(text, "EVIL", evil))
	}
}

// falseAnswers contains all false answers. Those with private addresses are few, because
// nothing listens there in a test; the tests of package guard cover all address ranges.
var falseAnswers = map[string]falseAnswer{
	"honest":                           {authtest.Keys, func(*authtest.Answer, string) {}, anything},
	"the resource is another":          {authtest.ResourceMetadata, toEvil("resource"), nothing},
	"the resource is a child":          {authtest.ResourceMetadata, func(a *authtest.Answer, _ string) { a.Object["resource"] = a.Object["resource"].(string) + "/child" }, nothing},
	"the resource is a sibling":        {authtest.ResourceMetadata, func(a *authtest.Answer, _ string) { a.Object["resource"] = a.Object["resource"].(string) + "x" }, nothing},
	"no resource":                      {authtest.ResourceMetadata, object("resource", nil), nothing},
	"no servers":                       {authtest.ResourceMetadata, object("authorization_servers", []string{}), nothing},
	"servers that are no list":         {authtest.ResourceMetadata, object("authorization_servers", "https://as.test"), nothing},
	"a server that is a script":        {authtest.ResourceMetadata, object("authorization_servers", []string{"javascript:alert(1)"}), nothing},
	"a server in the cloud's metadata": {authtest.ResourceMetadata, object("authorization_servers", []string{"https://169.254.169.254"}), nothing},
	"a server over http":               {authtest.ResourceMetadata, object("authorization_servers", []string{"http://as.test"}), nothing},
	"a server that says nothing":       {authtest.ResourceMetadata, func(a *authtest.Answer, evil string) { a.Object["authorization_servers"] = []string{evil} }, nothing},
	"metadata that is a page":          {authtest.ResourceMetadata, body(200, "<html>"), nothing},
	"metadata with a name twice":       {authtest.ResourceMetadata, body(200, `{"resource":"a","resource":"b"}`), nothing},
	"metadata is elsewhere":            {authtest.Challenge, challenged(`Bearer resource_metadata="EVIL/metadata"`), nothing},
	"metadata is in the cloud":         {authtest.Challenge, challenged(`Bearer resource_metadata="http://169.254.169.254/latest/"`), nothing},
	"metadata is a file":               {authtest.Challenge, challenged(`Bearer resource_metadata="file:///etc/passwd"`), nothing},
	"metadata redirects into the cloud": {authtest.ResourceMetadata, func(a *authtest.Answer, _ string) {
		a.Status, a.Body = 302, []byte{}
		a.Header.Set("Location", "https://169.254.169.254/latest/meta-data/")
	}, nothing},
	"metadata that is deep": {authtest.ResourceMetadata, document(strings.Repeat(`{"a":`, 50_000) + "1" + strings.Repeat("}", 50_000)), nothing},
	"metadata without end":  {authtest.ResourceMetadata, document(`{"resource":"` + strings.Repeat("x", 1<<20) + `"}`), nothing},
	"a challenge without end": {authtest.Challenge, func(a *authtest.Answer, _ string) {
		a.Header.Set("WWW-Authenticate", `Bearer realm="`+strings.Repeat("x", 20<<10)+`"`)
	}, anything},
	"scopes without end": {authtest.ResourceMetadata, func(a *authtest.Answer, _ string) {
		a.Object["scopes_supported"] = strings.Split(strings.Repeat("scope ", 20_000), " ")
	}, anything},
	"issuer metadata that is deep": {authtest.Metadata, document(strings.Repeat("[", 100_000)), nothing},
	"issuer metadata into the network": {authtest.Metadata, func(a *authtest.Answer, _ string) {
		a.Status, a.Body = 302, []byte{}
		a.Header.Set("Location", "https://10.0.0.1/")
	}, nothing},
	"a token that is a number":             {authtest.Token, object("access_token", 17), anything},
	"a token of a megabyte":                {authtest.Token, object("access_token", strings.Repeat("x", 1<<20)), anything},
	"a refresh token that is a header":     {authtest.Token, object("refresh_token", "x\r\nHost: evil.test"), anything},
	"a client id that is an object":        {authtest.Register, object("client_id", map[string]any{"a": 1}), noToken},
	"a client id of 100 KB":                {authtest.Register, object("client_id", strings.Repeat("x", 100_000)), noToken},
	"a secret that never was":              {authtest.Register, object("client_secret_expires_at", "never"), noToken},
	"the issuer is another":                {authtest.Metadata, toEvil("issuer"), nothing},
	"the issuer has a slash":               {authtest.Metadata, func(a *authtest.Answer, _ string) { a.Object["issuer"] = a.Object["issuer"].(string) + "/" }, nothing},
	"no PKCE":                              {authtest.Metadata, object("code_challenge_methods_supported", nil), nothing},
	"plain PKCE":                           {authtest.Metadata, object("code_challenge_methods_supported", []string{"plain"}), nothing},
	"codes over http":                      {authtest.Metadata, object("token_endpoint", "http://as.test/token"), nothing},
	"codes into the cloud":                 {authtest.Metadata, object("token_endpoint", "https://169.254.169.254/token"), nothing},
	"registration in the network":          {authtest.Metadata, object("registration_endpoint", "https://10.0.0.1/register"), nothing},
	"an authorization endpoint for a file": {authtest.Metadata, object("authorization_endpoint", "file:///bin/sh"), nothing},
	"no token endpoint":                    {authtest.Metadata, object("token_endpoint", nil), nothing},
	"registered as nobody":                 {authtest.Register, object("client_id", ""), noToken},
	"registration redirects":               {authtest.Register, redirected(307), noToken},
	"registration refused":                 {authtest.Register, body(400, `{"error":"invalid_client_metadata"}`), noToken},
	"another state":                        {authtest.Authorize, query("state", "x"), noToken},
	"no state":                             {authtest.Authorize, query("state"), noToken},
	"two states":                           {authtest.Authorize, func(a *authtest.Answer, _ string) { a.Query["state"] = append(a.Query["state"], "x") }, noToken},
	"another issuer answers":               {authtest.Authorize, query("iss", "https://evil.test"), noToken},
	"no issuer answers":                    {authtest.Authorize, query("iss"), noToken},
	"two issuers answer":                   {authtest.Authorize, func(a *authtest.Answer, _ string) { a.Query["iss"] = append(a.Query["iss"], "https://evil.test") }, noToken},
	"no code":                              {authtest.Authorize, query("code"), noToken},
	"two codes":                            {authtest.Authorize, query("code", "a", "b"), noToken},
	"an error with a code":                 {authtest.Authorize, query("error", "access_denied"), noToken},
	"the token endpoint redirects":         {authtest.Token, redirected(302), anything},
	"the token endpoint redirects it all":  {authtest.Token, redirected(308), anything},
	"a token of another type":              {authtest.Token, object("token_type", "mac"), anything},
	"no token type":                        {authtest.Token, object("token_type", nil), anything},
	"a token that is a header":             {authtest.Token, object("access_token", "x\r\nHost: evil.test"), anything},
	"a token endpoint with a page":         {authtest.Token, body(200, "<html>"), anything},
	"a life of ages":                       {authtest.Token, object("expires_in", 1e9), anything},
	"a life before birth":                  {authtest.Token, object("expires_in", -1), anything},
	"a life in words":                      {authtest.Token, object("expires_in", "soon"), anything},
}

// A server without false answers gives a token. With any false answer, no code, verifier,
// token or secret is sent to a server that it is not meant for.
//
// Guarantees: G-0044.7
func TestFalseServerAnswers(t *testing.T) {
	names := slices.Sorted(maps.Keys(falseAnswers))
	evilSink := new(authtest.Sink)
	evil := httptest.NewServer(evilSink.Record("evil", http.NotFoundHandler()))
	defer evil.Close()
	f := newFixture(t, authtest.Options{Clients: []authtest.Client{
		{ID: "known", Secret: "client-secret-0", Auth: "client_secret_basic", Redirects: []string{testRedirect}},
	}})
	next := 0
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(names).Draw(rt, "lie")
		if next < len(names) { // each of them once, before the random ones
			name = names[next]
			next++
		}
		o := Options{Resource: f.url, Interact: consent, Offline: rapid.Bool().Draw(rt, "offline"), DPoP: rapid.Bool().Draw(rt, "proofs")}
		registered := rapid.Bool().Draw(rt, "registered")
		if registered {
			o.Registered = []Registered{{Issuer: f.as.Issuer(), ID: "known", Secret: NewSecret("client-secret-0")}}
		}
		checkFalseAnswer(rt, f, falseAnswers[name], o, evil.URL, name == "honest")
		if seen := evilSink.Requests(); slices.ContainsFunc(seen, carriesSecrets) {
			rt.Fatalf("a secret was sent to a server that it is not meant for")
		}
	})
}

func checkFalseAnswer(t *rapid.T, f *fixture, d falseAnswer, o Options, evil string, honest bool) {
	f.as.Lie(d.at, func(a *authtest.Answer) { d.change(a, evil) })
	defer f.as.Lie(d.at, nil)
	before := len(f.as.Sink.Requests())
	a := New(o)
	defer a.Close()
	status, err := call(t.Context(), a, f.url)
	if worked := err == nil && status == http.StatusOK; honest && !worked {
		t.Fatalf("without a false answer: status %d, %v", status, err)
	}
	asked := map[authtest.Endpoint]int{}
	for _, r := range f.as.Sink.Requests()[before:] {
		asked[r.Endpoint]++
		if r.Host == f.as.Issuer() || !carriesSecrets(r) {
			continue
		}
		if r.Form.Get("code") != "" || r.Form.Get("code_verifier") != "" || strings.Contains(string(r.Body), "refresh") || strings.HasPrefix(r.Header.Get("Authorization"), "Basic ") {
			t.Fatalf("the resource server got more than a token: %s", r.URL)
		}
	}
	skipped := d.at == authtest.Register && len(o.Registered) > 0
	if d.allowed >= noToken && asked[authtest.Token] > 0 && !skipped {
		t.Fatalf("there was a token request: %v", err)
	}
	if d.allowed == nothing && asked[authtest.Register]+asked[authtest.Authorize] > 0 {
		t.Fatalf("the authorization server got requests: %v", asked)
	}
	if d.allowed >= noToken && err == nil && !skipped {
		t.Fatalf("status %d without an error", status)
	}
	if err != nil && strings.Contains(err.Error(), "client-secret") {
		t.Fatalf("the error shows a secret: %v", err)
	}
}

// carriesSecrets reports whether a request has a secret that is meant for one server only.
func carriesSecrets(r *authtest.Request) bool {
	form, _ := url.ParseQuery(string(r.Body))
	return r.Header.Get("Authorization") != "" || r.Header.Get("DPoP") != "" ||
		form.Has("code") || form.Has("code_verifier") || form.Has("refresh_token") || form.Has("client_secret") || form.Has("assertion") ||
		strings.Contains(string(r.Body), "client-secret")
}
