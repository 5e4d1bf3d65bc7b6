package auth

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/guard"
)

func TestChallenges(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	for text, want := range map[string]challenge{
		"":              {},
		"Bearer":        {scheme: "bearer"},
		"bearer ,,":     {scheme: "bearer"},
		`Basic realm=x`: {},
		`Bearer resource_metadata="https://h/x?a=b,c", scope="a b"`:    {scheme: "bearer", metadata: "https://h/x?a=b,c", scopes: []string{"a", "b"}},
		`Bearer resource_metadata=https://h/x, error=invalid_token`:    {scheme: "bearer", metadata: "https://h/x", err: "invalid_token"},
		`Basic realm="Bearer scope=x", Bearer scope="y"`:               {scheme: "bearer", scopes: []string{"y"}},
		`Negotiate abc==, DPoP algs="ES256", error="use_dpop_nonce"`:   {scheme: "dpop", err: "use_dpop_nonce"},
		`Bearer error="a", DPoP error="b"`:                             {scheme: "bearer", err: "a"},
		`Bearer scope="a\"b c\\d e e"`:                                 {scheme: "bearer", scopes: []string{"e"}},
		`Bearer Error = "x" , SCOPE="y"`:                               {scheme: "bearer", err: "x", scopes: []string{"y"}},
		`Bearer scope="Files.Read files.read"`:                         {scheme: "bearer", scopes: []string{"Files.Read", "files.read"}},
		`Bearer error="x", error="y"`:                                  {scheme: "bearer", err: "x"},
		`Bearer error="x", scope="cut off`:                             {scheme: "bearer", err: "x"},
		`Bearer scope="a", error="` + long + `", scope="b"`:            {scheme: "bearer", scopes: []string{"a"}},
		`"Bearer" scope="x"`:                                           {},
		`Bearer realm="x", unknown="y", resource_metadata="https://h"`: {scheme: "bearer", metadata: "https://h"},
		"Bearer\terror=a\tscope=b":                                     {scheme: "bearer", err: "a", scopes: []string{"b"}},
		"Bearer error\t=\t\"a\"\t,\tscope=b":                           {scheme: "bearer", err: "a", scopes: []string{"b"}},
		"Bearer error=a\tscope=b":                                      {scheme: "bearer", err: "a", scopes: []string{"b"}},
		`Bearer scope="!~ a` + "\x7f" + ` b"`:                          {scheme: "bearer", scopes: []string{"!~", "b"}},
		`Bearer error="x\`:                                             {scheme: "bearer"},
		`Bearer error="x\"`:                                            {scheme: "bearer"},
		`Bearer scope="x\`:                                             {scheme: "bearer"},
		`Bearer error="x", scope=, resource_metadata=https://h`:        {scheme: "bearer", err: "x"},
		`Bearer scope="", scope="a"`:                                   {scheme: "bearer", scopes: []string{}},
		`Bearer scope="a", scope="b"`:                                  {scheme: "bearer", scopes: []string{"a"}},
		`Bearer resource_metadata="https://h", resource_metadata="i"`:  {scheme: "bearer", metadata: "https://h"},
		`Bearer error="", error="x"`:                                   {scheme: "bearer", err: "x"},
		`Bearer error=é, scope=a`:                                      {scheme: "bearer", err: "é", scopes: []string{"a"}},
		`Bearer é, error=a`:                                            {scheme: "bearer", err: "a"},
		`scope="a", Bearer error="x"`:                                  {scheme: "bearer", err: "x"},
		`Basic abc, Bearer error="x"`:                                  {scheme: "bearer", err: "x"},
		`Negotiate abc=, Bearer error="x"`:                             {scheme: "bearer", err: "x"},
		`Negotiate Bearer, error="x"`:                                  {},
		`Bearer abc==, error="x"`:                                      {scheme: "bearer", err: "x"},
		`Negotiate abc==`:                                              {},
		`Bearer realm="` + long[:8<<10-26] + `", error="x"`:            {scheme: "bearer", err: "x"}, // 8 KiB
		`Bearer realm="` + long[:8<<10-25] + `", error="x"`:            {scheme: "bearer"},
	} {
		if diff := cmp.Diff(want, parseChallenge(text), cmp.AllowUnexported(challenge{})); diff != "" {
			t.Errorf("%.60s: %s", text, diff)
		}
	}
}

