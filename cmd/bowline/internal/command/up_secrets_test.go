//go:build unix

package command

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/go-jose/go-jose/v4"
)

// A keeping gateway has users, and servers of all kinds that get a secret. The test knows all of these.
type keeping struct {
	*upRun
	t           *testing.T
	path, trail string
	personal    *authtest.Server // where users log in, each for himself
	issuer      *authtest.Server // of the tokens of users, which are exchanged there, and of assertions
	asserted    *authtest.Server // which takes these assertions
	bound       *authtest.Server // where the gateway logs in for all, with a key of its own
	config      string           // the folder of the gateway
	browser     *http.Client
	secrets     map[string]string // by what they are
}

const (
	secretArgument = "s3cret-argument"
	secretFailure  = "s3cret-failure"
	secretHeader   = "s3cret-header"
)

func newKeeping(t *testing.T, auth string) *keeping {
	t.Helper()
	k := &keeping{t: t, secrets: map[string]string{
		"argument and result": secretArgument, "text of an error": secretFailure, "env of a server": "s3cret-env", "header of a server": secretHeader, "client_secret": "s3cret-client", "client_secret of another server": "s3cret-asserted",
	}}
	plain := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(plain, protocol.Tool{Name: "echo"}, func(_ context.Context, in struct {
		Message string `json:"message"`
	}) (string, error) {
		return in.Message, nil
	})
	server.AddTool(plain, protocol.Tool{Name: "refuse"}, func(_ context.Context, in struct {
		Message string `json:"message"`
	}) (string, error) {
		return "", &jsonrpc.Error{Code: 7, Message: in.Message}
	})
	endpoint := streamable.NewHandler(plain, streamable.HandlerOptions{})
	keyed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Key") != secretHeader {
			t.Errorf("the header is %q", r.Header.Get("X-Key"))
		}
		endpoint.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		endpoint.Close(time.Second)
		keyed.Close()
	})
	known := []authtest.Client{{ID: "gateway", Secret: k.secrets["client_secret"], Auth: "client_secret_basic"}}
	var personal, exchanged, asserted, bound string
	k.personal, personal = halfOpen(t, authtest.Options{})
	k.issuer, exchanged = halfOpen(t, authtest.Options{Clients: known})
	k.asserted, asserted = halfOpen(t, authtest.Options{
		Clients: []authtest.Client{{ID: "gateway", Secret: k.secrets["client_secret of another server"], Auth: "client_secret_basic"}},
		Trusts:  map[string]func() jose.JSONWebKeySet{k.issuer.Issuer(): k.issuer.Keys},
	})
	k.bound, bound = halfOpen(t, authtest.Options{Clients: known, DPoPNonces: true})
	config, dir, address := t.TempDir(), t.TempDir(), freeAddress(t)
	k.config = config
	for name, value := range map[string]string{
		"XDG_RUNTIME_DIR": shortFolder(t), "XDG_CONFIG_HOME": config, connect.KeyringVariable: "off",
		"A_SECRET": k.secrets["env of a server"], "B_SECRET": secretHeader, "C_SECRET": k.secrets["client_secret"], "D_SECRET": k.secrets["client_secret of another server"],
	} {
		t.Setenv(name, value)
	}
	k.path, k.trail = filepath.Join(dir, "mcp.json"), filepath.Join(dir, "audit.jsonl")
	text := fmt.Sprintf(`{"mcpServers":{
		"child":{"command":%q,"args":["serve","--stdio"],"env":{%q:"command","TOKEN":"${A_SECRET}","BOWLINE_KEYRING":"off"}},
		"keyed":{"url":%q,"headers":{"X-Key":"${B_SECRET}"}},
		"personal":{"url":%q,"bowline":{"login":"user"}},
		"exchanged":{"url":%q,"bowline":{"login":{"exchange":{"issuer":%q,"clientId":"gateway","clientSecret":"${C_SECRET}"}}}},
		"asserted":{"url":%q,"bowline":{"login":{"idjag":{"issuer":%q,"clientId":"gateway","clientSecret":"${D_SECRET}",
			"provider":{"tokenEndpoint":%q,"clientId":"gateway","clientSecret":"${C_SECRET}"}}}}},
		"bound":{"url":%q,"bowline":{"auth":{"grant":"client_credentials","clientId":"gateway","clientSecret":"${C_SECRET}","dpop":true}}}},
		"bowline":{"url":"http://%s/mcp","audit":{"file":"audit.jsonl","sync":true},"auth":{"issuers":[%q],"dpop":"allowed"}}}`,
		executable(t), role, keyed.URL, personal, exchanged, k.issuer.Issuer(), asserted, k.asserted.Issuer(), k.issuer.URL(authtest.Token), bound, address, k.issuer.Issuer())
	if err := os.WriteFile(k.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if auth == "tokens" {
		k.secrets["token of a user"] = newUser(t, "token", "add", "ada")
	} else {
		claims := k.issuer.Claims("read")
		claims["aud"], claims["sub"] = "http://"+address+"/mcp", "ada"
		k.secrets["token of a user"] = k.issuer.IssueClaims(claims)
	}
	k.upRun = startUpAt(t, k.path, address, "--auth", auth, "--log-level", "debug")
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	k.browser = &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	token, err := os.ReadFile(filepath.Join(config, "bowline", "admin.token"))
	if err != nil {
		t.Fatal(err)
	}
	k.secrets["token of the page"] = strings.TrimSpace(string(token))
	return k
}

