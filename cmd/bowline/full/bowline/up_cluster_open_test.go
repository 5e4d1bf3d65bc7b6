//go:build unix

package main

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/go-jose/go-jose/v4"
)

// inTurns sends each request to the next of some nodes.
type inTurns struct {
	nodes []string // their URLs

	mu   sync.Mutex
	sent []string // the methods of requests, by order
}

func (s *inTurns) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	at, err := url.Parse(s.nodes[len(s.sent)%len(s.nodes)])
	s.sent = append(s.sent, r.Header.Get("Mcp-Method"))
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.URL = at
	return http.DefaultTransport.RoundTrip(r)
}

// A question that a server asks behind one gateway of a cluster is answered at another one: its call waits where it is. A gateway that is drained
// gives up the servers of which there is one: they run at another one, and never at both.
//
// Guarantees: G-0104.1, G-0104.2
func TestWhatIsOpenGoesOnAtAnotherGateway(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	name, pids := "o"+strings.ReplaceAll(time.Now().Format("150405.000000"), ".", ""), filepath.Join(t.TempDir(), "pids")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"asker": map[string]any{"command": self, "env": map[string]string{role: "asker"}},
		"one": map[string]any{
			"command": "sh", "args": []string{"-c", `echo $$ >>"$PIDS"; exec "$0" serve --stdio`, self}, "env": map[string]string{role: "command", "PIDS": pids},
			"bowline": map[string]string{"instances": "one", "start": "demand"},
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	a := startAt(t, text, "--admin", "off", "--cluster", name, "--node", "a")
	b := startAt(t, text, "--admin", "off", "--cluster", name, "--node", "b")

	nodes := &inTurns{nodes: []string{a.url, b.url}}
	c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
		ProtocolVersion: protocol.Latest,
		Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			return client.Accept(map[string]any{"size": "L"})
		},
	})
	session, err := c.Connect(t.Context(), &streamable.Client{URL: a.url, HTTP: &http.Client{Transport: nodes}})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.WithoutCancel(t.Context()))
	for range 2 { // the first call begins at the one node, and the second at the other
		answer, err := client.Call[string](t.Context(), session, "asker__ask", struct{}{})
		if err != nil || answer != "the size is L" {
			t.Errorf("the tool that asks: %q, %v", answer, err)
		}
		if _, err := client.Call[string](t.Context(), session, "one__echo", map[string]string{"message": "hi"}); err != nil {
			t.Error(err)
		}
	}
	nodes.mu.Lock()
	sent := slices.Clone(nodes.sent)
	nodes.mu.Unlock()
	if calls := len(slices.DeleteFunc(sent, func(method string) bool { return method != protocol.MethodCallTool })); calls != 6 {
		t.Errorf("%d requests were calls, want each question answered by one of its own: %q", calls, nodes.sent)
	}

	if said, err := bowline(t, "drain", "a", "--cluster", name).CombinedOutput(); err != nil {
		t.Errorf("drain: %v: %s", err, said)
	}
	if status, rest := a.ended(); status != 0 {
		t.Errorf("the drained gateway has ended with status %d: %s", status, rest)
	}
	_, header, _ := ask(t, b.url, "", initialize)
	if answer := b.echo(header.Get("Mcp-Session-Id"), "one__echo"); !strings.Contains(answer, `"text":"hi"`) {
		t.Errorf("the server of which there is one, after its node was drained: %s", answer)
	}
	all := pidsOf(t, pids)
	if len(all) != 2 || runtime.GOOS == "linux" && syscall.Kill(all[0], 0) == nil {
		t.Errorf("the server has run as %d, and should have ended with its node, and run at the other one", all)
	}
}

