package command

import (
	"bufio"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// served runs `bowline serve --http` during a test. It returns the URL and a function
// that ends the server.
func served(t *testing.T, more ...string) (url string, interrupt func() (status int, rest string)) {
	t.Helper()
	cmd := command(t, append([]string{"serve", "--http", "127.0.0.1:0"}, more...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	first, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("the server printed %q: %v", first, err)
	}
	ended := false
	interrupt = func() (int, string) {
		ended = true
		cmd.Process.Signal(os.Interrupt)
		rest := new(strings.Builder)
		if _, err := lines.WriteTo(rest); err != nil {
			t.Error(err)
		}
		return exitStatus(t, cmd.Wait()), rest.String()
	}
	t.Cleanup(func() {
		if !ended {
			interrupt()
		}
	})
	_, url, _ = strings.Cut(strings.TrimSpace(first), "serving ")
	return url, interrupt
}

// The bundled tools over HTTP are the same as over stdio, and the server shuts down
// properly.
func TestServedOverHTTP(t *testing.T) {
	url, interrupt := served(t)
	bowline(t, "", "tools", "--url", url).want(t, 0, "echo ", "")
	bowline(t, "", "call", "echo", "message=hello", "--url", url).want(t, 0, "hello\n", "")
	bowline(t, "", "call", "add", "a=1", "b=2", "--json", "--url", url).want(t, 0, `"sum": 3`, "")
	bowline(t, "", "call", "slow", "seconds=0.05", "--url", url).want(t, 0, "took 50ms", "progress: ")
	bowline(t, "", "call", "fail", "message=leak", "--url", url).want(t, process.ExitToolFailed, "", "leak")
	bowline(t, "", "call", "slow", "seconds=60", "--timeout", "50ms", "--url", url).want(t, process.ExitCallFailed, "", "The server may have executed the request.")
	path := writeConfig(t, "mcp.json", `{"mcpServers": {"far": {"url": "`+url+`"}}}`)
	bowline(t, "", "call", "echo", "message=hello", "--mcp-config", path).want(t, 0, "hello\n", "")
	if status, rest := interrupt(); status != 0 || strings.Contains(rest, "error") {
		t.Errorf("the server has ended with status %d: %s", status, rest)
	}
}

// Headers reach the server. Those of flags take precedence over those of the file.
func TestHeadersAreSent(t *testing.T) {
	seen := make(chan http.Header, 10)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case seen <- r.Header.Clone():
		default: // the first is enough
		}
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer site.Close()
	path := writeConfig(t, "mcp.json", `{"mcpServers": {"far": {"url": "`+site.URL+`", "headers": {"Authorization": "of the file", "X-Team": "knots"}}}}`)
	o := bowline(t, "", "tools", "--mcp-config", path, "--header", "authorization: Bearer of the flag")
	o.want(t, process.ExitNoSession, "", "HTTP status 401")
	o.want(t, process.ExitNoSession, "", connect.AdviceRefresh)
	header := testenv.Receive(t, seen, "the server is asked")
	if header.Get("Authorization") != "Bearer of the flag" || header.Get("X-Team") != "knots" {
		t.Errorf("the server saw %v", header)
	}
	if strings.Contains(o.stderr, "of the flag") {
		t.Error("the secret is in the message")
	}
}

// TestNoSessionOverHTTP checks status 3, and a message with the reason and advice.
func TestNoSessionOverHTTP(t *testing.T) {
	site := httptest.NewServer(http.NotFoundHandler())
	o := bowline(t, "", "tools", "--url", site.URL)
	o.want(t, process.ExitNoSession, "", "HTTP status 404")
	o.want(t, process.ExitNoSession, "", connect.AdviceEndpoint)
	site.Close()
	o = bowline(t, "", "tools", "--url", site.URL)
	o.want(t, process.ExitNoSession, "", fmt.Sprintf("bowline: %q is unreachable: connection refused (%s)\n", site.URL, site.Listener.Addr()))
	o = bowline(t, "", "tools", "--url", strings.Replace(site.URL, "://", "://user:HUNTER2@", 1)+"/mcp?key=SECRET")
	if o.want(t, process.ExitNoSession, "", "/mcp"); strings.Contains(o.stderr, "HUNTER2") || strings.Contains(o.stderr, "SECRET") {
		t.Errorf("secrets are printed: %s", o.stderr)
	}
	o.want(t, process.ExitNoSession, "", connect.AdviceRemote)
}

// TestHTTPSSE checks that a server of 2024-11-05 is recognized by its type in the file or by its
// response.
//
// Guarantees: G-0034.9
func TestHTTPSSE(t *testing.T) {
	library := server.New(protocol.Implementation{Name: "old", Version: "1"}, server.Options{})
	handler := sse.NewHandler(library, sse.HandlerOptions{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/sse":
			http.NotFound(w, r)
		case r.Header.Get("Authorization") != "Bearer mine":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			handler.ServeHTTP(w, r)
		}
	}))
	defer func() {
		if err := errors.Join(library.Close(t.Context()), handler.Close(0)); err != nil {
			t.Error(err)
		}
		site.Close()
	}()
	const header = "Authorization: Bearer mine"
	bowline(t, "", "inspect", "--url", site.URL+"/sse", "--header", header).want(t, 0, "old 1", "")
	config := func(path string) string {
		return writeConfig(t, "mcp.json", `{"servers": {"a": {"type": "sse", "url": "`+site.URL+path+`"}}}`)
	}
	bowline(t, "", "inspect", "--mcp-config", config("/sse"), "--header", header).want(t, 0, "old 1", "")
	for path, want := range map[string][]string{
		"/sse":   {"needs a login", connect.AdviceAccess},
		"/other": {"refused the session", "HTTP status 404", connect.AdviceEndpoint},
	} {
		o := bowline(t, "", "inspect", "--mcp-config", config(path))
		for _, fragment := range want {
			o.want(t, process.ExitNoSession, "", fragment)
		}
	}
}