// fetch returns what somebody sees who shows a token of the page; "": nobody's.
func (k *keeping) fetch(method, url, token string) string {
	k.t.Helper()
	r, err := http.NewRequestWithContext(k.t.Context(), method, url, nil)
	if err != nil {
		k.t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := k.browser.Do(r)
	if err != nil {
		k.t.Fatal(err)
	}
	defer response.Body.Close()
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return firstEvent(k.t, response.Body)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		k.t.Fatal(err)
	}
	return string(text)
}

// firstEvent returns what a stream begins with, which is all that there is to see.
func firstEvent(t *testing.T, stream io.Reader) (text string) {
	t.Helper()
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && lines.Text() != "" {
		text += lines.Text() + "\n"
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return text
}

// use makes calls that work, and others that fail in each way, and lets the user log in.
func (k *keeping) use() {
	k.t.Helper()
	to := &streamable.Client{URL: k.url, Header: http.Header{"Authorization": {"Bearer " + k.secrets["token of a user"]}}}
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{FailFast: true}).Connect(k.t.Context(), to)
	if err != nil {
		k.t.Fatal(err)
	}
	defer session.Close(context.Background())
	call := func(tool, message string) string {
		arguments, err := json.Marshal(map[string]string{"message": message})
		if err != nil {
			k.t.Fatal(err)
		}
		result, err := session.CallTool(k.t.Context(), &protocol.CallToolParams{Name: tool, Arguments: arguments})
		if err != nil {
			return err.Error()
		}
		return result.Content.Text()
	}
	for tool, message := range map[string]string{"child__echo": secretArgument, "keyed__echo": secretArgument, "child__fail": secretFailure, "keyed__refuse": secretFailure} {
		if got := call(tool, message); !strings.Contains(got, message) {
			k.t.Errorf("%s: %s", tool, got)
		}
	}
	for _, tool := range []string{"exchanged__echo", "asserted__echo"} { // with a token of the gateway there is nothing to exchange
		if got := call(tool, secretArgument); (got == secretArgument) == strings.HasPrefix(k.secrets["token of a user"], "bowline_") {
			k.t.Errorf("%s, where tokens are exchanged: %s", tool, got)
		}
	}
	if got := call("bound__echo", secretArgument); got != secretArgument {
		k.t.Errorf("where the gateway has a key of its own: %s", got)
	}
	call("none__none", secretArgument)
	_, rest, _ := strings.Cut(call("personal__echo", secretArgument), "open ")
	page, _, _ := strings.Cut(rest, " ")
	k.secrets["page of a login"] = page[strings.LastIndex(page, "/")+1:]
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodGet} { // the last one comes too late
		k.fetch(method, page, "")
	}
	if got := call("personal__echo", secretArgument); got != secretArgument {
		k.t.Errorf("who has logged in: %s", got)
	}
	at, err := url.Parse(k.url)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, c := range k.browser.Jar.Cookies(at.JoinPath("../login/x")) {
		k.secrets["cookie "+c.Name] = c.Value
	}
	forged := &streamable.Client{URL: k.url, Header: http.Header{"Authorization": {"Bearer s3cret-forged"}}}
	k.secrets["forged token"] = "s3cret-forged"
	if _, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{FailFast: true}).Connect(k.t.Context(), forged); err == nil {
		k.t.Error("a forged token was accepted")
	}
	k.prove()
	bowline(k.t, "", "restart", "child", "--file", k.path).want(k.t, 0, "", "")
	bowline(k.t, "", "reload", "--file", k.path).want(k.t, 0, "", "")
	k.fetch(http.MethodPost, k.page+"v1/reload", "s3cret-forged")
}

// prove shows the gateway a token that is bound to a key: with a proof, with the same one again, and without one. Where users have tokens of the gateway, none of that is accepted.
func (k *keeping) prove() {
	k.t.Helper()
	key := newProver(k.t)
	claims := k.issuer.Claims("read")
	claims["aud"], claims["sub"], claims["cnf"] = k.url, "bob", map[string]any{"jkt": key.thumbprint()}
	token := k.issuer.IssueClaims(claims)
	proof := key.prove(k.url, token)
	g := guarded{upRun: k.upRun}
	first := http.StatusUnauthorized
	if !strings.HasPrefix(k.secrets["token of a user"], "bowline_") {
		first = http.StatusOK
	}
	for i, lines := range [][]string{{"Authorization: DPoP " + token, proof}, {"Authorization: DPoP " + token, proof}, {"Authorization: DPoP " + token}} {
		if status := g.status("", lines...); i == 0 && status != first || i > 0 && status != http.StatusUnauthorized {
			k.t.Errorf("request %d with a proof: %d", i, status)
		}
	}
	k.secrets["token that is bound to a key"], k.secrets["proof of a client"] = token, strings.TrimPrefix(proof, "Dpop: ")
}

