package authtest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// A party is a client of OAuth, step by step.
type party struct {
	t  *testing.T
	as *authtest.Server
	c  authtest.Client
}

func (p *party) do(request *http.Request) (int, http.Header, map[string]any) {
	p.t.Helper()
	response, err := p.as.Client().Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	object := map[string]any{}
	if len(text) > 0 && json.Unmarshal(text, &object) != nil {
		p.t.Fatalf("%s is no JSON: %s", request.URL, text)
	}
	return response.StatusCode, response.Header, object
}

func (p *party) post(e authtest.Endpoint, form url.Values, header http.Header) (int, http.Header, map[string]any) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.as.URL(e), strings.NewReader(form.Encode()))
	if err != nil {
		p.t.Fatal(err)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if p.c.Secret != "" {
		request.SetBasicAuth(url.QueryEscape(p.c.ID), url.QueryEscape(p.c.Secret))
	} else if p.c.ID != "" {
		form.Set("client_id", p.c.ID)
		body := form.Encode()
		request.Body, request.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	return p.do(request)
}

const redirect = "http://127.0.0.1:4711/callback"

func (p *party) code(verifier, scope string) string {
	p.t.Helper()
	sum := sha256.Sum256([]byte(verifier))
	query := url.Values{"response_type": {"code"}, "client_id": {p.c.ID}, "redirect_uri": {redirect}, "state": {"s t"}, "scope": {scope},
		"resource": {p.as.Resource()}, "code_challenge_method": {"S256"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}}
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.as.URL(authtest.Authorize)+"?"+query.Encode(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	status, header, _ := p.do(request)
	location, err := url.Parse(header.Get("Location"))
	if err != nil || status != http.StatusFound || location.Query().Get("state") != "s t" || location.Query().Get("iss") != p.as.Issuer() {
		p.t.Fatalf("authorize: %d, %s", status, location)
	}
	return location.Query().Get("code")
}

func (p *party) redeem(code, verifier string) (int, map[string]any) {
	p.t.Helper()
	status, _, object := p.post(authtest.Token, url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {redirect},
		"code_verifier": {verifier}, "resource": {p.as.Resource()}}, nil)
	return status, object
}

func (p *party) refresh(token any) (int, map[string]any) {
	p.t.Helper()
	status, _, object := p.post(authtest.Token, url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token.(string)}}, nil)
	return status, object
}

// works reports whether the resource server accepts a token.
func (p *party) works(token any) bool {
	p.t.Helper()
	var admitted bool
	protected := p.as.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { admitted = true }))
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.as.Resource(), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token.(string))
	w := &discard{header: http.Header{}}
	protected.ServeHTTP(w, request)
	if !admitted && !strings.Contains(w.header.Get("WWW-Authenticate"), p.as.URL(authtest.ResourceMetadata)) {
		p.t.Errorf("the challenge is %q", w.header)
	}
	return admitted
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// TestCodeGrant registers a client, gets a token and refreshes it. It checks that the reuse of a code
// or of a refresh token revokes all tokens of the login.
func TestCodeGrant(t *testing.T) {
	as := authtest.New("https://as.example", authtest.Options{Path: "/tenant"})
	p := &party{t: t, as: as}
	status, _, registered := p.register(`{"redirect_uris":["http://127.0.0.1/callback"],"application_type":"native","token_endpoint_auth_method":"none"}`)
	if status != http.StatusCreated {
		t.Fatalf("register: %d %v", status, registered)
	}
	p.c.ID = registered["client_id"].(string)

	if status, object := p.redeem(p.code("right", "read offline_access"), "wrong"); status != http.StatusBadRequest || object["error"] != "invalid_grant" {
		t.Errorf("a wrong verifier got %d %v", status, object)
	}
	code := p.code("right", "read offline_access")
	status, first := p.redeem(code, "right")
	if status != http.StatusOK || !p.works(first["access_token"]) {
		t.Fatalf("redeem: %d %v", status, first)
	}
	status, second := p.refresh(first["refresh_token"])
	if status != http.StatusOK || !p.works(second["access_token"]) || second["refresh_token"] == first["refresh_token"] {
		t.Fatalf("refresh: %d %v", status, second)
	}
	if status, object := p.refresh(first["refresh_token"]); status != http.StatusBadRequest || object["error"] != "invalid_grant" {
		t.Errorf("a rotated token got %d %v", status, object)
	}
	if status, _ := p.refresh(second["refresh_token"]); status != http.StatusBadRequest || p.works(second["access_token"]) {
		t.Error("the reuse of a rotated token did not revoke the login")
	}
	code = p.code("right", "read offline_access")
	_, third := p.redeem(code, "right")
	if status, _ := p.redeem(code, "right"); status != http.StatusBadRequest || p.works(third["access_token"]) {
		t.Error("a code worked twice, or its reuse did not revoke the tokens")
	}
	if held := as.Sink.Holding(code); len(held) != 2 || held[0].Endpoint != authtest.Token {
		t.Errorf("%d requests had the code", len(held))
	}
}

func (p *party) register(text string) (int, http.Header, map[string]any) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, p.as.URL(authtest.Register), strings.NewReader(text))
	if err != nil {
		p.t.Fatal(err)
	}
	return p.do(request)
}

