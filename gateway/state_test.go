package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
)

// A client that has called a stateful tool is told once, and without another call of the tool, that its server or its connection was replaced. Nobody
// else is, and no other tool is concerned.
//
// Guarantees: G-0095.7
func TestLostState(t *testing.T) {
	for name, c := range map[string]struct {
		block   string
		replace func(*testing.T, *isle)
	}{
		"restarted, shared":    {`{"toolModes":{"keep":"stateful"}}`, func(t *testing.T, i *isle) { failOn(t, i.Do(t.Context(), "a", admin.Restart)) }},
		"died, shared":         {`{"toolModes":{"*":"stateful","read":"stateless"}}`, func(_ *testing.T, i *isle) { i.kill("a", true) }},
		"its mark, shared":     {`{}`, func(_ *testing.T, i *isle) { i.kill("a", true) }},
		"restarted, of a user": {`{"share":"user","toolModes":{"keep":"stateful"}}`, func(t *testing.T, i *isle) { failOn(t, i.Do(t.Context(), "a", admin.Restart)) }},
		"idle, of a user":      {`{"share":"user","idleStop":"1m","toolModes":{"keep":"stateful"}}`, func(*testing.T, *isle) { pass(2 * time.Minute) }},
		"another command": {`{"share":"client","toolModes":{"keep":"stateful"}}`, func(_ *testing.T, i *isle) {
			i.apply(load(i.t, `{"mcpServers":{"a":{"command":"/bin/other","bowline":{"share":"client","toolModes":{"keep":"stateful"}}}}}`))
		}},
	} {
		for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
			t.Run(name+" "+front, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					i := isolated(t, protocol.LatestLegacy, c.block, gateway.Options{})
					ann, bob := i.clientOf("ann", front), i.clientOf("bob", front)
					tool := "a__keep"
					if name == "its mark, shared" {
						tool = "a__marked"
					}
					call := func(who *client.Session, tool string) *protocol.CallToolResult {
						t.Helper()
						result, err := who.CallTool(t.Context(), &protocol.CallToolParams{Name: tool, Arguments: []byte(`{"What":"x"}`)})
						failOn(t, err)
						synctest.Wait()
						return result
					}
					for _, tool := range []string{tool, tool, "a__read"} {
						if result := call(ann, tool); result.IsError {
							t.Fatalf("before: %s", result.Content.Text())
						}
					}
					c.replace(t, i)
					synctest.Wait()
					if result := call(ann, "a__read"); result.IsError {
						t.Errorf("a stateless tool: %s", result.Content.Text())
					}
					if result := call(bob, tool); result.IsError {
						t.Errorf("who has left nothing there: %s", result.Content.Text())
					}
					before := i.said()
					result := call(ann, tool)
					if !result.IsError || !strings.Contains(result.Content.Text(), "has lost what earlier calls") || !strings.Contains(string(result.Meta[gateway.MetaOutcome]), `"not sent"`) || i.said() != before {
						t.Errorf("after it was replaced: %s, and the tool was called: %t", result.Content.Text(), i.said() != before)
					}
					if result := call(ann, tool); result.IsError || i.said() == before {
						t.Errorf("once more: %s", result.Content.Text())
					}
				})
			})
		}
	}
}
