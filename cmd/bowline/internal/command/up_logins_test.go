//go:build unix

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// halfOpen starts a server that lists its tools for everybody, and wants a token for calls, with its authorization server.
func halfOpen(t *testing.T, o authtest.Options) (as *authtest.Server, resource string) {
	t.Helper()
	s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{})
	server.AddTool(s, protocol.Tool{Name: "echo"}, func(_ context.Context, in struct {
		Message string `json:"message"`
	}) (string, error) {
		return in.Message, nil
	})
	endpoint := streamable.NewHandler(s, streamable.HandlerOptions{})
	behind := httptest.NewUnstartedServer(nil)
	o.Resource, o.CallsOnly = "http://"+behind.Listener.Addr().String()+"/mcp", true
	as = authtest.Start(t, o)
	behind.Config.Handler = as.Protect(endpoint)
	behind.Start()
	t.Cleanup(func() {
		endpoint.Close(time.Second)
		behind.Close()
	})
	return as, o.Resource
}

// TestUpLogsUsersIn lets each user log in at a server, for himself. That outlives the gateway, in files that
// nobody else can read.
//
// Guarantees: G-0102.8, G-0102.13
func TestUpLogsUsersIn(t *testing.T) {
	_, resource := halfOpen(t, authtest.Options{})
	config := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", config)
	t.Setenv(connect.KeyringVariable, "off")
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(fmt.Sprintf(`{"mcpServers":{"one":{"url":%q,"bowline":{"login":"user"}}}}`, resource)), 0o600); err != nil {
		t.Fatal(err)
	}
	ada, bob := newUser(t, "token", "add", "ada"), newUser(t, "token", "add", "bob")
	up := startUp(t, path, "--auth", "tokens")
	call := func(token string) string {
		t.Helper()
		text, err := callWith(t, &streamable.Client{URL: up.url}, token)
		if failed := (*client.ToolError)(nil); err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		} else if err != nil {
			return failed.Error()
		}
		return text
	}
	_, rest, _ := strings.Cut(call(ada), "open ")
	page, _, _ := strings.Cut(rest, " ")
	if !strings.HasPrefix(page, strings.TrimSuffix(up.url, "/mcp")+"/login/") {
		t.Fatalf("the page is %q", page)
	}
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
		if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", method, response.Status, text)
		}
		response.Body.Close()
	}
	if text := call(ada); text != "hello" {
		t.Errorf("ada, who has logged in: %s", text)
	}
	if text := call(bob); !strings.Contains(text, "needs the login of this user") {
		t.Errorf("bob, who has not: %s", text)
	}
	up.end()
	up = startUp(t, path, "--auth", "tokens")
	defer up.end()
	if text := call(ada); text != "hello" {
		t.Errorf("ada, after a restart: %s", text)
	}
	bowline(t, "", "logout-user", "one", "token ada", "--file", path).want(t, 0, "", "")
	bowline(t, "", "logout-user", "one", "token ada", "--file", path).want(t, 4, "", "has no login at one")
	if text := call(ada); !strings.Contains(text, "needs the login of this user") {
		t.Errorf("ada, who was logged out: %s", text)
	}
	found := 0
	err = filepath.WalkDir(filepath.Join(config, "bowline", "logins"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if found++; err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil || found < 3 {
		t.Errorf("%d files, %v", found, err)
	}
}

// TestUpExchangesTokens has users with tokens of an issuer, which a server's tokens are exchanged for, and then users with tokens of the gateway, which go nowhere.
//
// Guarantees: G-0102.6, G-0102.9
func TestUpExchangesTokens(t *testing.T) {
	address := freeAddress(t)
	url := "http://" + address + "/mcp"
	as, resource := halfOpen(t, authtest.Options{Clients: []authtest.Client{{ID: "gateway", Secret: "S3CRET", Auth: "client_secret_basic"}}})
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv(connect.KeyringVariable, "off")
	t.Setenv("GATEWAY_SECRET", "S3CRET")
	path := filepath.Join(t.TempDir(), "mcp.json")
	write := func(who string) {
		text := fmt.Sprintf(`{"mcpServers":{"one":{"url":%q,"bowline":{"login":{"exchange":{"issuer":%q,"clientId":"gateway","clientSecret":"${GATEWAY_SECRET}"}}}}},
		"bowline":{"url":%q,"auth":{%s}}}`, resource, as.Issuer(), url, who)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`"issuers":["` + as.Issuer() + `"]`)
	claims := as.Claims("read")
	claims["aud"], claims["sub"] = url, "ada"
	up := startUpAt(t, path, address)
	if text, err := callWith(t, &streamable.Client{URL: up.url}, as.IssueClaims(claims)); text != "hello" {
		t.Errorf("%q, %v", text, err)
	}
	exchanges := len(as.Sink.Requests(authtest.Token))
	up.end()
	ada := newUser(t, "token", "add", "ada", "--file", filepath.Join(filepath.Dir(path), "tokens.json"))
	write(`"tokens":"tokens.json"`)
	up = startUpAt(t, path, address)
	defer up.end()
	if _, err := callWith(t, &streamable.Client{URL: up.url}, ada); err == nil || !strings.Contains(err.Error(), "no token of an issuer") || len(as.Sink.Requests(authtest.Token)) != exchanges || exchanges != 1 {
		t.Errorf("%v, %d exchanges before", err, exchanges)
	}
}

// TestUpAssertsUsers has a user with a token of an identity provider, which a server's authorization server trusts and does not share.
//
// Guarantees: G-0102.6, G-0102.12
func TestUpAssertsUsers(t *testing.T) {
	address := freeAddress(t)
	url := "http://" + address + "/mcp"
	known := []authtest.Client{{ID: "gateway", Secret: "S3CRET", Auth: "client_secret_basic"}}
	idp := authtest.Start(t, authtest.Options{Clients: known})
	as, resource := halfOpen(t, authtest.Options{Clients: known, Trusts: only(idp.Issuer(), idp.Keys)})
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv(connect.KeyringVariable, "off")
	t.Setenv("GATEWAY_SECRET", "S3CRET")
	path := filepath.Join(t.TempDir(), "mcp.json")
	text := fmt.Sprintf(`{"mcpServers":{"one":{"url":%q,"bowline":{"login":{"idjag":{"issuer":%q,"clientId":"gateway","clientSecret":"${GATEWAY_SECRET}",
		"provider":{"tokenEndpoint":%q,"clientId":"gateway","clientSecret":"${GATEWAY_SECRET}"}}}}}},
		"bowline":{"url":%q,"auth":{"issuers":[%q]}}}`, resource, as.Issuer(), idp.URL(authtest.Token), url, idp.Issuer())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	claims := idp.Claims("read")
	claims["aud"], claims["sub"] = url, "ada"
	ada := idp.IssueClaims(claims)
	up := startUpAt(t, path, address)
	defer up.end()
	if text, err := callWith(t, &streamable.Client{URL: up.url}, ada); text != "hello" {
		t.Errorf("%q, %v", text, err)
	}
	asserted, given := idp.Sink.Requests(authtest.Token), as.Sink.Requests(authtest.Token)
	if len(asserted) != 1 || len(given) != 1 || asserted[0].Form.Get("subject_token") != ada || strings.Contains(given[0].Form.Encode(), ada) {
		t.Errorf("%d assertions, %d tokens", len(asserted), len(given))
	}
}

// only is a map of one, whose type this module needs not import.
func only[K comparable, V any](key K, value V) map[K]V { return map[K]V{key: value} }

// TestWhereUsersLogIn has the addresses of a gateway, and its name in the file.
func TestWhereUsersLogIn(t *testing.T) {
	for _, c := range []struct{ listen, public, want string }{
		{"127.0.0.1:8080", "", "http://127.0.0.1:8080/login"},
		{"[::1]:8080", "", "http://[::1]:8080/login"},
		{"0.0.0.0:8080", "", ""},
		{"10.0.0.5:8080", "", ""},
		{"0.0.0.0:8080", "https://tools.example.com/mcp", "https://tools.example.com/login"},
		{"0.0.0.0:8080", "https://example.com/tools/mcp", "https://example.com/tools/login"},
		{"0.0.0.0:8080", "https://example.com", "https://example.com/login"},
	} {
		if got := (&access{public: c.public}).loginsAt(listening(c.listen)); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestWhoIsOnePerson has hosts, which are one person whatever their numbers are, and users, who are not.
func TestWhoIsOnePerson(t *testing.T) {
	of := personAt("")
	if first, second := of("host 1"), of("host 22"); first != second || first == of("token ada") || of("token ada") != "token ada" || of("") != "" {
		t.Errorf("%q and %q", first, second)
	}
	if personAt("one")("host 1") == personAt("two")("host 1") {
		t.Error("the hosts of two machines are one person")
	}
}

// listening is a listener that only has an address.
type listening string

func (l listening) Addr() net.Addr            { return l }
func (l listening) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (l listening) Close() error              { return nil }
func (l listening) Network() string           { return "tcp" }
func (l listening) String() string            { return string(l) }
