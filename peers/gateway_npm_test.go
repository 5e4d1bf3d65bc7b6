//go:build npm

package peers

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// A fronted server is one behind a gateway, with one call and a fragment of its answer.
type fronted struct {
	name    string
	npm     npmPackage
	command []string
	call    Call
	answer  string
}

func frontedServers(root string) []fronted {
	file := map[string]any{"path": filepath.Join(root, "hello.txt")}
	entity := map[string]any{"name": "Ada", "entityType": "person", "observations": []string{"reads"}}
	return []fronted{
		{"everything", everything, []string{"node", everything.path("dist/index.js"), "stdio"}, Call{Tool: "echo", Arguments: map[string]any{"message": "ahoy"}}, "Echo: ahoy"},
		{"filesystem", filesystem, []string{"node", filesystem.path("dist/index.js"), root}, Call{Tool: "read_text_file", Arguments: file}, "hello"},
		{"memory", memory, []string{"env", "MEMORY_FILE_PATH=" + filepath.Join(filepath.Dir(root), "memory.jsonl"), "node", memory.path("dist/index.js")},
			Call{Tool: "create_entities", Arguments: map[string]any{"entities": []any{entity}}}, "["},
		// Without a browser the answer is a failure of the tool, which is an answer of the server, too.
		{"playwright", playwright, []string{"node", playwright.path("cli.js"), "--headless"}, Call{Tool: "browser_close", Arguments: map[string]any{}}, "#"},
	}
}

// gatewayOver runs `bowline up` over these servers.
func gatewayOver(t *testing.T, bowline string, servers []fronted) *served {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	t.Setenv("BOWLINE_KEYRING", "off")
	entries := make(map[string]any)
	for _, s := range servers {
		entries[s.name] = map[string]any{"command": s.command[0], "args": s.command[1:]}
	}
	text, err := json.Marshal(map[string]any{"mcpServers": entries})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(schemaContext(t), hangGuard)
	defer cancel()
	gateway, err := serve(ctx, []string{bowline, "up", path, "--http", "127.0.0.1:$PORT", "--admin", "off"}, "0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gateway.close)
	return gateway
}

// allTools returns the sorted names on all pages.
func allTools(ctx context.Context, s Session) (all []string, err error) {
	for cursor := ""; ; {
		names, next, err := s.ListTools(ctx, cursor)
		if all = append(all, names...); err != nil || next == "" {
			slices.Sort(all)
			return all, err
		}
		cursor = next
	}
}

// toolsOf asks each server directly for its tools, and returns the names that a gateway gives them.
func toolsOf(t *testing.T, servers []fronted) []string {
	t.Helper()
	nobody := func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
		return client.Decline()
	}
	askable := client.Options{ // like the gateway: everything has some tools only for a client that can be asked
		ProtocolVersion: protocol.LatestLegacy, Elicit: nobody, ElicitURL: nobody,
		Roots: func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil },
		Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return nil, nil
		},
	}
	lists := make([][]string, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(schemaContext(t), hangGuard)
			defer cancel()
			session, err := client.New(bowlineInfo, askable).Connect(ctx, Endpoint{Command: s.command}.transport())
			if err != nil {
				t.Errorf("%s: %v", s.name, err)
				return
			}
			defer session.Close(ctx)
			names, err := allTools(ctx, bowlineSession{session: session})
			if err != nil || len(names) == 0 {
				t.Errorf("%s has the tools %q: %v", s.name, names, err)
			}
			for _, name := range names {
				lists[i] = append(lists[i], s.name+"__"+name)
			}
		})
	}
	all.Wait()
	return slices.Sorted(slices.Values(slices.Concat(lists...)))
}

// TestGatewayOverNPMServers has every tool of four published servers listed, and one of each called, by five clients in both eras.
//
// Guarantees: G-0088.1
func TestGatewayOverNPMServers(t *testing.T) {
	built := programs(t)
	servers := frontedServers(built.Folder)
	want := toolsOf(t, servers)
	gateway := gatewayOver(t, built.Bowline, servers)
	awaitTools(t, gateway.url, want)
	both := []string{protocol.LatestLegacy, protocol.Latest}
	for _, c := range []struct {
		name      string
		connect   Connect
		revisions []string
	}{
		{"Bowline", connectBowline, both},
		{"the official Go SDK", connectGoSDK, both},
		{"mcp-go", connectMCPGo, both},
		{typeScriptV1.title(), connectTypeScript(typeScriptV1), both[:1]},
		{typeScriptClientV2.title(), connectTypeScript(typeScriptClientV2), both},
	} {
		for _, revision := range c.revisions {
			t.Run(c.name+"/"+revision, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(schemaContext(t), hangGuard)
				defer cancel()
				session, err := c.connect(ctx, Endpoint{URL: gateway.url}, revision)
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close(ctx)
				if got := session.Revision(); got != revision {
					t.Errorf("the session uses %s", got)
				}
				useAll(ctx, t, session, servers, want)
			})
		}
	}
}

// useAll compares the list, and calls one tool of each server.
func useAll(ctx context.Context, t *testing.T, session Session, servers []fronted, want []string) {
	t.Helper()
	got, err := allTools(ctx, session)
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	for _, s := range servers {
		call := s.call
		call.Tool = s.name + "__" + call.Tool
		if result, err := session.CallTool(ctx, call); err != nil || !strings.Contains(result.Text, s.answer) {
			t.Errorf("%s: %+v, %v", call.Tool, result, err)
		}
	}
}

// awaitTools waits until the gateway knows all lists: a server that is ready need not have been asked for its list.
func awaitTools(t *testing.T, url string, want []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(schemaContext(t), hangGuard/2)
	defer cancel()
	session, err := connectBowline(ctx, Endpoint{URL: url}, protocol.Latest)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.WithoutCancel(ctx))
	for {
		got, err := allTools(ctx, session)
		if err != nil {
			t.Fatalf("%v, the tools were %q", err, got)
		}
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("tools (-want +got):\n%s", cmp.Diff(want, got))
		case <-time.After(50 * time.Millisecond):
		}
	}
}
