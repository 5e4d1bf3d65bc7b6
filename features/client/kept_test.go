package client_test

import (
	"context"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
)

// keptResults are valid results, by method.
var keptResults = map[string]string{
	protocol.MethodInitialize:            `"protocolVersion":"VERSION","capabilities":CAPABILITIES,"serverInfo":{"name":"fake","version":"0"},"instructions":"none"`,
	protocol.MethodDiscover:              `"supportedVersions":["2026-07-28"],"capabilities":CAPABILITIES,"instructions":"none"`,
	protocol.MethodListTools:             `"tools":[{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]`,
	protocol.MethodCallTool:              `"content":[{"type":"text","text":"x"}],"structuredContent":{}`,
	protocol.MethodListResources:         `"resources":[{"name":"a","uri":"x://a"}]`,
	protocol.MethodListResourceTemplates: `"resourceTemplates":[{"name":"a","uriTemplate":"x://{a}"}]`,
	protocol.MethodReadResource:          `"contents":[{"uri":"x://a","text":"x"}]`,
	protocol.MethodListPrompts:           `"prompts":[{"name":"p"}]`,
	protocol.MethodGetPrompt:             `"messages":[{"role":"user","content":{"type":"text","text":"x"}}]`,
	protocol.MethodComplete:              `"completion":{"values":["x"]}`,
	protocol.MethodListSkills:            `"skills":[]`,
}

const keptCapabilities = `{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"completions":{},"logging":{}}`

// After a client has received an answer of 4 MiB, half of it in _meta, it keeps nothing of it that it does
// not cache on purpose, whatever the method. That includes the handshake.
//
// Guarantees: G-0029.16
func TestNoAnswerIsKept(t *testing.T) {
	testenv.Crowd(t)
	padding := `"padding":"` + strings.Repeat("x", 2<<20) + `"`
	for _, version := range []string{protocol.Version20241105, protocol.Version20250326, protocol.Version20250618, protocol.Version20251125, protocol.Version20260728} {
		t.Run(version, func(t *testing.T) {
			s := &fakeServer{answer: func(f frame) []string {
				if f.ID == nil || f.Method == protocol.MethodListen {
					return nil
				}
				members := padding + `,"_meta":{` + padding + `,"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"0"}},` +
					strings.NewReplacer("VERSION", version, "CAPABILITIES", keptCapabilities).Replace(keptResults[f.Method])
				if protocol.IsModern(version) {
					members = strings.TrimSuffix(members, ",") + `,"resultType":"complete"`
				}
				return []string{f.result(`{` + strings.TrimSuffix(members, ",") + `}`)}
			}}
			t.Cleanup(s.close)
			before := liveHeap()
			check := func(what string) {
				t.Helper()
				after := liveHeap()
				if kept := after - before; kept > 1<<20 {
					t.Errorf("%s: %d bytes are kept, want less than 1 MiB", what, kept)
				}
				before = after
			}
			ctx := timeoutContext(t)
			session, err := client.New(clientInfo, client.Options{ProtocolVersion: version}).Connect(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			defer session.Close(context.Background())
			check("the handshake")
			params := map[string]string{
				protocol.MethodCallTool: `{"name":"t"}`, protocol.MethodReadResource: `{"uri":"x://a"}`, protocol.MethodSubscribe: `{"uri":"x://a"}`,
				protocol.MethodUnsubscribe: `{"uri":"x://b"}`, protocol.MethodGetPrompt: `{"name":"p"}`, protocol.MethodSetLogLevel: `{"level":"debug"}`,
				protocol.MethodComplete: `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"x"}}`,
			}
			for _, m := range protocol.Methods() {
				_, known := keptResults[m.Name]
				if !m.In(version) || m.Sender != protocol.ByClient || !known && params[m.Name] == "" || m.Name == protocol.MethodInitialize {
					continue
				}
				given := json.RawMessage(params[m.Name])
				if given == nil {
					given = json.RawMessage(`{}`)
				}
				if _, err := session.Request(ctx, m.Name, given); err != nil {
					t.Errorf("%s: got %v, want no error", m.Name, err)
				}
				check(m.Name)
			}
			for range session.Tools(ctx) {
				break
			}
			check("Tools")
			if _, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "t"}); err != nil {
				t.Errorf("CallTool: got %v, want no error", err)
			}
			check("CallTool")
			if err := session.SetLogLevel(ctx, protocol.LogDebug); err != nil {
				t.Errorf("SetLogLevel: got %v, want no error", err)
			}
			check("SetLogLevel")
		})
	}
}

// liveHeap returns the bytes that are in use after a collection.
func liveHeap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
