package resource_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/auth/resource"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/go-jose/go-jose/v4"
)

// A site is a protected server behind a real HTTP server, and the authorization server that
// it trusts.
type site struct {
	t     *testing.T
	url   string
	as    *authtest.Server
	guard *resource.Guard
	tools *server.Server
	http  *http.Client

	mu        sync.Mutex
	responses strings.Builder // all responses
}

// newSite starts a site. Options of the authorization server may be nil.
func newSite(t *testing.T, change func(*resource.Options), of authtest.Options) *site {
	t.Helper()
	listening := httptest.NewUnstartedServer(nil)
	s := &site{t: t, url: "http://" + listening.Listener.Addr().String() + "/mcp"}
	of.Resource = s.url
	s.as = authtest.Start(t, of)
	o := resource.Options{URL: s.url, Issuers: []resource.Issuer{{URL: s.as.Issuer()}}, Scopes: []string{"read"}, Needs: needs}
	if change != nil {
		change(&o)
	}
	guard, err := resource.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.guard = guard
	tools := server.New(protocol.Implementation{Name: "protected", Version: "1"}, server.Options{Visible: guard.Visible, Tasks: &server.TaskOptions{}})
	server.AddTool(tools, protocol.Tool{Name: "whoami"}, func(ctx context.Context, _ struct{}) (string, error) {
		p := resource.PrincipalFrom(ctx)
		return p.Issuer + " " + p.Subject + " " + p.Client, nil
	})
	server.AddTool(tools, protocol.Tool{Name: "change"}, func(context.Context, struct{}) (string, error) { return "changed", nil })
	server.AddTool(tools, protocol.Tool{Name: "ask"}, ask, server.Asks(server.Reruns, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
	server.AddTool(tools, protocol.Tool{Name: "render", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
		func(context.Context, struct{}) (string, error) { return "rendered", nil })
	s.tools = tools
	endpoint := streamable.NewHandler(tools, streamable.HandlerOptions{Check: guard.Check})
	mux := http.NewServeMux()
	mux.Handle("/mcp", endpoint)
	mux.Handle("/.well-known/", guard.Metadata())
	listening.Config.Handler = mux
	listening.Start()
	s.http = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(func() {
		if found := s.as.Printed(s.responses.String()); len(found) > 0 {
			t.Errorf("%d secrets are in responses, one of %d bytes", len(found), len(found[0]))
		}
		s.http.CloseIdleConnections()
		if err := endpoint.Shutdown(context.Background(), nil); err != nil {
			t.Error(err)
		}
		listening.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return s
}

// ask is a tool that asks its user a question.
func ask(ctx context.Context, _ struct{}) (string, error) {
	size, err := server.Elicit[struct {
		Size string `json:"size"`
	}](ctx, "Which size?")
	return size.Size, err
}

// needs returns the scopes that the tools need.
func needs(op streamable.Operation) []string {
	switch op.Name() {
	case "change":
		return []string{"read", "write"}
	case "whoami":
		return []string{"read"}
	}
	return nil
}

// A reply is a whole response.
type reply struct {
	status int
	header http.Header
	body   string
}

// send sends a request with headers that are written as "Name: value".
func (s *site) send(method, body string, lines ...string) reply {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return s.do(r)
}

func (s *site) do(r *http.Request) reply {
	s.t.Helper()
	response, err := s.http.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(&s.responses, "%v %s\n", response.Header, text)
	return reply{response.StatusCode, response.Header, string(text)}
}

// call calls a tool in the revision without sessions.
func (s *site) call(tool string, lines ...string) reply {
	s.t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	return s.send(http.MethodPost, body, append(lines, "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: "+tool)...)
}

func bearer(token string) string { return "Authorization: Bearer " + token }

// wantChallenge checks a denial.
func (s *site) wantChallenge(r reply, status int, code string) {
	s.t.Helper()
	challenge := r.header.Get("Www-Authenticate")
	if r.status != status || !strings.Contains(challenge, `resource_metadata="`+strings.Replace(s.url, "/mcp", "/.well-known/oauth-protected-resource/mcp", 1)+`"`) {
		s.t.Errorf("status %d, %q, %.200s; want %d", r.status, challenge, r.body, status)
	}
	if got := strings.Contains(challenge, "error="); got != (code != "") || code != "" && !strings.Contains(challenge, `error="`+code+`"`) {
		s.t.Errorf("the challenge is %q, want error %q", challenge, code)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func thumbprint(t testing.TB, key *ecdsa.PrivateKey) string {
	t.Helper()
	public := jose.JSONWebKey{Key: key.Public()}
	sum, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(sum)
}

// prove returns the claims of a proof for a POST with a token.
func (s *site) prove(token string) map[string]any {
	hash := sha256.Sum256([]byte(token))
	var id [16]byte
	rand.Read(id[:])
	return map[string]any{"htm": "POST", "htu": s.url, "jti": base64.RawURLEncoding.EncodeToString(id[:]), "iat": time.Now().Unix(),
		"ath": base64.RawURLEncoding.EncodeToString(hash[:])}
}

// signedBy signs claims with the public key in the header.
func signedBy(t testing.TB, key any, algorithm jose.SignatureAlgorithm, typ string, claims []byte) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{EmbedJWK: true}).WithType(jose.ContentType(typ)))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}
