//go:build npm

package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authtest"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A roleGateway is `bowline up` with the logins of a foreign identity provider. Its one tool is for those who have the role developer there.
type roleGateway struct {
	url, trail string
	issuer     *foreignIssuer
	shell      *shell
}

const rolesOfGateway = `{"mcpServers": {"tools": {"command": %[1]q, "args": ["serve", "--stdio"], "bowline": {"tools": {"allow": ["echo"]}}}}, "bowline": {
	"url": %[2]q, "auth": {"issuers": [%[3]q], "scopes": ["read"]}, "audit": {"file": "audit.jsonl", "sync": true},
	"personas": {"developer": {"who": ["claim:roles=developer"], "servers": ["tools"]}}}}`

func newRoleGateway(t *testing.T) *roleGateway {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	g := &roleGateway{url: "http://127.0.0.1:" + port + "/mcp", shell: newShell(t)}
	g.issuer = startForeignIssuer(t, g.url, 3600)
	g.trail = filepath.Join(g.shell.home, "audit.jsonl")
	config := filepath.Join(g.shell.home, "mcp.json")
	if err := os.WriteFile(config, fmt.Appendf(nil, rolesOfGateway, g.shell.bowline, g.url, g.issuer.url), 0o600); err != nil {
		t.Fatal(err)
	}
	g.shell.serve(t, "up", config, "--http", "127.0.0.1:"+port, "--admin", "off")
	return g
}

// browserOf signs a user in.
func browserOf(user string) browser {
	return func(ctx context.Context, page string) (*url.URL, error) {
		back, err := signIn(ctx, user, page)
		if err != nil {
			return nil, err
		}
		return url.Parse(back)
	}
}

// awaitTool waits until the gateway has asked its server for the list: one who has no role would see none before, too.
func (g *roleGateway) awaitTool(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangGuard)
	defer cancel()
	login := loginOf(browserOf("ada"))
	defer login.Close()
	session, err := openBowline(ctx, &streamable.Client{URL: g.url, Authorizer: login}, protocol.LatestLegacy)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.WithoutCancel(ctx))
	for {
		tools, err := allTools(ctx, session)
		if len(tools) > 0 {
			return
		}
		if err = errors.Join(err, session.ToolsChanged(ctx)); err != nil {
			t.Fatalf("the gateway lists no tool: %v", err)
		}
	}
}

// A roleClient logs a user in with an SDK, and returns the names of the tools that he sees, and what a call of tools__echo comes to: a text, or the
// code of an error.
type roleClient func(t *testing.T, url string, visit browser) (tools []string, answer any)

// loginOf logs Bowline's client in.
func loginOf(visit browser) *auth.Authorizer {
	return auth.New(auth.Options{Interact: func(ctx context.Context, i auth.Interaction) (*url.URL, error) {
		page, err := i.Start(ctx, authtest.Redirect)
		if err != nil {
			return nil, err
		}
		return visit(ctx, page.String())
	}})
}

func bowlineRoleClient(revision string) roleClient {
	return func(t *testing.T, address string, visit browser) ([]string, any) {
		login := loginOf(visit)
		defer login.Close()
		session, err := openBowline(t.Context(), &streamable.Client{URL: address, Authorizer: login}, revision)
		return useTools(t, session, err)
	}
}

func goSDKRoleClient(revision string) roleClient {
	return func(t *testing.T, address string, visit browser) ([]string, any) {
		pool := newPool()
		defer pool.CloseIdleConnections()
		transport := &mcp.StreamableClientTransport{Endpoint: address, HTTPClient: &http.Client{Transport: pool}, OAuthHandler: goSDKLogin(t, visit)}
		session, err := openGoSDK(t.Context(), transport, revision)
		return useTools(t, session, err)
	}
}

