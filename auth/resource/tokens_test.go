package resource_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/go-jose/go-jose/v4"
)

func encode(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

func mustJSON(t testing.TB, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// signedWithHeader signs claims with additional members in the header.
func signedWithHeader(t testing.TB, key any, algorithm jose.SignatureAlgorithm, claims map[string]any, header map[jose.HeaderKey]any) string {
	t.Helper()
	options := new(jose.SignerOptions)
	for name, value := range header {
		options.WithHeader(name, value)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(mustJSON(t, claims))
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestBadTokens sends tokens that must be refused, and checks the reason.
//
// Guarantees: G-0046.2, G-0046.1, G-0046.9
func TestBadTokens(t *testing.T) {
	s := newSite(t, nil, authtest.Options{Sign: jose.RS256})
	other := authtest.Start(t, authtest.Options{Resource: s.url})
	now := time.Now()
	with := func(changes map[string]any) string {
		claims := s.as.Claims("read")
		maps.Copy(claims, changes)
		for name, value := range claims {
			if value == nil {
				delete(claims, name)
			}
		}
		return s.as.IssueClaims(claims)
	}
	good := with(nil)
	if r := s.call("whoami", bearer(good)); r.status != http.StatusOK {
		t.Fatalf("a valid token: %+v", r)
	}
	parts := strings.Split(good, ".")
	claims := string(mustJSON(t, s.as.Claims("read")))
	public := s.as.Keys().Keys[0]
	der, err := x509.MarshalPKIXPublicKey(public.Key)
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	stranger, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	id := map[jose.HeaderKey]any{"kid": public.KeyID}
	encrypter, err := jose.NewEncrypter(jose.A128GCM, jose.Recipient{Algorithm: jose.RSA_OAEP_256, Key: public.Key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := encrypter.Encrypt([]byte(claims))
	if err != nil {
		t.Fatal(err)
	}
	jwe, err := encrypted.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	for name, token := range map[string]string{
		"alg none":               encode(`{"alg":"none"}`) + "." + encode(claims) + ".",
		"alg None":               encode(`{"alg":"None"}`) + "." + encode(claims) + "." + encode("x"),
		"HS256 with the PEM":     signedWithHeader(t, publicPEM, jose.HS256, s.as.Claims("read"), id),
		"HS256 with the DER":     signedWithHeader(t, der, jose.HS256, s.as.Claims("read"), id),
		"signed by a stranger":   signedWithHeader(t, stranger, jose.RS256, s.as.Claims("read"), id),
		"another algorithm":      encode(`{"alg":"PS256","kid":"`+public.KeyID+`"}`) + "." + parts[1] + "." + parts[2],
		"its key in the header":  signedBy(t, stranger, jose.RS256, "at+jwt", []byte(claims)),
		"kid is a path":          signedWithHeader(t, stranger, jose.RS256, s.as.Claims("read"), map[jose.HeaderKey]any{"kid": "../../../../dev/null"}),
		"kid is SQL":             signedWithHeader(t, stranger, jose.RS256, s.as.Claims("read"), map[jose.HeaderKey]any{"kid": "' UNION SELECT 'key"}),
		"a URL of keys":          signedWithHeader(t, stranger, jose.RS256, s.as.Claims("read"), map[jose.HeaderKey]any{"jku": other.URL(authtest.Keys), "kid": "key-1"}),
		"crit":                   encode(`{"alg":"RS256","kid":"`+public.KeyID+`","crit":["b64"],"b64":true}`) + "." + parts[1] + "." + parts[2],
		"alg twice":              encode(`{"alg":"none","alg":"RS256"}`) + "." + parts[1] + "." + parts[2],
		"JWE":                    jwe,
		"JSON":                   encode(`{"payload":""}`),
		"signature cut":          parts[0] + "." + parts[1] + "." + parts[2][:20],
		"signature gone":         parts[0] + "." + parts[1] + ".",
		"claims changed":         parts[0] + "." + encode(strings.Replace(claims, `"read"`, `"write"`, 1)) + "." + parts[2],
		"1 MB":                   strings.Repeat("a", 1_000_000),
		"9 KiB":                  with(map[string]any{"more": strings.Repeat("a", 9<<10)}),
		"no token":               "",
		"two tokens":             good + " " + good,
		"a control character":    "a\tb",
		"another audience":       with(map[string]any{"aud": "https://other.example/mcp"}),
		"parent's audience":      with(map[string]any{"aud": strings.TrimSuffix(s.url, "/mcp")}),
		"no audience":            with(map[string]any{"aud": nil}),
		"an audience of lists":   with(map[string]any{"aud": [][]string{{s.url}}}),
		"another issuer":         other.Issue("ada", "read"),
		"another's name":         with(map[string]any{"iss": other.Issuer()}),
		"issuer but for a slash": with(map[string]any{"iss": s.as.Issuer() + "/"}),
		"no issuer":              with(map[string]any{"iss": nil}),
		"expired":                with(map[string]any{"exp": now.Add(-61 * time.Second).Unix()}),
		"no expiry":              with(map[string]any{"exp": nil}),
		"expiry is a text":       with(map[string]any{"exp": "tomorrow"}),
		"expiry is negative":     with(map[string]any{"exp": -1}),
		"not yet":                with(map[string]any{"nbf": now.Add(90 * time.Second).Unix()}),
		"from the future":        with(map[string]any{"iat": now.Add(90 * time.Second).Unix()}),
		"nobody":                 with(map[string]any{"sub": nil, "client_id": nil}),
		"an id token":            s.as.Signed("id+jwt", s.as.Claims("read")),
		"an ID-JAG":              s.as.Signed("oauth-id-jag+jwt", s.as.Claims("read")),
		"bound to a key":         with(map[string]any{"cnf": map[string]any{"jkt": "x"}}),
		"bound to a certificate": with(map[string]any{"cnf": map[string]any{"x5t#S256": "x"}}),
	} {
		r := s.call("whoami", bearer(token))
		if name == "1 MB" && r.status == http.StatusRequestHeaderFieldsTooLarge {
			continue // net/http has refused it
		}
		t.Log(name, r.header.Get("Www-Authenticate"))
		s.wantChallenge(r, http.StatusUnauthorized, "invalid_token")
		if t.Failed() {
			t.Fatalf("%s was not refused", name)
		}
		text := r.body + r.header.Get("Www-Authenticate")
		if len(token) > 20 && (strings.Contains(text, token) || strings.Contains(text, token[len(token)-20:])) {
			t.Errorf("%s: the answer repeats the token: %s", name, text)
		}
	}
	for name, r := range map[string]reply{
		"two headers":  s.call("whoami", bearer(good), bearer(good)),
		"in the query": (&site{t: t, url: s.url + "?access_token=" + good, http: s.http}).call("whoami"),
	} {
		s.wantChallenge(r, http.StatusBadRequest, "invalid_request")
		if strings.Contains(r.body, good) {
			t.Errorf("%s: %s", name, r.body)
		}
	}
}

// TestGoodTokens sends unusual tokens that must be accepted.
//
// Guarantees: G-0046.2
func TestGoodTokens(t *testing.T) {
	for _, algorithm := range []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.ES384, jose.EdDSA} {
		s := newSite(t, func(o *resource.Options) { o.Audiences = []string{"api://tools"} }, authtest.Options{Sign: algorithm, Path: "/tenant"})
		now := time.Now()
		upper := strings.Replace(s.url, "http://", "HTTP://", 1) + "/"
		for name, changes := range map[string]map[string]any{
			"plain":               {},
			"one of many":         {"aud": []string{"https://other.example", s.url}},
			"written otherwise":   {"aud": upper},
			"a name":              {"aud": "api://tools"},
			"expired within":      {"exp": now.Add(-30 * time.Second).Unix()},
			"ahead within":        {"nbf": now.Add(30 * time.Second).Unix()},
			"a fraction":          {"exp": float64(now.Add(time.Hour).UnixMilli()) / 1000},
			"for ever":            {"exp": 1e15},
			"a client's":          {"sub": ""},
			"scopes as list":      {"scope": nil, "scp": []string{"read"}},
			"scopes by that name": {"scope": nil, "scp": "read"},
		} {
			claims := s.as.Claims("read")
			maps.Copy(claims, changes)
			if claims["scope"] == nil {
				delete(claims, "scope")
			}
			for _, kind := range []string{"at+jwt", "application/at+jwt", "JWT", ""} {
				if r := s.call("whoami", bearer(s.as.Signed(kind, claims))); r.status != http.StatusOK {
					t.Errorf("%s, %s, type %q: %+v", algorithm, name, kind, r)
				}
			}
		}
	}
	strict := newSite(t, func(o *resource.Options) { o.Strict = true }, authtest.Options{})
	strict.wantChallenge(strict.call("whoami", bearer(strict.as.Signed("JWT", strict.as.Claims("read")))), http.StatusUnauthorized, "invalid_token")
	if r := strict.call("whoami", bearer(strict.as.Issue("ada", "read"))); r.status != http.StatusOK {
		t.Errorf("at+jwt: %+v", r)
	}
}

// TestOptionsThatCannotBe are refused by New.
func TestOptionsThatCannotBe(t *testing.T) {
	issuers := []resource.Issuer{{URL: "https://as.example"}}
	asks := &resource.Introspection{ClientID: "c"}
	for name, o := range map[string]resource.Options{
		"no URL":          {Issuers: issuers},
		"http":            {URL: "http://mcp.example/mcp", Issuers: issuers},
		"a query":         {URL: "https://mcp.example/mcp?x=1", Issuers: issuers},
		"a fragment":      {URL: "https://mcp.example/mcp#x", Issuers: issuers},
		"a password":      {URL: "https://u:p@mcp.example/mcp", Issuers: issuers},
		"no issuer":       {URL: "https://mcp.example/mcp"},
		"issuer by http":  {URL: "https://mcp.example/mcp", Issuers: []resource.Issuer{{URL: "http://as.example"}}},
		"issuer twice":    {URL: "https://mcp.example/mcp", Issuers: append(issuers, issuers...)},
		"keys by http":    {URL: "https://mcp.example/mcp", Issuers: []resource.Issuer{{URL: "https://as.example", Keys: "http://as.example/keys"}}},
		"two introspect":  {URL: "https://mcp.example/mcp", Issuers: []resource.Issuer{{URL: "https://a.example", Introspect: asks}, {URL: "https://b.example", Introspect: asks}}},
		"offline_access":  {URL: "https://mcp.example/mcp", Issuers: issuers, Scopes: []string{"offline_access"}},
		"a scope in two":  {URL: "https://mcp.example/mcp", Issuers: issuers, Scopes: []string{"read write"}},
		"too much leeway": {URL: "https://mcp.example/mcp", Issuers: issuers, Leeway: 6 * time.Minute},
	} {
		if _, err := resource.New(o); err == nil || strings.Contains(err.Error(), "u:p@") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
