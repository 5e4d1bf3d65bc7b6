package resource_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
)

// The error of New says which option is wrong, and shows no password.
func TestWhatIsWrongWithOptions(t *testing.T) {
	const parts, scheme = " has to be a scheme, a host and a path", " has to be https, or http on a loopback host"
	asks := func(url string) *resource.Introspection { return &resource.Introspection{URL: url, ClientID: "c"} }
	address := func(url string) func(*resource.Options) { return func(o *resource.Options) { o.URL = url } }
	issuer := func(i resource.Issuer) func(*resource.Options) { return func(o *resource.Options) { o.Issuers[0] = i } }
	scopes := func(scopes ...string) func(*resource.Options) { return func(o *resource.Options) { o.Scopes = scopes } }
	leeway := func(d time.Duration) func(*resource.Options) { return func(o *resource.Options) { o.Leeway = d } }
	secrets := func(lengths ...int) func(*resource.Options) {
		return func(o *resource.Options) {
			o.DPoPSecrets = func() (all [][]byte) {
				for _, n := range lengths {
					all = append(all, make([]byte, n))
				}
				return all
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*resource.Options)
		want   string // the error, after "resource: "; "": none
	}{
		"good":                    {func(*resource.Options) {}, ""},
		"no path":                 {address("https://mcp.example"), ""},
		"on this machine":         {address("http://LOCALHOST:80/mcp"), ""},
		"on this machine by IPv6": {address("http://[::1]/mcp"), ""},
		"on this machine by IPv4": {address("http://127.3.2.1/mcp"), ""},
		"no URL":                  {address(""), `URL ""` + parts},
		"no host":                 {address("https:///mcp"), `URL "https:///mcp"` + parts},
		"an opaque URL":           {address("https:mcp.example"), `URL "https:mcp.example"` + parts},
		"a password":              {address("https://u:secret@mcp.example/"), `URL "https://u:xxxxx@mcp.example/"` + parts},
		"a query":                 {address("https://mcp.example/?a"), `URL "https://mcp.example/?a"` + parts},
		"an empty query":          {address("https://mcp.example/?"), `URL "https://mcp.example/?"` + parts},
		"a fragment":              {address("https://mcp.example/#a"), `URL "https://mcp.example/#a"` + parts},
		"an empty fragment":       {address("https://mcp.example/#"), `URL "https://mcp.example/"` + parts},
		"a bad port":              {address("https://mcp.example:x/"), `URL "https://mcp.example:x/" is none`},
		"http":                    {address("http://mcp.example/"), `URL "http://mcp.example/"` + scheme},
		"http in the network":     {address("http://10.0.0.1/"), `URL "http://10.0.0.1/"` + scheme},
		"another scheme":          {address("ftp://localhost/"), `URL "ftp://localhost/"` + scheme},
		"no issuer":               {func(o *resource.Options) { o.Issuers = nil }, "no issuer is given, so no token could be taken"},
		"an issuer over http":     {issuer(resource.Issuer{URL: "http://as.example"}), `the issuer's URL "http://as.example"` + scheme},
		"keys over http":          {issuer(resource.Issuer{URL: "https://as.example", Keys: "http://as.example/keys"}), `the issuer's URL "http://as.example/keys"` + scheme},
		"an issuer twice":         {func(o *resource.Options) { o.Issuers = append(o.Issuers, o.Issuers[0]) }, `the issuer "https://as.example" is given twice`},
		"two issuers":             {func(o *resource.Options) { o.Issuers = append(o.Issuers, resource.Issuer{URL: "https://b.example"}) }, ""},
		"an issuer that is asked": {issuer(resource.Issuer{URL: "https://as.example", Introspect: asks("")}), ""},
		"asked at a URL":          {issuer(resource.Issuer{URL: "https://as.example", Introspect: asks("https://as.example/ask")}), ""},
		"asked over http":         {issuer(resource.Issuer{URL: "https://as.example", Introspect: asks("http://as.example/ask")}), `the URL of introspection "http://as.example/ask"` + scheme},
		"one of two is asked": {func(o *resource.Options) {
			o.Issuers = append(o.Issuers, resource.Issuer{URL: "https://b.example", Introspect: asks("")})
		}, ""},
		"both are asked": {func(o *resource.Options) {
			o.Issuers[0].Introspect = asks("")
			o.Issuers = append(o.Issuers, resource.Issuer{URL: "https://b.example", Introspect: asks("")})
		}, "more than one issuer is to be asked about tokens: each would see those of the other"},
		"scopes":                   {scopes("read", "!", "~#[]"), ""},
		"offline_access":           {scopes("read", "offline_access"), `"offline_access" cannot be a scope of a server`},
		"no scope":                 {scopes(""), `"" cannot be a scope of a server`},
		"a scope of two words":     {scopes("a b"), `"a b" cannot be a scope of a server`},
		"a scope with a quote":     {scopes(`a"`), `"a\"" cannot be a scope of a server`},
		"a scope with a backslash": {scopes(`a\`), `"a\\" cannot be a scope of a server`},
		"a scope with DEL":         {scopes("a\x7f"), `"a\x7f" cannot be a scope of a server`},
		"secrets":                  {secrets(32, 33), ""},
		"no secrets":               {secrets(), "there is no secret for nonces"},
		"a short secret":           {secrets(32, 31), "a secret of nonces has 31 bytes, fewer than 32"},
		"a leeway of five minutes": {leeway(5 * time.Minute), ""},
		"no leeway":                {leeway(-time.Hour), ""},
		"a longer one":             {leeway(5*time.Minute + 1), "the leeway of 5m0.000000001s is more than 5m0s"},
	} {
		o := resource.Options{URL: "https://mcp.example/mcp", Issuers: []resource.Issuer{{URL: "https://as.example"}}}
		c.change(&o)
		g, err := resource.New(o)
		if got := ""; err != nil || g == nil {
			got = strings.TrimPrefix(err.Error(), "resource: ")
			if got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
		} else if c.want != "" {
			t.Errorf("%s: it is accepted, want %s", name, c.want)
		}
	}
}

// The metadata says what a client needs, to pages of every origin, by GET, HEAD and OPTIONS.
//
// Guarantees: G-0046.3
func TestMetadataOfOptions(t *testing.T) {
	const at = "/.well-known/oauth-protected-resource"
	const begin, methods = `{"resource":"https://mcp.example/mcp","authorization_servers":["https://as.example"],`, `"bearer_methods_supported":["header"]`
	const algs = `,"dpop_signing_alg_values_supported":["RS256","PS256","ES256","ES384","EdDSA"]`
	for name, c := range map[string]struct {
		change func(*resource.Options)
		want   string
	}{
		"few":      {nil, begin + methods + "}"},
		"scopes":   {func(o *resource.Options) { o.Scopes = []string{"read", "write"} }, begin + `"scopes_supported":["read","write"],` + methods + "}"},
		"allowed":  {func(o *resource.Options) { o.DPoP = resource.DPoPAllowed }, begin + methods + algs + "}"},
		"required": {func(o *resource.Options) { o.DPoP = resource.DPoPRequired }, begin + methods + algs + `,"dpop_bound_access_tokens_required":true}`},
		"issuers": {func(o *resource.Options) { o.Issuers = append(o.Issuers, resource.Issuer{URL: "https://b.example"}) },
			strings.Replace(begin, `"]`, `","https://b.example"]`, 1) + methods + "}"},
	} {
		g, _ := newGuard(t, c.change, authtest.Options{})
		for _, path := range []string{at, at + "/mcp"} {
			w := httptest.NewRecorder()
			g.Metadata().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			if got := w.Body.String(); got != c.want || w.Code != http.StatusOK {
				t.Errorf("%s: %d %s, want %s", name, w.Code, got, c.want)
			}
		}
	}
	g, _ := newGuard(t, nil, authtest.Options{})
	for method, c := range map[string]struct {
		status  int
		headers string
		empty   bool
	}{
		"GET":     {200, "Access-Control-Allow-Origin: *, Cache-Control: max-age=3600, Content-Length: 123, Content-Type: application/json", false},
		"HEAD":    {200, "Access-Control-Allow-Origin: *, Cache-Control: max-age=3600, Content-Length: 123, Content-Type: application/json", true},
		"OPTIONS": {204, "Access-Control-Allow-Origin: *, Access-Control-Allow-Methods: GET, Access-Control-Allow-Headers: *", true},
		"POST":    {405, "Access-Control-Allow-Origin: *, Allow: GET, HEAD, OPTIONS", false},
		"DELETE":  {405, "Access-Control-Allow-Origin: *, Allow: GET, HEAD, OPTIONS", false},
	} {
		w := httptest.NewRecorder()
		g.Metadata().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, at, nil))
		if w.Code != c.status || (w.Body.Len() == 0) != c.empty {
			t.Errorf("%s: %d, %d bytes; want %d", method, w.Code, w.Body.Len(), c.status)
		}
		for _, name := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Allow-Headers", "Allow", "Cache-Control", "Content-Length"} {
			if got := w.Result().Header.Get(name); got != "" && !strings.Contains(c.headers, name+": "+got) || got == "" && strings.Contains(c.headers, name+": ") {
				t.Errorf("%s: the header %s is %q, want %s", method, name, got, c.headers)
			}
		}
		w = httptest.NewRecorder()
		g.Metadata().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, at+"/", nil))
		if w.Code != http.StatusNotFound {
			t.Errorf("%s at another path: status %d", method, w.Code)
		}
	}
}

// What an issuer says of a token decides; without an answer that can be read, the token may be valid. Each body is closed.
//
// Guarantees: G-0046.2, G-0046.4
func TestAnswersOfAnIntrospectingIssuer(t *testing.T) {
	answer := func(status int, kind, text string) authtest.Lie {
		return func(a *authtest.Answer) {
			a.Status, a.Body = status, []byte(text)
			a.Header.Set("Content-Type", kind)
		}
	}
	set := func(name string, value any) authtest.Lie { return func(a *authtest.Answer) { a.Object[name] = value } }
	const away, unreadable = "the authorization server cannot be asked about the token now", "the claims of the token cannot be read"
	for name, c := range map[string]struct {
		lie    authtest.Lie
		status int
		want   string
	}{
		"active":             {nil, 200, ""},
		"no issuer":          {set("iss", ""), 200, ""},
		"another issuer":     {set("iss", "https://b.example"), 401, "the token is from another issuer"},
		"an expiry of zero":  {set("exp", 0), 401, "the token has expired"},
		"not active":         {set("active", false), 401, "the token is not active"},
		"another audience":   {set("aud", "https://b.example"), 401, "the token is for another audience"},
		"active in words":    {set("active", "yes"), 401, unreadable},
		"nothing":            {answer(200, "application/json", `{}`), 401, "the token is not active"},
		"a list":             {answer(200, "application/json", `[]`), 503, away},
		"half an answer":     {answer(200, "application/json", `{"active":true`), 503, away},
		"a page":             {answer(200, "text/html", `{"active":true}`), 503, away},
		"an error":           {answer(500, "application/json", `{"active":false}`), 503, away},
		"a refusal":          {answer(401, "application/json", `{"error":"invalid_client"}`), 503, away},
		"another success":    {answer(202, "application/json", `{"active":false}`), 503, away},
		"an answer too long": {answer(200, "application/json", `{"active":false,"x":"`+strings.Repeat("x", 256<<10)+`"}`), 503, away},
	} {
		bodies := &bodyCounter{}
		g, as := newGuard(t, func(o *resource.Options) {
			o.Issuers[0].Introspect = &resource.Introspection{ClientID: "a:b", ClientSecret: "s%: c"}
			bodies.RoundTripper = o.HTTP.Transport
			o.HTTP = &http.Client{Transport: bodies}
		}, authtest.Options{Opaque: true, Clients: []authtest.Client{{ID: "a:b", Secret: "s%: c"}}})
		as.Lie(authtest.Introspect, c.lie)
		token := as.Issue("ada", "read")
		who, denied := check(t, g, bearer(token))
		status := http.StatusOK
		if denied != nil {
			status = denied.Status
		}
		if status != c.status || textOf(denied) != c.want || who != nil && (who.Issuer != "https://as.example" || who.Subject != "ada") {
			t.Errorf("%s: %d, %q, want %d, %q", name, status, textOf(denied), c.status, c.want)
		}
		asked := as.Sink.Requests(authtest.Introspect)
		if len(asked) != 1 || asked[0].Form.Encode() != "token="+token+"&token_type_hint=access_token" || asked[0].Header.Get("Accept") != "application/json, application/jwk-set+json" {
			t.Errorf("%s: the issuer is asked %d times, with %v", name, len(asked), asked[0].Form)
		}
		if bodies.opened == 0 || bodies.closed != bodies.opened {
			t.Errorf("%s: %d of %d bodies are closed", name, bodies.closed, bodies.opened)
		}
	}
}

// An issuer whose metadata works, and whose endpoint for introspection hangs, is awaited for ten seconds.
//
// Guarantees: G-0046.4
func TestAnIntrospectionThatHangs(t *testing.T) {
	for _, url := range []string{"", "https://as.example/introspect"} {
		synctest.Test(t, func(t *testing.T) {
			g, as := newGuard(t, func(o *resource.Options) {
				introspecting(o)
				o.Issuers[0].Introspect.URL = url
				o.HTTP = &http.Client{Transport: hangingAt{o.HTTP.Transport, "/introspect"}}
			}, opaque())
			start := time.Now()
			wantStatus(t, url, status(t, g, bearer(as.Issue("ada", "read"))), http.StatusServiceUnavailable)
			if took := time.Since(start); took != 10*time.Second {
				t.Errorf("%q was awaited for %v, want 10 s", url, took)
			}
		})
	}
}

// A hangingAt does not answer at one path.
type hangingAt struct {
	http.RoundTripper
	path string
}

func (h hangingAt) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == h.path {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return h.RoundTripper.RoundTrip(r)
}

// A bodyCounter counts the bodies of responses.
type bodyCounter struct {
	http.RoundTripper
	opened, closed int
}

func (c *bodyCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		c.opened++
		response.Body = countedBody{response.Body, c}
	}
	return response, err
}

type countedBody struct {
	io.ReadCloser
	of *bodyCounter
}

func (b countedBody) Close() error {
	b.of.closed++
	return b.ReadCloser.Close()
}
