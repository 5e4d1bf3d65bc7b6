//go:build unix

package command

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/google/go-cmp/cmp"
)

// callWith calls a tool of one as a client with a token.
func callWith(t *testing.T, to *streamable.Client, token string) (string, error) {
	t.Helper()
	to.Header = http.Header{"Authorization": {"Bearer " + token}}
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{FailFast: true}).Connect(t.Context(), to)
	if err != nil {
		return "", err
	}
	defer session.Close(context.Background())
	return client.Call[string](t.Context(), session, "one__echo", map[string]string{"message": "hello"})
}

// freeAddress returns an address of this machine that nobody listens on, for what has to know its own URL before it starts.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// newUser makes a token.
func newUser(t *testing.T, args ...string) (token string) {
	t.Helper()
	made := bowline(t, "", args...)
	made.want(t, 0, "bowline_", "")
	return strings.TrimSpace(made.stdout)
}

// TestUpWithTokens gives users tokens while a gateway runs, and takes one away again.
//
// Guarantees: G-0097.5, G-0095.6
func TestUpWithTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one")
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	bowline(t, "", "up", path, "--auth", "tokens").want(t, 2, "", "bowline token add NAME makes it")
	named := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(named, []byte(`{"mcpServers": {}, "bowline": {"auth": {"tokens": "t.json"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	bowline(t, "", "up", named).want(t, 2, "", "bowline token add NAME --file '"+filepath.Join(filepath.Dir(named), "t.json")+"' makes it")
	ada := newUser(t, "token", "add", "ada")
	bowline(t, "", "token", "add", "ada").want(t, 2, "", "revoke it first")
	bowline(t, "", "token", "add", "a b").want(t, 2, "", "a name has")
	bowline(t, "", "token", "add").want(t, 2, "", "name one user")
	bowline(t, "", "token", "add", "x", "--expires", "-1h").want(t, 2, "", "has passed already")
	up := startUp(t, path, "--auth", "tokens")
	defer up.end()
	if text, err := callWith(t, &streamable.Client{URL: up.url}, ada); !strings.Contains(text, "hello") {
		t.Errorf("%q, %v", text, err)
	}
	for _, token := range []string{"", "wrong", ada + "x"} {
		if _, err := callWith(t, &streamable.Client{URL: up.url}, token); err == nil {
			t.Errorf("with the token %q a client is served", token)
		}
	}
	bob := newUser(t, "token", "add", "bob", "--expires", "1h")
	bowline(t, "", "token", "revoke", "ada").want(t, 0, "", "")
	bowline(t, "", "token", "revoke", "ada").want(t, 2, "", "no token of that name")
	listed := bowline(t, "", "token", "list")
	listed.want(t, 0, "bob", "")
	if strings.Contains(listed.stdout, "ada") || strings.Contains(listed.stdout, bob) {
		t.Error(listed.stdout)
	}
	for began := time.Now(); ; {
		_, adas := callWith(t, &streamable.Client{URL: up.url}, ada)
		_, bobs := callWith(t, &streamable.Client{URL: up.url}, bob)
		if adas != nil && bobs == nil {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("after the change: %v, %v", adas, bobs)
		}
	}
	bowline(t, "", "ps", "--file", path).want(t, 0, "2 connections of clients", "") // with logins, each user has one
}

// startAudited starts a gateway in folders of its own, with a trail and with one user, ada, whose token it returns.
func startAudited(t *testing.T) (up *guarded, path, trail, ada string) {
	t.Helper()
	dir := t.TempDir()
	path, trail = filepath.Join(dir, "mcp.json"), filepath.Join(dir, "audit.jsonl")
	mcpFile(t, path, "one")
	addBlock(t, path, `{"audit": {"file": "audit.jsonl", "sync": true}}`)
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	ada = newUser(t, "token", "add", "ada")
	up = &guarded{upRun: startUp(t, path, "--auth", "tokens")}
	t.Cleanup(up.end)
	return up, path, trail, ada
}

// A forgery is a request that must be refused for its token.
type forgery struct {
	name, query string
	lines       []string // headers
	status      int      // 0: 401
	why         string   // as the record says
}

// refusesEach sends each of them. It is refused, one more is counted, by status, and there is one record more, of who has sent it, and why it was refused.
func (g *guarded) refusesEach(t *testing.T, path, trail string, all []forgery) {
	t.Helper()
	counted := make(map[int]uint64)
	for i, f := range all {
		want := f.status
		if want == 0 {
			want = http.StatusUnauthorized
		}
		counted[want]++
		if status := g.status(f.query, f.lines...); status != want {
			t.Errorf("%s: %d, want %d", f.name, status, want)
		}
		if diff := cmp.Diff(counted, reportOf(t, path).Denied); diff != "" {
			t.Errorf("after %s, the report counts others as denied (-want +got):\n%s", f.name, diff)
		}
		var records []audit.Record
		for line := range strings.Lines(bowline(t, "", "audit", trail, "--json").stdout) {
			var r audit.Record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			if r.Outcome == string(server.OutcomeDenied) {
				records = append(records, r)
			}
		}
		if len(records) != i+1 {
			t.Errorf("after %s there are %d records of what was denied, want %d", f.name, len(records), i+1)
			continue
		}
		if r := records[i]; r.Status != want || r.Principal != "" || !strings.HasPrefix(r.Address, "127.0.0.1:") || !strings.Contains(r.Reason, f.why) {
			t.Errorf("%s: the record is %+v, want why: %s", f.name, r, f.why)
		}
	}
	want := "requests denied: " + fmt.Sprintf("%d with status 400, %d with status 401\n", counted[http.StatusBadRequest], counted[http.StatusUnauthorized])
	bowline(t, "", "ps", "--file", path).want(t, 0, want, "")
}

// TestForgedTokensOfUsers shows a gateway tokens that it has not made. Each is refused, counted, and has its record.
//
// Guarantees: G-0097.1, G-0097.11
func TestForgedTokensOfUsers(t *testing.T) {
	up, path, trail, ada := startAudited(t)
	bob := newUser(t, "token", "add", "bob")
	if status := up.status("", "Authorization: Bearer "+ada); status != http.StatusOK {
		t.Errorf("ada: %d", status)
	}
	bearer := func(token string) []string { return []string{"Authorization: Bearer " + token} }
	const none, unknown = "a token is needed", "the token is unknown, revoked or expired"
	up.refusesEach(t, path, trail, []forgery{
		{name: "none", why: none}, {name: "of another scheme", lines: []string{"Authorization: Basic " + ada}, why: none}, {name: "in a cookie", lines: []string{"Cookie: token=" + ada}, why: none},
		{name: "in the URL", query: "?access_token=" + ada, why: none},
		{name: "cut", lines: bearer(ada[:len(ada)-1]), why: unknown}, {name: "longer", lines: bearer(ada + "A"), why: unknown}, {name: "the name", lines: bearer("ada"), why: unknown},
		{name: "two users", lines: bearer(ada + " " + bob), why: unknown}, {name: "very long", lines: bearer(strings.Repeat(ada, 100)), why: none},
		{name: "1 MiB", lines: bearer(strings.Repeat("a", 1<<20)), why: none}, {name: "of a web token", lines: bearer("eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ."), why: unknown},
		{name: "two headers", lines: append(bearer(ada), bearer(ada)...), status: http.StatusBadRequest, why: "given more than once"},
	})
	all := bowline(t, "", "audit", trail, "--json")
	if strings.Contains(all.stdout, strings.TrimPrefix(ada, "bowline_")) {
		t.Error("a token is in the trail")
	}
}

// TestUpBeyondThisMachine serves other machines only with logins and TLS, or when somebody has said that this is meant.
//
// Guarantees: G-0097.6
func TestUpBeyondThisMachine(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "mcp.json")
	mcpFile(t, path, "one")
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	ada := newUser(t, "token", "add", "ada")
	refused := func(fragment string, flags ...string) {
		t.Helper()
		bowline(t, "", append([]string{"up", path, "--http", "0.0.0.0:0", "--admin", "off"}, flags...)...).want(t, 2, "", fragment)
	}
	refused("there are no logins")
	refused("there are no logins", "--auth", "none")
	refused("tokens would be sent in clear", "--auth", "tokens")
	refused("there are only none, tokens and oauth", "--auth", "magic")
	refused("auth.issuers", "--auth", "oauth")
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	refused("need each other", "--tls-cert", cert)
	refused("no such file", "--tls-cert", cert, "--tls-key", key)
	first := writeCertificate(t, cert, key)
	refused("there are no logins", "--tls-cert", cert, "--tls-key", key)
	up := startUpAt(t, path, "0.0.0.0:0", "--auth", "tokens", "--tls-cert", cert, "--tls-key", key)
	defer up.end()
	_, port, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(up.url, "https://"), "/mcp"))
	if err != nil || !strings.HasPrefix(up.url, "https://") {
		t.Fatal(up.url, err)
	}
	over := func(roots *x509.CertPool) *streamable.Client {
		to := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}
		return &streamable.Client{URL: "https://127.0.0.1:" + port + "/mcp", HTTP: &http.Client{Transport: to}}
	}
	if text, err := callWith(t, over(first), ada); !strings.Contains(text, "hello") {
		t.Errorf("%q, %v", text, err)
	}
}

// Each message that cannot be read, or is no request that could be, is answered with an error and has one record: who has sent it, that it is invalid, and nothing that it says.
//
// Guarantees: G-0099.7
func TestMalformedMessagesHaveRecords(t *testing.T) {
	up, _, trail, ada := startAudited(t)
	malformed := []string{
		``, `{`, `nonsense s3cret`, `"s3cret"`, `[]`, `{"jsonrpc":"1.0","id":1,"method":"tools/call","params":{"name":"s3cret"}}`, `{"jsonrpc":"2.0","id":{},"method":"tools/call"}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"s3cret"}`, `{"jsonrpc":"2.0","id":1,"method":7}`, strings.Repeat("[", 10000), "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}",
	}
	for i, body := range malformed {
		status := up.post("", body, "Authorization: Bearer "+ada)
		if status < 400 || status >= 500 {
			t.Errorf("%q: %d", body, status)
		}
		all := bowline(t, "", "audit", trail, "--json", "--user", "token ada")
		if records := strings.Count(all.stdout, `"outcome":"invalid"`); records != i+1 {
			t.Errorf("after %q there are %d records of what is invalid, want %d:\n%s", body, records, i+1, all.stdout)
		}
		if strings.Contains(all.stdout, "nonsense") || strings.Contains(all.stdout, "bowline_") {
			t.Errorf("what was sent is in the trail:\n%s", all.stdout)
		}
	}
}

// ownAddress returns an address of this machine that is no loopback address; "": it has none, as without a network.
func ownAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if of, ok := a.(*net.IPNet); ok && of.IP.To4() != nil && of.IP.IsGlobalUnicast() {
			return of.IP.String()
		}
	}
	return ""
}

// TestWhoMaySendTokensInClear starts gateways without TLS on all addresses. Requests from this machine and from a trusted proxy are served; all others are refused before
// their token is looked at, and so are browsers at the pages for logins; each is counted and has a record. With --insecure, nobody is.
//
// Guarantees: G-0097.6, G-0097.11, G-0097.12, G-0099.19
func TestWhoMaySendTokensInClear(t *testing.T) {
	own, name := ownAddress(t), "localhost"
	if own != "" {
		name = own
	}
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	ada := newUser(t, "token", "add", "ada")
	good, forged := "Authorization: Bearer "+ada, "Authorization: Bearer "+ada+"x"
	for _, c := range []struct {
		proxies      string
		flags        []string
		good, forged int // from the own address
	}{
		{`"127.0.0.0/8"`, []string{"--auth", "tokens"}, 403, 403},
		{`"10.0.0.0/8"`, []string{"--auth", "tokens"}, 403, 403},
		{`"10.0.0.0/8", "` + own + `"`, []string{"--auth", "tokens"}, 200, 401},
		{``, []string{"--auth", "tokens", "--insecure"}, 200, 401},
		{`"10.0.0.0/8"`, []string{"--auth", "tokens", "--insecure"}, 200, 401},
		{``, []string{"--insecure"}, 200, 200},
	} {
		if strings.HasPrefix(own, "10.") {
			c.proxies = strings.ReplaceAll(c.proxies, "10.0.0.0/8", "172.16.0.0/12")
		}
		path := filepath.Join(t.TempDir(), "mcp.json")
		mcpFile(t, path, "one")
		addBlock(t, path, `{"url": "http://`+name+`/mcp", "trustedProxies": [`+c.proxies+`], "audit": {"file": "audit.jsonl", "sync": true}}`)
		up := &guarded{upRun: startUpAt(t, path, "0.0.0.0:0", c.flags...)}
		at, err := url.Parse(up.url)
		if err != nil {
			t.Fatal(err)
		}
		up.url = "http://127.0.0.1:" + at.Port() + "/mcp"
		if here := up.status("", good); here != http.StatusOK {
			t.Errorf("%s, %q: from this machine: %d", c.proxies, c.flags, here)
		}
		if own == "" {
			t.Log("this machine has loopback addresses only, so nobody else could reach it")
			up.end()
			continue
		}
		up.url = "http://" + own + ":" + at.Port() + "/mcp"
		page, err := http.Get("http://" + own + ":" + at.Port() + "/login/s3cret")
		if err != nil {
			t.Fatal(err)
		}
		page.Body.Close()
		if refused := reportOf(t, path).PagesRefused; (page.StatusCode == http.StatusForbidden) != (c.good == 403) || refused != 1 {
			t.Errorf("%s, %q: the pages for logins answer %d, and %d requests are counted there", c.proxies, c.flags, page.StatusCode, refused)
		}
		forwarded := up.status("", forged, "X-Forwarded-For: 127.0.0.1")
		if status := up.status("", good); status != c.good || forwarded != c.forged {
			t.Errorf("%s, %q: a token gets %d, want %d, and a forged one %d, want %d", c.proxies, c.flags, status, c.good, forwarded, c.forged)
		}
		if denied := reportOf(t, path).Denied[http.StatusForbidden]; c.good == 403 && denied != 2 || c.good == 200 && denied != 0 {
			t.Errorf("%s, %q: %d are counted as refused in clear", c.proxies, c.flags, denied)
		}
		up.end()
		want := map[string]int{}
		if c.good == 403 {
			want = map[string]int{"": 2, "login page": 1}
		}
		if diff := cmp.Diff(want, refusedIn(t, filepath.Join(filepath.Dir(path), "audit.jsonl"), own, ada, "s3cret")); diff != "" {
			t.Errorf("%s, %q: records of what was refused in clear (-want +got):\n%s", c.proxies, c.flags, diff)
		}
	}
}

// refusedIn counts the records of a trail with status 403 and this address, by their event. Secrets are not in it.
func refusedIn(t *testing.T, path, from string, secrets ...string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets {
		if strings.Contains(string(text), secret) {
			t.Errorf("%q is in the trail", secret)
		}
	}
	counted := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var r audit.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Status == http.StatusForbidden && r.Outcome == "denied" && strings.HasPrefix(r.Address, from+":") {
			counted[r.Event]++
		}
	}
	return counted
}

// TestExposed asks about the sockets from which requests come.
//
// Guarantees: G-0097.12
func TestExposed(t *testing.T) {
	listening := func(insecure bool, proxies ...string) *access {
		a := &access{auth: authTokens}
		for _, p := range proxies {
			a.options.TrustedProxies = append(a.options.TrustedProxies, netip.MustParsePrefix(p))
		}
		a.options.Check = func(*http.Request) (streamable.Caller, *streamable.Denial) {
			return nil, &streamable.Denial{Status: http.StatusTeapot}
		}
		listener, err := a.listen("127.0.0.1:0", insecure)
		if err != nil {
			t.Fatal(err)
		}
		listener.Close()
		return a
	}
	for _, c := range []struct {
		of     *access
		from   string
		secure bool
		want   int // 418: the token is looked at
	}{
		{listening(false, "10.0.0.0/8"), "10.9.8.7:1", false, 418}, {listening(false, "10.0.0.0/8"), "11.9.8.7:1", false, 403}, {listening(false, "10.0.0.0/8"), "11.9.8.7:1", true, 418},
		{listening(false, "10.0.0.0/8"), "127.0.0.1:1", false, 418}, {listening(false, "10.0.0.0/8"), "[::1]:1", false, 418}, {listening(false, "10.0.0.0/8"), "[::ffff:127.0.0.1]:1", false, 418},
		{listening(false, "127.0.0.0/8"), "192.168.1.2:1", false, 403}, {listening(false, "10.0.0.0/8"), "[2001:db8::1]:1", false, 403}, {listening(false, "2001:db8::/32"), "[2001:db8::1]:1", false, 418},
		{listening(false, "10.0.0.0/8"), "", false, 403}, {listening(true), "11.9.8.7:1", false, 418},
	} {
		r := httptest.NewRequest("POST", "http://gateway/mcp", nil)
		if r.RemoteAddr = c.from; c.secure {
			r.TLS = new(tls.ConnectionState)
		}
		r.Header.Set("X-Forwarded-For", "127.0.0.1")
		if _, denied := c.of.guarded().Check(r); denied.Status != c.want {
			t.Errorf("%q, with TLS %t: %d %s, want %d", c.from, c.secure, denied.Status, denied.Text, c.want)
		}
		w := httptest.NewRecorder()
		c.of.guardPages(http.NotFoundHandler(), nil).ServeHTTP(w, r)
		if refused := c.want == http.StatusForbidden; refused != (w.Code == http.StatusForbidden) || refused && !strings.Contains(w.Body.String(), "use https") {
			t.Errorf("%q, with TLS %t: the pages for logins answer %d", c.from, c.secure, w.Code)
		}
	}
}

// TestUpWithOAuth accepts the tokens of the issuer that the file names, for the URL that it has, and tells clients where to get one.
//
// Guarantees: G-0097.7
func TestUpWithOAuth(t *testing.T) {
	address := freeAddress(t)
	url := "http://" + address + "/mcp"
	as := authtest.Start(t, authtest.Options{Resource: url})
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block := `, "bowline": {"url": "` + url + `", "auth": {"issuers": ["` + as.Issuer() + `"]}}}`
	if err := os.WriteFile(path, append(text[:len(text)-1], block...), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	up := startUpAt(t, path, address)
	defer up.end()
	response, err := http.Post(up.url, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if challenge := response.Header.Get("Www-Authenticate"); response.StatusCode != http.StatusUnauthorized || !strings.Contains(challenge, "resource_metadata") {
		t.Errorf("%s, %q", response.Status, challenge)
	}
	if text, err := callWith(t, &streamable.Client{URL: up.url}, as.Issue("ada", "read")); !strings.Contains(text, "hello") {
		t.Errorf("%q, %v", text, err)
	}
}

// TestAuditTrailOfAGateway kills a gateway with a trail in the middle of its work, and reads and verifies what it has left.
//
// Guarantees: G-0099.9
func TestAuditTrailOfAGateway(t *testing.T) {
	dir := t.TempDir()
	path, trail := filepath.Join(dir, "mcp.json"), filepath.Join(dir, "audit.jsonl")
	mcpFile(t, path, "one")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text[:len(text)-1], `, "bowline": {"audit": {"file": "audit.jsonl", "sync": true}}}`...), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	bowline(t, "", "audit", trail, "--verify").want(t, 2, "", "the key of the trail")
	ada := newUser(t, "token", "add", "ada")
	up := startUp(t, path, "--auth", "tokens")
	const calls = 5
	for range calls {
		if _, err := callWith(t, &streamable.Client{URL: up.url}, ada); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := callWith(t, &streamable.Client{URL: up.url}, "wr0ng"); err == nil {
		t.Error("a wrong token was accepted")
	}
	if err := up.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = up.cmd.Wait()
	startUp(t, path, "--auth", "tokens").end()
	bowline(t, "", "audit", trail, "--verify").want(t, 0, "1 gateways were killed", "")
	printed := bowline(t, "", "audit", trail, "--user", "token ada", "--server", "one")
	if n := strings.Count(printed.stdout, "tools/call  one__echo  one  answered"); printed.status != 0 || n != calls {
		t.Errorf("%d calls are in\n%s%s", n, printed.stdout, printed.stderr)
	}
	all := bowline(t, "", "audit", trail, "--json")
	all.want(t, 0, `"outcome":"denied"`, "")
	for _, secret := range []string{ada, "wr0ng", "hello"} {
		if strings.Contains(all.stdout, secret) {
			t.Errorf("%q is in the trail", secret)
		}
	}
	written, err := os.ReadFile(trail)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(trail, []byte(strings.Replace(string(written), "token ada", "token eve", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	bowline(t, "", "audit", trail, "--verify").want(t, 1, "", "it was changed, or written by somebody without the key")
	bowline(t, "", "up", path, "--http", ":0").want(t, 2, "", "it was changed")
}

// Without a file, the command asks the running gateway where its trail is, and where the key, which the file of the gateway may name. A wrong token that was shown at its page
// is in that trail.
//
// Guarantees: G-0099.9, G-0099.18
func TestTheTrailOfARunningGateway(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", shortFolder(t))
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	path := filepath.Join(t.TempDir(), "mcp.json")
	mcpFile(t, path, "one")
	up := startUp(t, path)
	bowline(t, "", "audit", "--file", path).want(t, 2, "", "the gateway has no audit trail")
	up.end()
	addBlock(t, path, `{"audit": {"file": "audit.jsonl", "key": "trail.key", "sync": true}}`)
	up = startUp(t, path)
	defer up.end()
	if text, err := callWith(t, &streamable.Client{URL: up.url}, ""); err != nil || text != "hello" {
		t.Fatalf("%q, %v", text, err)
	}
	bowline(t, "", "audit", "--file", path).want(t, 0, "one__echo", "")
	page := &guarded{upRun: &upRun{t: t, url: up.page}}
	if status := page.status("v1/reload", "Authorization: Bearer wr0ng"); status != http.StatusUnauthorized {
		t.Errorf("with a wrong token the page answers %d", status)
	}
	bowline(t, "", "audit", "--file", path).want(t, 0, "admin door  POST /v1/reload  -  denied  0.0 ms  a wrong token", "")
	bowline(t, "", "audit", "--file", path, "--verify").want(t, 0, "whole: records 1 to ", "")
	if info, err := os.Stat(filepath.Join(filepath.Dir(path), "trail.key")); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the key: %v, %v", info, err)
	}
	bowline(t, "", "audit", filepath.Join(filepath.Dir(path), "audit.jsonl"), "--verify").want(t, 2, "", "the key of the trail")
}
