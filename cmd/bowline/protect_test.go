package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/auth/authtest"
)

// TestServedToThoseWithAToken runs the bundled server behind an authorization server.
func TestServedToThoseWithAToken(t *testing.T) {
	const public = "https://tools.example/mcp"
	as := authtest.Start(t, authtest.Options{Resource: public})
	url, interrupt := served(t, "--issuer", as.Issuer(), "--resource", public, "--scope", "write")
	token := func(scope string) string { return "Authorization: Bearer " + as.Issue("ada", scope) }
	o := bowline(t, "", "tools", "--url", url)
	o.want(t, exitNoSession, "", "401")
	bowline(t, "", "tools", "--url", url, "--header", token("read")).want(t, 0, "echo ", "")
	bowline(t, "", "call", "echo", "message=hello", "--url", url, "--header", token("read")).want(t, exitCallFailed, "", "403")
	bowline(t, "", "call", "echo", "message=hello", "--url", url, "--header", token("write")).want(t, 0, "hello\n", "")
	stranger := authtest.Start(t, authtest.Options{Resource: public})
	bowline(t, "", "tools", "--url", url, "--header", "Authorization: Bearer "+stranger.Issue("ada", "write")).want(t, exitNoSession, "", "401")

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

// TestProtectionsThatCannotBe checks status 2 for invalid flags.
func TestProtectionsThatCannotBe(t *testing.T) {
	for _, flags := range [][]string{
		{"--stdio", "--issuer", "https://login.example"},
		{"--http", "127.0.0.1:0", "--scope", "read"},
		{"--http", "127.0.0.1:0", "--issuer", "http://login.example"},
		{"--http", "127.0.0.1:0", "--issuer", "https://login.example", "--resource", "tools.example"},
	} {
		bowline(t, "", append([]string{"serve"}, flags...)...).want(t, exitUsage, "", "bowline: ")
	}
}
