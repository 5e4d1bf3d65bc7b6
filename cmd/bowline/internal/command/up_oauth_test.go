//go:build unix

package command

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A guarded gateway accepts the tokens of two issuers: one signs them, and the other is asked about them.
type guarded struct {
	*upRun
	path           string
	trail          string
	signed, opaque *authtest.Server
}

// newGuarded starts a gateway with more settings for auth.
func newGuarded(t *testing.T, settings string) *guarded {
	t.Helper()
	address, dir := freeAddress(t), t.TempDir()
	g := &guarded{path: filepath.Join(dir, "mcp.json"), trail: filepath.Join(dir, "audit.jsonl")}
	url := "http://" + address + "/mcp"
	g.signed = authtest.Start(t, authtest.Options{Resource: url, Clients: []authtest.Client{{ID: "robot", Secret: "s3cret", Auth: "client_secret_basic"}}})
	g.opaque = authtest.Start(t, authtest.Options{Resource: url, Opaque: true, Clients: []authtest.Client{{ID: "gateway", Secret: "t0p", Auth: "client_secret_basic"}}})
	mcpFile(t, g.path, "one")
	text, err := os.ReadFile(g.path)
	if err != nil {
		t.Fatal(err)
	}
	block := `, "bowline": {"url": "` + url + `", "audit": {"file": "audit.jsonl", "sync": true}, "auth": {"issuers": ["` + g.signed.Issuer() + `",
		{"url": "` + g.opaque.Issuer() + `", "introspect": {"clientId": "gateway", "clientSecret": "${env:AS_SECRET}"}}]` + settings + `}}}`
	if err := os.WriteFile(g.path, append(text[:len(text)-1], block...), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AS_SECRET", "t0p")
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	g.upRun = startUpAt(t, g.path, address)
	return g
}

// status sends a request with headers that are written as "Name: value", and returns the status of the answer.
func (g *guarded) status(query string, lines ...string) int {
	g.t.Helper()
	return g.post(query, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`, lines...)
}

// post sends this text, too.
func (g *guarded) post(query, body string, lines ...string) int {
	g.t.Helper()
	r, err := http.NewRequestWithContext(g.t.Context(), http.MethodPost, g.url+query, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header[name] = append(r.Header[name], value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		g.t.Fatal(err)
	}
	return response.StatusCode
}

func encoded(t *testing.T, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// A prover is the key of a client that is bound to its tokens.
type prover struct {
	t   *testing.T
	key *ecdsa.PrivateKey
	jwk map[string]string
}

func newProver(t *testing.T) *prover {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	part := base64.RawURLEncoding.EncodeToString
	return &prover{t, key, map[string]string{"crv": "P-256", "kty": "EC", "x": part(public[1:33]), "y": part(public[33:])}}
}

// thumbprint is that of RFC 7638: the members of the key are in the order of their names.
func (p *prover) thumbprint() string {
	text, err := json.Marshal(p.jwk)
	if err != nil {
		p.t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// prove returns a header with a proof for a request with a token.
func (p *prover) prove(url, token string) string {
	hash := sha256.Sum256([]byte(token))
	claims := map[string]any{"htm": "POST", "htu": url, "iat": time.Now().Unix(), "jti": rand.Text(), "ath": base64.RawURLEncoding.EncodeToString(hash[:])}
	text := encoded(p.t, map[string]any{"typ": "dpop+jwt", "alg": "ES256", "jwk": p.jwk}) + "." + encoded(p.t, claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, p.key, sum[:])
	if err != nil {
		p.t.Fatal(err)
	}
	var signature [64]byte
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return "Dpop: " + text + "." + base64.RawURLEncoding.EncodeToString(signature[:])
}

// TestForgedTokensAtAGateway shows a gateway each kind of token that it must not accept. None is, each has its record, and no record has the token.
//
// Guarantees: G-0097.8, G-0097.9, G-0097.11
func TestForgedTokensAtAGateway(t *testing.T) {
	g := newGuarded(t, `, "dpop": "allowed"`)
	defer g.end()
	key, stranger := newProver(t), newProver(t)
	claims := func(change map[string]any) map[string]any {
		all := g.signed.Claims("read")
		maps.Copy(all, change)
		return all
	}
	bound := claims(map[string]any{"cnf": map[string]any{"jkt": key.thumbprint()}})
	toKey, used := g.signed.IssueClaims(bound), ""
	used = key.prove(g.url, toKey)
	revoked := g.opaque.Issue("ada", "read")
	g.opaque.RevokeAll()
	good := g.signed.Issue("ada", "read")
	head, rest, _ := strings.Cut(good, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	for name, lines := range map[string][]string{
		"signed": {"Authorization: Bearer " + good}, "in lower case": {"Authorization: bearer " + good}, "opaque": {"Authorization: Bearer " + g.opaque.Issue("bob", "read")},
		"expired within the leeway": {"Authorization: Bearer " + g.signed.IssueClaims(claims(map[string]any{"exp": time.Now().Add(-50 * time.Second).Unix()}))},
		"bound, with its proof":     {"Authorization: DPoP " + toKey, used},
	} {
		if status := g.status("", lines...); status != http.StatusOK {
			t.Errorf("%s: %d", name, status)
		}
	}
	bearer := func(token string) []string { return []string{"Authorization: Bearer " + token} }
	issued := func(change map[string]any) []string { return bearer(g.signed.IssueClaims(claims(change))) }
	unsigned := func(header map[string]any) []string {
		return bearer(encoded(t, header) + "." + payload + "." + base64.RawURLEncoding.EncodeToString([]byte("signature")))
	}
	public, err := json.Marshal(g.signed.Keys().Keys[0])
	if err != nil {
		t.Fatal(err)
	}
	const algorithm, wrong, unknownKey, inactive = "the algorithm of the token is not accepted", "the signature of the token is wrong", "the token is signed with an unknown key", "the token is not active"
	g.refusesEach(t, g.path, g.trail, []forgery{
		{name: "no token", why: "a token is needed"},
		{name: "another scheme", lines: []string{"Authorization: Basic YTpi"}, why: "a token is needed"},
		{name: "alg none", lines: bearer(encoded(t, map[string]any{"alg": "none"}) + "." + payload + "."), why: algorithm},
		{name: "HS256 with the public key", lines: bearer(authtest.Sign(public, "HS256", "JWT", claims(nil))), why: algorithm},
		{name: "another key", lines: bearer(authtest.Sign(stranger.key, "ES256", "JWT", claims(nil))), why: wrong},
		{name: "a changed payload", lines: bearer(head + "." + encoded(t, claims(map[string]any{"sub": "eve"})) + "." + signature), why: wrong},
		{name: "no signature", lines: bearer(head + "." + payload + "."), why: wrong},
		{name: "kid as a path", lines: unsigned(map[string]any{"alg": "ES256", "kid": "../../etc/passwd"}), why: unknownKey},
		{name: "kid as SQL", lines: unsigned(map[string]any{"alg": "ES256", "kid": "' OR 1=1 --"}), why: unknownKey},
		{name: "a key of its own", lines: unsigned(map[string]any{"alg": "ES256", "jwk": stranger.jwk}), why: wrong},
		{name: "keys from elsewhere", lines: unsigned(map[string]any{"alg": "ES256", "jku": "https://evil.example/keys"}), why: wrong},
		{name: "crit", lines: unsigned(map[string]any{"alg": "ES256", "crit": []string{"exp"}, "exp": 1}), why: "the token has critical extensions"},
		{name: "JWE", lines: bearer("eyJhbGciOiJSU0EtT0FFUCJ9.a2V5.aXY.dGV4dA.dGFn"), why: inactive},
		{name: "9 KiB", lines: bearer(strings.Repeat("a", 9<<10)), why: "the token is too long"},
		{name: "1 MiB", lines: bearer(strings.Repeat("a", 1<<20)), why: "the token is too long"},
		{name: "another audience", lines: issued(map[string]any{"aud": "https://other.example/mcp"}), why: "the token is for another audience"},
		{name: "another issuer", lines: issued(map[string]any{"iss": "https://evil.example"}), why: "the token is from another issuer"},
		{name: "of the issuer that is asked, signed by the other", lines: issued(map[string]any{"iss": g.opaque.Issuer()}), why: inactive},
		{name: "expired", lines: issued(map[string]any{"exp": time.Now().Add(-70 * time.Second).Unix()}), why: "the token has expired"},
		{name: "without an end", lines: issued(map[string]any{"exp": nil}), why: "the claims of the token cannot be read"},
		{name: "not valid yet", lines: issued(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}), why: "the token is not valid yet"},
		{name: "an identity token", lines: bearer(g.signed.Signed("id+jwt", claims(nil))), why: "the token is of another type"},
		{name: "opaque, unknown", lines: bearer("b4d"), why: inactive},
		{name: "opaque, revoked", lines: bearer(revoked), why: inactive},
		{name: "bound, as a bearer", lines: bearer(toKey), why: "the scheme does not fit the token"},
		{name: "bound, without a proof", lines: []string{"Authorization: DPoP " + toKey}, why: "one proof is needed"},
		{name: "a proof again", lines: []string{"Authorization: DPoP " + toKey, used}, why: "the proof was used before"},
		{name: "the proof of another", lines: []string{"Authorization: DPoP " + toKey, stranger.prove(g.url, toKey)}, why: "the proof is of another key than the token"},
		{name: "a proof for another URL", lines: []string{"Authorization: DPoP " + toKey, key.prove("https://other.example/mcp", toKey)}, why: "the proof is for another request"},
		{name: "not bound, with a proof", lines: []string{"Authorization: DPoP " + good, key.prove(g.url, good)}, why: "the scheme does not fit the token"},
		{name: "two headers", lines: []string{"Authorization: Bearer " + good, "Authorization: Bearer " + good}, status: http.StatusBadRequest, why: "the header Authorization is given more than once"},
		{name: "in the URL", query: "?access_token=" + good, status: http.StatusBadRequest, why: "a token must not be part of a URL"},
	})
	all := bowline(t, "", "audit", g.trail, "--json")
	secrets := append(slices.Clone(g.signed.Printed(all.stdout)), g.opaque.Printed(all.stdout)...)
	if len(secrets) > 0 {
		t.Errorf("%d secrets are in the trail", len(secrets))
	}
}

// TestNamesOfUsers shows people the name that a claim gives a user, beside the identity, and lets nobody be known by it.
//
// Guarantees: G-0097.10
func TestNamesOfUsers(t *testing.T) {
	g := newGuarded(t, `, "name": "email"`)
	defer g.end()
	for subject, name := range map[string]any{"1": "ada@example.com", "2": "ada@example.com", "3": nil, "4": []string{"bob", "b"}, "5": 7} {
		claims := g.opaque.Claims("read")
		if claims["sub"], claims["email"] = subject, name; name == nil {
			delete(claims, "email")
		}
		if text, err := callWith(t, &streamable.Client{URL: g.url}, g.opaque.IssueClaims(claims)); !strings.Contains(text, "hello") {
			t.Errorf("%s: %q, %v", subject, text, err)
		}
	}
	as := g.opaque.Issuer()
	ps := bowline(t, "", "ps", "--file", g.path)
	ps.want(t, 0, "5 connections of clients: ada@example.com ("+as+" 1), ada@example.com ("+as+" 2), bob ("+as+" 4), "+as+" 3, "+as+" 5", "")
	found := bowline(t, "", "audit", g.trail, "--user", "ada@example.com", "--server", "one")
	for _, who := range []string{" 1", " 2"} {
		if strings.Count(found.stdout, "ada@example.com ("+as+who+")") != 1 {
			t.Errorf("%s: %s", who, found.stdout)
		}
	}
	if strings.Contains(found.stdout, "bob") || strings.Count(bowline(t, "", "audit", g.trail, "--user", as+" 4", "--server", "one").stdout, "\n") != 1 {
		t.Error(found.stdout)
	}
}

// TestProofsAtAGateway logs a client in whose tokens are bound to its key, where the file accepts no others.
//
// Guarantees: G-0097.9
func TestProofsAtAGateway(t *testing.T) {
	g := newGuarded(t, `, "dpop": "required"`)
	defer g.end()
	if status := g.status("", "Authorization: Bearer "+g.signed.Issue("ada", "read")); status != http.StatusUnauthorized {
		t.Errorf("a bearer token: %d", status)
	}
	login := auth.New(auth.Options{Resource: g.url, Grant: auth.ClientCredentials{}, DPoP: true, Registered: []auth.Registered{{ID: "robot", Secret: auth.NewSecret("s3cret")}}})
	defer login.Close()
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{FailFast: true}).Connect(t.Context(), &streamable.Client{URL: g.url, Authorizer: login})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	if text, err := client.Call[string](t.Context(), session, "one__echo", map[string]string{"message": "hello"}); !strings.Contains(text, "hello") {
		t.Errorf("%q, %v", text, err)
	}
}

// TestTokensOfClientsStayHere calls a server over HTTP that has no login, with tokens of both kinds. The server is never sent one, whoever shares the connection with it.
//
// Guarantees: G-0102.6
func TestTokensOfClientsStayHere(t *testing.T) {
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "echo"}, func(_ context.Context, in struct {
		Message string `json:"message"`
	}) (string, error) {
		return in.Message, nil
	})
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	received := make(chan string, 1000)
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		whole, err := httputil.DumpRequest(r, true)
		if err != nil {
			t.Error(err)
		}
		received <- string(whole)
		endpoint.ServeHTTP(w, r)
	}))
	defer behind.Close()
	defer endpoint.Close(time.Second)
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	address := freeAddress(t)
	as := authtest.Start(t, authtest.Options{Resource: "http://" + address + "/mcp"})
	for auth, token := range map[string]string{"tokens": newUser(t, "token", "add", "ada"), "oauth": as.Issue("ada", "read")} {
		for _, share := range []string{"all", "user", "client"} {
			path := filepath.Join(t.TempDir(), "mcp.json")
			text := fmt.Sprintf(`{"mcpServers":{"one":{"url":%q,"bowline":{"share":%q}}},"bowline":{"url":"http://%s/mcp","auth":{"issuers":[%q]}}}`, behind.URL, share, address, as.Issuer())
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			up := startUpAt(t, path, address, "--auth", auth)
			if said, err := callWith(t, &streamable.Client{URL: up.url}, token); said != "hello" {
				t.Errorf("%s, share %s: %q, %v", auth, share, said, err)
			}
			up.end()
			var calls int
			for range len(received) {
				whole := <-received
				if calls += strings.Count(whole, `"tools/call"`); strings.Contains(whole, token) || strings.Contains(strings.ToLower(whole), "authorization") {
					t.Errorf("%s, share %s: the server is sent a login:\n%s", auth, share, strings.ReplaceAll(whole, token, "TOKEN"))
				}
			}
			if calls != 1 {
				t.Errorf("%s, share %s: the server has got %d calls", auth, share, calls)
			}
		}
	}
}