// ownKey returns the private part of the key to which the login of the gateway is bound, which it has stored.
func (k *keeping) ownKey() (d string) {
	k.t.Helper()
	err := filepath.WalkDir(k.config, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		text, err := os.ReadFile(path)
		var stored struct {
			Entry struct {
				Proof string `json:"proof_key"`
			} `json:"entry"`
		}
		if err == nil && json.Unmarshal(text, &stored) == nil && stored.Entry.Proof != "" {
			var key struct{ D string }
			err, d = json.Unmarshal([]byte(stored.Entry.Proof), &key), key.D
		}
		return err
	})
	if err != nil || d == "" {
		k.t.Errorf("the gateway has stored no key: %v", err)
	}
	return d
}

// places returns all that the gateway says of itself, by where it says it.
func (k *keeping) places() map[string]string {
	k.t.Helper()
	all := make(map[string]string)
	for _, args := range [][]string{{"ps"}, {"ps", "--json"}, {"audit"}, {"audit", "--json"}, {"stderr", "child"}} {
		all["bowline "+strings.Join(args, " ")] = bowline(k.t, "", append(args, "--file", k.path)...).stdout
	}
	token := k.secrets["token of the page"]
	for _, path := range []string{"", "servers/child", "servers/personal", "servers/exchanged", "servers/asserted", "servers/bound", "audit", "metrics", "v1/report", "v1/audit", "v1/events", "page/events"} {
		all["/"+path] = k.fetch(http.MethodGet, k.page+path, token)
		all["/"+path+" without a token"] = k.fetch(http.MethodGet, k.page+path, "")
	}
	k.end()
	all["log"] = k.said.String()
	trail, err := os.ReadFile(k.trail)
	if err != nil {
		k.t.Fatal(err)
	}
	all["trail"] = string(trail)
	return all
}

// wantSent checks that the gateway has sent a secret of a kind, which the test therefore knows.
func (k *keeping) wantSent(name string, to *authtest.Server, secret func(*authtest.Request) string) {
	k.t.Helper()
	for _, r := range to.Sink.Requests(authtest.Token) {
		if text := secret(r); text != "" && slices.Contains(to.Secrets(), text) {
			return
		}
	}
	k.t.Errorf("the authorization server %s has got no such secret", name)
}

// Whatever a gateway with users is given to keep, and what calls carry, is in nothing that it says of itself: neither in the trail, nor in its log of all levels, its report, its events, its
// pages and its metrics.
//
// Guarantees: G-0091.24
func TestNoSecretIsSaid(t *testing.T) {
	for _, auth := range []string{"tokens", "oauth"} {
		t.Run(auth, func(t *testing.T) {
			k := newKeeping(t, auth)
			k.use()
			places := k.places()
			k.secrets["key of the gateway"] = k.ownKey()
			for name, as := range map[string]*authtest.Server{"personal": k.personal, "issuer": k.issuer, "asserted": k.asserted, "bound": k.bound} {
				for i, text := range as.Secrets() {
					k.secrets[fmt.Sprintf("of the authorization server %s, %d", name, i)] = text
				}
			}
			k.wantSent("bound", k.bound, func(r *authtest.Request) string { return r.Header.Get("DPoP") })
			if auth == "oauth" {
				k.wantSent("asserted", k.asserted, func(r *authtest.Request) string { return r.Form.Get("assertion") })
			}
			if log := places["log"]; !strings.Contains(log, `level=DEBUG msg="request served"`) || !strings.Contains(log, `level=DEBUG msg="request stopped" conn=child`) {
				t.Errorf("the log does not have every request: %s", log)
			}
			if cookies, n := strings.Count(fmt.Sprint(k.secrets), "cookie "), len(k.secrets); cookies == 0 || n < 24 || k.secrets["page of a login"] == "" {
				t.Errorf("the test knows %d secrets, of which %d are cookies", n, cookies)
			}
			for place, text := range places {
				if strings.TrimSpace(text) == "" && place != "bowline stderr child" {
					t.Errorf("nothing is in %s", place)
				}
				for what, secret := range k.secrets {
					if len(secret) < 8 {
						t.Errorf("%s: %q is too short to be searched for", what, secret)
					}
					if strings.Contains(text, strings.TrimPrefix(secret, "bowline_")) {
						t.Errorf("%s has a secret: %s", place, what)
					}
				}
			}
		})
	}
}