// A user begins a login at one gateway of a cluster, and finishes it at another one, which has other folders. Then he is logged in at both, and nobody else is.
//
// Guarantees: G-0104.1
func TestALoginAtAGatewayIsOneAtAll(t *testing.T) {
	config, other := t.TempDir(), t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", config)
	t.Setenv("BOWLINE_KEYRING", "off")
	token := map[string]string{}
	for _, user := range []string{"ada", "bob"} {
		said, err := bowline(t, "token", "add", user).Output()
		if err != nil {
			t.Fatal(err)
		}
		token[user] = strings.TrimSpace(string(said))
	}
	_, resource := protectedServer(t, authtest.Options{})
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"one": map[string]any{"url": resource, "bowline": map[string]string{"login": "user"}}}})
	if err != nil {
		t.Fatal(err)
	}
	name := "l" + strings.ReplaceAll(time.Now().Format("150405.000000"), ".", "")
	a := startAt(t, text, "--admin", "off", "--auth", "tokens", "--cluster", name, "--node", "a")
	tokens, err := os.ReadFile(filepath.Join(config, "bowline", "tokens.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Mkdir(filepath.Join(other, "bowline"), 0o700),
		os.WriteFile(filepath.Join(other, "bowline", "tokens.json"), tokens, 0o600),
		os.Symlink(filepath.Join(config, "bowline", "clusters"), filepath.Join(other, "bowline", "clusters")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("XDG_CONFIG_HOME", other)
	b := startAt(t, text, "--admin", "off", "--auth", "tokens", "--cluster", name, "--node", "b")

	call := func(at *gatewayNode, user string) string {
		t.Helper()
		c := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{FailFast: true})
		session, err := c.Connect(t.Context(), &streamable.Client{URL: at.url, Header: http.Header{"Authorization": {"Bearer " + token[user]}}})
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(context.WithoutCancel(t.Context()))
		answer, err := client.Call[string](t.Context(), session, "one__echo", map[string]string{"message": "hi"})
		if err != nil {
			return err.Error()
		}
		return answer
	}
	_, rest, _ := strings.Cut(call(a, "ada"), "open ")
	page, _, _ := strings.Cut(rest, " ")
	atA := strings.TrimSuffix(a.url, "/mcp")
	if !strings.HasPrefix(page, atA+"/login/") {
		t.Fatalf("the page is %q", page)
	}
	page = strings.TrimSuffix(b.url, "/mcp") + strings.TrimPrefix(page, atA)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r, err := http.NewRequestWithContext(t.Context(), method, page, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		response, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%s at the other node: %s %s %v", method, response.Status, text, err)
		}
		response.Body.Close()
	}
	for _, at := range []*gatewayNode{b, a} {
		if answer := call(at, "ada"); answer != "hi" {
			t.Errorf("ada, who has logged in, at %s: %s", at.url, answer)
		}
		if answer := call(at, "bob"); !strings.Contains(answer, "needs the login of this user") {
			t.Errorf("bob, who has not, at %s: %s", at.url, answer)
		}
	}
}

// A proof of a key that one gateway of a cluster has accepted is used up at all.
//
// Guarantees: G-0104.1
func TestAProofAtAGatewayIsUsedUpAtAll(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	const resource = "https://gateway.example/mcp"
	as := authtest.Start(t, authtest.Options{Resource: resource})
	text, err := json.Marshal(map[string]any{
		"mcpServers": map[string]any{}, "bowline": map[string]any{"url": resource, "auth": map[string]any{"issuers": []string{as.Issuer()}, "dpop": "required"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	name := "p" + strings.ReplaceAll(time.Now().Format("150405.000000"), ".", "")
	a := startAt(t, text, "--admin", "off", "--cluster", name, "--node", "a")
	b := startAt(t, text, "--admin", "off", "--cluster", name, "--node", "b")

	token, prove := boundToken(t, as, resource)
	first := prove()
	for _, step := range []struct {
		at     *gatewayNode
		proof  string
		status int
	}{{a, first, http.StatusOK}, {b, first, http.StatusUnauthorized}, {b, prove(), http.StatusOK}, {a, first, http.StatusUnauthorized}} {
		status, header, body := askWith(t, step.at.url, http.Header{"Authorization": {"DPoP " + token}, "Dpop": {step.proof}}, initialize)
		if status != step.status {
			t.Errorf("at %s: %d, want %d: %s %s", step.at.url, status, step.status, body, header["Www-Authenticate"])
		}
	}
}

// boundToken returns a token of a user that is bound to a key, and what makes proofs of that key for messages to the resource.
func boundToken(t *testing.T, as *authtest.Server, resource string) (token string, prove func() string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := (&jose.JSONWebKey{Key: key.Public()}).Thumbprint(crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	claims := as.Claims("read")
	claims["cnf"] = map[string]any{"jkt": base64.RawURLEncoding.EncodeToString(sum)}
	token = as.Signed("at+jwt", claims)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{EmbedJWK: true}).WithType("dpop+jwt"))
	if err != nil {
		t.Fatal(err)
	}
	return token, func() string {
		hash := sha256.Sum256([]byte(token))
		claims, err := json.Marshal(map[string]any{
			"htm": "POST", "htu": resource, "iat": time.Now().Unix(), "jti": rand.Text(), "ath": base64.RawURLEncoding.EncodeToString(hash[:]),
		})
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		proof, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return proof
	}
}

// protectedServer starts a server that lists its tools for everybody, and wants a token for calls, with its authorization server.
func protectedServer(t *testing.T, o authtest.Options) (as *authtest.Server, resource string) {
	t.Helper()
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "echo"}, func(_ context.Context, in struct {
		Message string `json:"message"`
	}) (string, error) {
		return in.Message, nil
	})
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	listening := httptest.NewUnstartedServer(nil)
	o.Resource, o.CallsOnly = "http://"+listening.Listener.Addr().String()+"/mcp", true
	as = authtest.Start(t, o)
	listening.Config.Handler = as.Protect(endpoint)
	listening.Start()
	t.Cleanup(func() {
		endpoint.Close(time.Second)
		listening.Close()
	})
	return as, o.Resource
}
