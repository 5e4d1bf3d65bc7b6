package command

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
)

// TestServedToThoseWithAToken runs the bundled server behind an authorization server.
func TestServedToThoseWithAToken(t *testing.T) {
	const public = "https://tools.example/mcp"
	as := authtest.Start(t, authtest.Options{Resource: public})
	url, interrupt := served(t, "--issuer", as.Issuer(), "--resource", public, "--scope", "write")
	token := func(scope string) string { return "Authorization: Bearer " + as.Issue("ada", scope) }
	o := bowline(t, "", "tools", "--url", url)
	o.want(t, process.ExitNoSession, "", "needs a login")
	bowline(t, "", "tools", "--url", url, "--header", token("read")).want(t, 0, "echo ", "")
	bowline(t, "", "call", "echo", "message=hello", "--url", url, "--header", token("read")).want(t, process.ExitCallFailed, "", "403")
	bowline(t, "", "call", "echo", "message=hello", "--url", url, "--header", token("write")).want(t, 0, "hello\n", "")
	stranger := authtest.Start(t, authtest.Options{Resource: public})
	bowline(t, "", "tools", "--url", url, "--header", "Authorization: Bearer "+stranger.Issue("ada", "write")).want(t, process.ExitNoSession, "", "401")

	response, err := http.Get(strings.TrimSuffix(url, "/mcp") + "/.well-known/oauth-protected-resource/mcp")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), public) || !strings.Contains(string(text), as.Issuer()) {
		t.Errorf("the metadata are %s, %v", text, err)
	}
	if status, rest := interrupt(); status != 0 || strings.Contains(rest, "ey") {
		t.Errorf("the server has ended with status %d: %s", status, rest)
	}
}

// TestLoginUnderAnotherName checks that a login says what the server calls itself, and how it was
// reached.
func TestLoginUnderAnotherName(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	public, _ := served(t, "--test-login")
	url := strings.Replace(public, "127.0.0.1", "localhost", 1)
	o := bowline(t, "", "login", "--url", url)
	o.want(t, process.ExitNoSession, "", "the server at "+url+" calls itself \""+public+"\", so log in to that")
}

// TestProtectionsThatCannotBe checks status 2 for invalid flags.
//
// Guarantees: G-0046.15
func TestProtectionsThatCannotBe(t *testing.T) {
	for _, flags := range [][]string{
		{"--stdio", "--issuer", "https://login.example"},
		{"--http", "127.0.0.1:0", "--scope", "read"},
		{"--stdio", "--test-login"},
		{"--http", "0.0.0.0:0", "--test-login"},
		{"--http", "[::]:0", "--test-login"},
		{"--http", "127.0.0.1:0", "--test-login", "--resource", "https://tools.example/mcp"},
		{"--http", "127.0.0.1:0", "--test-login", "--issuer", "https://login.example"},
		{"--http", "127.0.0.1:0", "--issuer", "http://login.example"},
		{"--http", "127.0.0.1:0", "--issuer", "https://login.example", "--resource", "tools.example"},
	} {
		bowline(t, "", append([]string{"serve"}, flags...)...).want(t, process.ExitUsage, "", "bowline: ")
	}
}

// TestLoginForTests logs in at the authorization server that --test-login adds, without a browser,
// and checks that web pages cannot use it.
//
// Guarantees: G-0046.15
func TestLoginForTests(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	url, interrupt := served(t, "--test-login", "--scope", "tools")
	issuer := strings.TrimSuffix(url, "/mcp") + loginPath
	call := []string{"call", "echo", "message=hello", "--url", url}
	bowline(t, "", call...).want(t, process.ExitNoSession, "", "bowline login --url '"+url+"'")
	bowline(t, "", "login", "--device", "--url", url).want(t, 0, "logged in at "+issuer+"\n", "")
	bowline(t, "", call...).want(t, 0, "hello\n", "")
	bowline(t, "", "auth", "status", "--url", url).want(t, 0, issuer, "")
	bowline(t, "", "logout", "--url", url).want(t, 0, "", "")
	bowline(t, "", call...).want(t, process.ExitNoSession, "", "bowline login")
	for host, origin := range map[string]string{"": "https://evil.example", "evil.example": ""} {
		r, err := http.NewRequest(http.MethodGet, issuer+"/jwks", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("host %q, origin %q: status %d, want 403", host, origin, response.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if status, rest := interrupt(); status != 0 || !strings.Contains(rest, "FOR TESTS ONLY") {
		t.Errorf("the server has ended with status %d: %s", status, rest)
	}
}

// TestLoginForTestsIsBounded checks that the authorization server, which keeps what it is sent,
// stops after a number of requests, and reads only the beginning of each.
//
// Guarantees: G-0046.15
func TestLoginForTestsIsBounded(t *testing.T) {
	read := 0
	handler := guardLogins("here", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if read = max(read, len(body)); err == nil && len(body) > largestLogin {
			t.Errorf("a request of %d bytes was read", len(body))
		}
	}))
	for n := range mostLogins + 1 {
		size, want := 0, http.StatusOK
		switch n {
		case 0:
			size = largestLogin + 1
		case mostLogins:
			want = http.StatusServiceUnavailable
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://here/", strings.NewReader(strings.Repeat("x", size))))
		if w.Code != want {
			t.Fatalf("request %d: status %d, want %d", n, w.Code, want)
		}
	}
	if read != largestLogin {
		t.Errorf("%d bytes were read, want %d", read, largestLogin)
	}
}
