//go:build npm

package peers

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// serveTypeScriptExample runs the server of the TypeScript SDK's examples, protected by
// the authorization server of its examples, until the end of the test.
func serveTypeScriptExample(t *testing.T) (address string) {
	t.Helper()
	if err := typeScriptV1.install(); err != nil {
		t.Fatal(err)
	}
	ports := make([]string, 2)
	for i := range ports {
		var err error
		if ports[i], err = freePort(); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command("node", typeScriptV1.path("dist/esm/examples/server/simpleStreamableHttp.js"), "--oauth", "--oauth-strict")
	command.Env = append(os.Environ(), "MCP_PORT="+ports[0], "MCP_AUTH_PORT="+ports[1])
	command.Stderr = t.Output()
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines, ready := bufio.NewScanner(stdout), 0
	for ready < 2 && lines.Scan() {
		if strings.Contains(lines.Text(), "listening on port") {
			ready++
		}
	}
	read := make(chan struct{})
	go func() { // it says what it does
		defer close(read)
		for lines.Scan() {
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-read
		_ = command.Wait() // it was killed
	})
	if ready < 2 {
		t.Fatal("the example does not listen")
	}
	return "http://localhost:" + ports[0] + "/mcp"
}

// TestWeLogInToATypeScriptServer checks that Bowline's client finds the SDK's own authorization
// server, registers there, logs in and calls a tool. A call without a login is refused.
func TestWeLogInToATypeScriptServer(t *testing.T) {
	address := serveTypeScriptExample(t)
	defer http.DefaultClient.CloseIdleConnections()
	asked := 0
	login := auth.New(auth.Options{Interact: func(ctx context.Context, i auth.Interaction) (*url.URL, error) {
		asked++
		return authtest.Consent(ctx, i.Start)
	}})
	defer login.Close()
	c := client.New(protocol.Implementation{Name: "bowline", Version: "1"}, client.Options{FailFast: true})
	defer c.Close(context.Background())
	if _, err := c.Connect(t.Context(), &streamable.Client{URL: address}); err == nil {
		t.Error("the server answers a call without a login")
	}
	session, err := c.Connect(t.Context(), &streamable.Client{URL: address, Authorizer: login})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := client.Call[string](t.Context(), session, "greet", map[string]string{"name": "Ada"})
		if err != nil || got != "Hello, Ada!" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if entry, err := login.Status(t.Context()); err != nil || asked != 1 || len(entry.Scopes) != 1 || entry.Scopes[0] != "mcp:tools" {
		t.Errorf("%d logins, the entry is %+v, %v", asked, entry, err)
	}
}

// TestTypeScriptLogsInToOurServer does what TestGoSDKLogsInToOurServer does, with both generations of
// the TypeScript SDK.
func TestTypeScriptLogsInToOurServer(t *testing.T) {
	for _, sdk := range []npmPackage{typeScriptV1, typeScriptClientV2} {
		t.Run(sdk.short, func(t *testing.T) {
			if err := sdk.install(); err != nil {
				t.Fatal(err)
			}
			address, _ := protect(t)
			got := typeScriptLogin(t, sdk, address, authtest.Visit, `{"name": "whoami", "arguments": {}}`, `{"name": "change", "arguments": {}}`)
			if want := []string{`["change","whoami"]`, `"user"`, `"changed by user"`}; !slices.Equal(got, want) {
				t.Errorf("%q", got)
			}
		})
	}
}

// typeScriptLogin runs login.mjs, and returns the lines of its answers.
func typeScriptLogin(t *testing.T, sdk npmPackage, address string, visit browser, calls ...string) (answers []string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "node", append([]string{"login.mjs", sdk.folder(), sdk.name, address}, calls...)...)
	command.Stderr = t.Output()
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		page, asks := strings.CutPrefix(lines.Text(), "open ")
		if !asks {
			answers = append(answers, lines.Text())
			continue
		}
		back, err := visit(t.Context(), page)
		if err == nil {
			_, err = fmt.Fprintln(in, back)
		}
		if err != nil {
			t.Error(err)
			in.Close()
		}
	}
	if err := command.Wait(); err != nil {
		t.Errorf("login.mjs: %v", err)
	}
	return answers
}