// useTools lists the tools, calls one, and closes the session.
func useTools(t *testing.T, session Session, failed error) (tools []string, answer any) {
	t.Helper()
	if failed != nil {
		t.Fatal(failed)
	}
	defer session.Close(context.WithoutCancel(t.Context()))
	tools, err := allTools(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	result, err := session.CallTool(t.Context(), Call{Tool: "tools__echo", Arguments: map[string]any{"message": "hello"}})
	if refused := (*ProtocolError)(nil); errors.As(err, &refused) {
		return tools, float64(refused.Code)
	} else if err != nil || result.IsError {
		t.Fatalf("%+v, %v", result, err)
	}
	return tools, result.Text
}

func typeScriptRoleClient(sdk npmPackage) roleClient {
	return func(t *testing.T, address string, visit browser) (tools []string, answer any) {
		if err := sdk.install(); err != nil {
			t.Fatal(err)
		}
		lines := typeScriptLogin(t, sdk, address, visit, `{"name": "tools__echo", "arguments": {"message": "hello"}}`)
		if len(lines) != 2 {
			t.Fatalf("login.mjs printed %q", lines)
		}
		if err := errors.Join(json.Unmarshal([]byte(lines[0]), &tools), json.Unmarshal([]byte(lines[1]), &answer)); err != nil {
			t.Fatal(err)
		}
		return tools, answer
	}
}

// A doneCall is what the trail says of one.
type doneCall struct{ Program, Principal, Outcome, Rule string }

// callsIn returns the calls of the trail, in any order.
func callsIn(t *testing.T, path string) (calls []doneCall) {
	t.Helper()
	for _, r := range testenv.JSONLines[audit.Record](t, path) {
		if r.Method == protocol.MethodCallTool && r.Principal != "" {
			_, rule, _ := strings.Cut(r.Rule, "bowline.personas") // before it is the place in the file
			calls = append(calls, doneCall{r.Client, r.Principal, r.Outcome, rule})
		}
	}
	return calls
}

// TestRolesOfAForeignIssuer logs two users in at an identity provider of another project, with clients of three SDKs. Who has a role there
// sees and calls the tool that is for it, and for the other one there is none. The trail says of each call who has made it.
//
// Guarantees: G-0097.7, G-0098.3, G-0098.4
func TestRolesOfAForeignIssuer(t *testing.T) {
	g := newRoleGateway(t)
	g.awaitTool(t)
	var want []doneCall
	t.Run("clients", func(t *testing.T) {
		for _, c := range []struct {
			program string
			use     roleClient
		}{
			{"bowline 1", bowlineRoleClient(protocol.LatestLegacy)},
			{"bowline 1", bowlineRoleClient(protocol.Latest)},
			{"go-sdk 1", goSDKRoleClient(protocol.LatestLegacy)},
			{"go-sdk 1", goSDKRoleClient(protocol.Latest)},
			{"typescript-sdk 1", typeScriptRoleClient(typeScriptV1)},
			{"typescript-sdk 1", typeScriptRoleClient(typeScriptClientV2)},
		} {
			for user, sees := range map[string]doneCall{
				"ada": {Outcome: "answered", Rule: ".developer"}, "bob": {Outcome: "denied", Rule: ": no persona of this user allows it"},
			} {
				sees.Program, sees.Principal = c.program, g.issuer.url+" "+user
				want = append(want, sees)
				t.Run(c.program+" "+user, func(t *testing.T) {
					t.Parallel()
					tools, answer := c.use(t, g.url, browserOf(user))
					if user == "ada" && (!slices.Equal(tools, []string{"tools__echo"}) || answer != "hello") || user == "bob" && (len(tools) > 0 || answer != float64(jsonrpc.CodeInvalidParams)) {
						t.Errorf("the tools are %q, and the answer is %v", tools, answer)
					}
				})
			}
		}
	})
	got := callsIn(t, g.trail)
	for _, calls := range [][]doneCall{got, want} {
		slices.SortFunc(calls, func(a, b doneCall) int {
			return slices.Compare([]string{a.Program, a.Principal}, []string{b.Program, b.Principal})
		})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls in the trail (-want +got):\n%s", diff)
	}
	g.shell.run(t, 0, "", "audit", g.trail, "--verify")
}