// TestCertificates checks that an untrusted certificate is refused with advice.
func TestCertificates(t *testing.T) {
	library := server.New(protocol.Implementation{Name: "safe", Version: "1"}, server.Options{})
	handler := streamable.NewHandler(library, streamable.HandlerOptions{})
	site := httptest.NewUnstartedServer(handler)
	site.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	site.StartTLS()
	defer func() {
		if err := errors.Join(library.Close(t.Context()), handler.Close(0)); err != nil {
			t.Error(err)
		}
		site.Close()
	}()
	authority := filepath.Join(t.TempDir(), "authority.pem")
	write(t, authority, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: site.Certificate().Raw})))
	o := bowline(t, "", "inspect", "--url", site.URL)
	o.want(t, process.ExitNoSession, "", "cannot be reached")
	o.want(t, process.ExitNoSession, "", connect.AdviceTrust)
	bowline(t, "", "inspect", "--url", site.URL, "--cacert", authority).want(t, 0, "safe 1", "")
	bowline(t, "", "inspect", "--url", site.URL, "--insecure").want(t, 0, "safe 1", "")
}

// TestAnswersThatAreNotMCP checks the advice for responses that are not MCP.
func TestAnswersThatAreNotMCP(t *testing.T) {
	for body, want := range map[string][]string{
		`{"hello": "world"}`: {"sent something else than the answer", "sent answers that are not JSON-RPC", connect.AdviceEndpoint},
		`{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "no"}}`: {"sent something else than the answer", connect.AdviceEndpoint},
		"<html>":      {"HTTP status 200", connect.AdviceEndpoint},
		"unavailable": {"HTTP status 503", connect.AdviceFailing},
		"busy":        {"HTTP status 429", "Try again in 7s."},
	} {
		site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			switch {
			case body == "unavailable":
				w.WriteHeader(http.StatusServiceUnavailable)
			case body == "busy":
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusTooManyRequests)
			case body[0] == '{':
				w.Header().Set("Content-Type", "application/json")
			}
			fmt.Fprint(w, body)
		}))
		o := bowline(t, "", "tools", "--url", site.URL)
		for _, fragment := range want {
			o.want(t, process.ExitNoSession, "", fragment)
		}
		site.Close()
	}
}

// TestErrorsDoNotRepeatCredentials checks that credentials are hidden if the server sends them
// back.
func TestErrorsDoNotRepeatCredentials(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"echo": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "not you: "+r.Header.Get("Authorization")+" "+r.URL.RawQuery, http.StatusUnauthorized)
		},
		"failure": func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "oops: "+r.URL.String(), http.StatusInternalServerError)
		},
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.test/?"+r.URL.RawQuery, http.StatusFound)
		},
		"error": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":%q}}`, r.URL.String())
		},
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			site := httptest.NewServer(answer)
			defer site.Close()
			address := strings.Replace(site.URL, "://", "://ada:HUNTER2@", 1) + "/mcp?key=S3CR%20T"
			o := bowline(t, "", "tools", "--init-timeout", "5s", "--url", address, "--header", "Authorization: Bearer T0KEN")
			o.want(t, process.ExitNoSession, "", "bowline: ")
			for _, secret := range []string{"HUNTER2", "S3CR", "T0KEN"} {
				if strings.Contains(o.stderr, secret) {
					t.Errorf("%s is printed:\n%s", secret, o.stderr)
				}
			}
		})
	}
}