// Of very large headers and lists only a part is read, quickly.
func TestBombs(t *testing.T) {
	for _, part := range []string{"a ", "a=b,", `Bearer a="\""`, "a==,", "\"", "Bearer "} {
		parseChallenge("Bearer x=y, " + strings.Repeat(part, 1<<20))
	}
	many := make([]string, 100_000)
	for i := range many {
		many[i] = "scope" + strconv.Itoa(i)
	}
	if got := cleanScopes(many); len(got) != maxScopes || got[0] != many[0] {
		t.Errorf("%d scopes", len(got))
	}
	if got := cleanScopes([]string{"a", strings.Repeat("b", maxScopesText), strings.Repeat("c", maxScopesText/2), strings.Repeat("d", maxScopesText/2), "e", "\x00", "é", "a"}); len(got) != 3 || got[2] != "e" {
		t.Errorf("%d scopes", len(got))
	}
	for want, size := range map[int]int{0: maxScopesText, 1: maxScopesText - 1, 2: maxScopesText / 3} {
		if got := cleanScopes([]string{strings.Repeat("a", size), strings.Repeat("b", size), strings.Repeat("c", size)}); len(got) != want {
			t.Errorf("of three scopes of %d bytes %d are taken, want %d", size, len(got), want)
		}
	}
	for life, want := range map[string]time.Duration{
		`60`: time.Minute, `"60"`: time.Minute, `0.5`: time.Second / 2, `1e2`: 100 * time.Second,
		`-1`: 0, `0`: 0, `1e9`: 0, `1e300`: 0, `1e999`: 0, `"NaN"`: 0, `"Inf"`: 0, `true`: 0, `{"a":60}`: 0, `[60]`: 0, `null`: 0, ``: 0,
	} {
		if got := lifeOf(jsontext.Value(life)); got != want {
			t.Errorf("expires_in %s: got %v, want %v", life, got, want)
		}
	}
	for asked, want := range map[string]time.Duration{
		`2`: 2 * time.Second, `"7"`: 7 * time.Second, `1e-9`: time.Second, `0.01`: time.Second, `-1`: defaultInterval, `1e300`: defaultInterval, `1e6`: time.Minute, ``: defaultInterval,
	} {
		if got := (&deviceDocument{Interval: jsontext.Value(asked)}).interval(shortestInterval); got != want {
			t.Errorf("interval %s: got %v, want %v", asked, got, want)
		}
	}
}

func TestWhereMetadataIs(t *testing.T) {
	for _, c := range []struct {
		candidates func(*url.URL) []string
		of         string
		want       string
	}{
		{func(u *url.URL) []string { return resourceCandidates(u, challenge{}) }, "https://h/a/b", "https://h/.well-known/oauth-protected-resource/a/b https://h/.well-known/oauth-protected-resource"},
		{func(u *url.URL) []string { return resourceCandidates(u, challenge{}) }, "https://h/", "https://h/.well-known/oauth-protected-resource"},
		{func(u *url.URL) []string { return resourceCandidates(u, challenge{metadata: "https://o/m"}) }, "https://h/a", "https://o/m"},
		{func(u *url.URL) []string { return resourceCandidates(u, challenge{}) }, "https://h/a%2Fb/c", "https://h/.well-known/oauth-protected-resource/a%2Fb/c https://h/.well-known/oauth-protected-resource"},
		{serverCandidates, "https://h/a%2Fb", "https://h/.well-known/oauth-authorization-server/a%2Fb https://h/.well-known/openid-configuration/a%2Fb https://h/a%2Fb/.well-known/openid-configuration"},
		{serverCandidates, "https://h", "https://h/.well-known/oauth-authorization-server https://h/.well-known/openid-configuration"},
		{serverCandidates, "https://h/t/", "https://h/.well-known/oauth-authorization-server/t https://h/.well-known/openid-configuration/t https://h/t/.well-known/openid-configuration"},
	} {
		u, err := url.Parse(c.of)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.candidates(u), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.of, got, c.want)
		}
	}
}

// Metadata is accepted for the server that it names, and for those below it.
func TestWhatMetadataCovers(t *testing.T) {
	server := &url.URL{Scheme: "https", Host: "h", Path: "/a/b"}
	for named, want := range map[string]bool{
		"https://h/a/b": true, "https://h/a/b/": true, "https://h/a": true, "https://h/": true, "https://h": true, "HTTPS://H/a": true,
		"https://h/a/": true, "https://h/a/b/c": false, "https://h/a/bc": false, "https://h/ab": false, "https://h/b": false, "https://h/A": false, "https://h:8443/a": false,
		"http://h/a": false, "https://o/a": false, "https://h/a?b": false, "https://h/a#b": false, "https://u@h/a": false, ":": false,
	} {
		if covers(named, server) != want {
			t.Errorf("%q covers https://h/a/b: %v", named, !want)
		}
	}
	if covers("https://h/a", &url.URL{Scheme: "https", Host: "h", Path: "/ab"}) {
		t.Error("a name covers another that begins with it")
	}
}