func proof(t *testing.T, key *ecdsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	options := (&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt")
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestOtherGrants requests a token with each of the other grants.
func TestOtherGrants(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	idp := authtest.New("https://idp.example", authtest.Options{Resource: "https://mcp.example/mcp", Clients: []authtest.Client{{ID: "robot", Secret: "s p"}}})
	as := authtest.New("https://as.example", authtest.Options{
		Resource: "https://mcp.example/mcp", DPoPNonces: true, DevicePolls: 1,
		Clients: []authtest.Client{
			{ID: "robot", Secret: "s p"},
			{ID: "signs", Keys: &jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k"}}}},
		},
		Trusts: map[string]func() jose.JSONWebKeySet{idp.Issuer(): idp.Keys},
	})
	robot := &party{t: t, as: as, c: authtest.Client{ID: "robot", Secret: "s p"}}
	grant := func(p *party, form url.Values, header http.Header) map[string]any {
		t.Helper()
		status, _, object := p.post(authtest.Token, form, header)
		if status != http.StatusOK {
			t.Fatalf("%v: %d %v", form, status, object)
		}
		return object
	}
	credentials := url.Values{"grant_type": {"client_credentials"}, "resource": {as.Resource()}}
	if !robot.works(grant(robot, credentials, nil)["access_token"]) {
		t.Error("the token of client credentials does not work")
	}

	now := time.Now()
	assertion := authtest.Sign(key, jose.ES256, "JWT", map[string]any{"iss": "signs", "sub": "signs", "aud": as.Issuer(), "exp": now.Add(time.Minute).Unix(), "jti": "1"})
	signed := url.Values{"grant_type": {"client_credentials"}, "client_assertion": {assertion},
		"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}, "resource": {as.Resource()}}
	nobody := &party{t: t, as: as}
	grant(nobody, signed, nil)
	if status, _, _ := nobody.post(authtest.Token, signed, nil); status != http.StatusUnauthorized {
		t.Errorf("a reused assertion got %d", status)
	}

	idToken := idp.Signed("JWT", map[string]any{"iss": idp.Issuer(), "sub": "ada", "aud": "robot", "exp": now.Add(time.Minute).Unix()})
	jag := grant(&party{t: t, as: idp, c: robot.c}, url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"},
		"requested_token_type": {"urn:ietf:params:oauth:token-type:id-jag"}, "audience": {as.Issuer()}, "resource": {as.Resource()},
		"subject_token": {idToken}, "subject_token_type": {"urn:ietf:params:oauth:token-type:id_token"}}, nil)
	bearer := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {jag["access_token"].(string)}}
	if !robot.works(grant(robot, bearer, nil)["access_token"]) {
		t.Error("the token of an ID-JAG does not work")
	}

	_, _, device := robot.post(authtest.Device, url.Values{"resource": {as.Resource()}}, nil)
	poll := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {device["device_code"].(string)}}
	if _, _, object := robot.post(authtest.Token, poll, nil); object["error"] != "authorization_pending" {
		t.Errorf("the first poll got %v", object)
	}
	token := grant(robot, poll, nil)["access_token"].(string)

	status, _, _ := robot.post(authtest.Revoke, url.Values{"token": {token}}, nil)
	_, _, introspected := robot.post(authtest.Introspect, url.Values{"token": {token}}, nil)
	if status != http.StatusOK || introspected["active"] != false {
		t.Errorf("after revocation: %d %v", status, introspected)
	}

	claims := map[string]any{"htm": "POST", "htu": as.URL(authtest.Token), "jti": "a", "iat": now.Unix()}
	_, header, object := robot.post(authtest.Token, credentials, http.Header{"Dpop": {proof(t, key, claims)}})
	if object["error"] != "use_dpop_nonce" {
		t.Fatalf("a proof without a nonce got %v", object)
	}
	claims["nonce"] = header.Get("DPoP-Nonce")
	bound := grant(robot, credentials, http.Header{"Dpop": {proof(t, key, claims)}})
	if bound["token_type"] != "DPoP" || robot.works(bound["access_token"]) {
		t.Error("a bound token was accepted without a proof")
	}
	if _, _, object := robot.post(authtest.Token, credentials, http.Header{"Dpop": {proof(t, key, claims)}}); object["error"] != "invalid_dpop_proof" {
		t.Errorf("a reused proof got %v", object)
	}
}

// TestLie rewrites an answer, over a socket.
func TestLie(t *testing.T) {
	as := authtest.Start(t, authtest.Options{})
	as.Lie(authtest.Metadata, func(a *authtest.Answer) { a.Object["issuer"] = "https://other.example" })
	for _, issuer := range []string{"https://other.example", as.Issuer()} {
		response, err := http.Get(as.URL(authtest.Metadata))
		if err != nil {
			t.Fatal(err)
		}
		var object map[string]any
		err = json.NewDecoder(response.Body).Decode(&object)
		response.Body.Close()
		if err != nil || object["issuer"] != issuer {
			t.Errorf("the issuer is %v, %v, want %s", object["issuer"], err, issuer)
		}
		as.Lie(authtest.Metadata, nil)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Printed finds issued secrets in a text, also after they were used or revoked.
func TestPrintedSecretsAreFound(t *testing.T) {
	s := authtest.New("https://as.example", authtest.Options{Clients: []authtest.Client{{ID: "c", Secret: "client's own"}}})
	token := s.Issue("ada", "read")
	s.RevokeAll()
	if found := s.Printed("sent Bearer " + token + " by client's own"); len(found) != 2 {
		t.Errorf("%d secrets are found", len(found))
	}
	if found := s.Printed("nothing of it"); len(found) != 0 {
		t.Errorf("%q", found)
	}
}