// A login helps if it can get what is required, or anything else that the program adds.
func TestWhetherALoginHelps(t *testing.T) {
	only := func(scopes ...string) func([]string) []string { return func([]string) []string { return scopes } }
	for _, c := range []struct {
		scopes           func([]string) []string
		before, required []string
		want             bool
	}{
		{nil, []string{"a"}, []string{"b"}, true},
		{only("a"), []string{"a"}, []string{"a"}, true}, // the token has got less than was asked for
		{only("a"), nil, nil, true},
		{only("a"), []string{"a"}, []string{"b"}, false},
		{func(asked []string) []string { return append(asked, "c") }, []string{"a"}, []string{"b"}, true},
	} {
		if err := (&Options{Scopes: c.scopes}).stepUp(c.before, c.required); (err == nil) != c.want {
			t.Errorf("of %q, where %q are required: %v", c.before, c.required, err)
		}
	}
}

// A request with a cached token costs at most one allocation.
//
// Guarantees: G-0044.17
func TestACachedTokenCostsNothing(t *testing.T) {
	f := newFixture(t, authtest.Options{})
	a := loggedIn(t, f, Options{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Accept": {"x"}, "Content-Type": {"x"}, "Mcp-Method": {"x"}, "Mcp-Name": {"x"}}
	allocations := testing.AllocsPerRun(1000, func() {
		delete(r.Header, "Authorization")
		if err := a.Authorize(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > 1 {
		t.Errorf("%v allocations", allocations)
	}
}

func FuzzChallenge(f *testing.F) {
	f.Add(`Bearer resource_metadata="https://h/x", scope="a b", error=x`)
	f.Add(`Basic a==, DPoP x="\"`)
	f.Fuzz(func(t *testing.T, text string) {
		c := parseChallenge(text)
		if c.scheme == "" && (c.err != "" || c.metadata != "" || c.scopes != nil) {
			t.Errorf("%+v", c)
		}
		if slices.ContainsFunc(c.scopes, func(s string) bool { return !isScope(s) }) || len(c.scopes) > maxScopes {
			t.Errorf("scopes %q", c.scopes)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add([]byte(`{"resource":"https://h/mcp","authorization_servers":["https://as"]}`), []byte(`{"issuer":"https://as","token_endpoint":"https://as/token"}`))
	g := guard.New(guard.Options{Endpoint: "https://h/mcp"})
	endpoint := &url.URL{Scheme: "https", Host: "h", Path: "/mcp"}
	f.Fuzz(func(t *testing.T, resource, server []byte) {
		var r resourceMetadata
		if err := guard.DecodeJSON(resource, &r); err != nil || r.check(endpoint) != "" {
			return
		}
		if !strings.HasPrefix(strings.ToLower(r.Resource), "https://h") {
			t.Fatalf("%q covers the endpoint", r.Resource)
		}
		issuer, err := chooseIssuer(r.Servers, nil, g.Check)
		if err != nil {
			return
		}
		var s serverMetadata
		if err := guard.DecodeJSON(server, &s); err == nil && s.check(issuer, g.Check) == nil && g.Check(s.Token) != nil {
			t.Fatalf("%q is a token endpoint", s.Token)
		}
	})
}

func FuzzTokenResponse(f *testing.F) {
	f.Add(200, []byte(`{"access_token":"x","token_type":"Bearer","expires_in":"60","scope":"a b"}`))
	f.Add(400, []byte(`{"error":"invalid_grant"}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		now := time.Unix(1e9, 0)
		token, err := readToken("as", &guard.Response{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, "", now)
		if (token == nil) == (err == nil) {
			t.Fatalf("%v, %v", token, err)
		}
		if token != nil && (!isToken(token.access.Reveal()) || !token.expires.IsZero() && !token.expires.After(now) || status != 200) {
			t.Errorf("%+v", token)
		}
	})
}

func FuzzAuthorizationResponse(f *testing.F) {
	f.Add("state=s&iss=https://as&code=c")
	p := &authRequest{state: "s", place: &discovered{server: serverMetadata{Issuer: "https://as", NamesIssuer: true}}}
	f.Fuzz(func(t *testing.T, query string) {
		code, err := p.code(&url.URL{Scheme: "http", Host: "127.0.0.1", RawQuery: query})
		if (code == "") == (err == nil) {
			t.Fatalf("%q, %v", code, err)
		}
		if values, bad := url.ParseQuery(query); err == nil && (bad != nil || values.Get("state") != "s" || values.Get("iss") != "https://as" || values.Has("error")) {
			t.Errorf("%q is accepted", query)
		}
	})
}
