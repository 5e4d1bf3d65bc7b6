package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Whatever a client does at a server, it sees the same through a gateway: results, errors, progress, and what it is asked. Both
// sides of each link keep to the schema. What may differ is a table in ADR-0096, which meant and see follow.
//
// Guarantees: G-0096.1, G-0088.1, G-0088.5, G-0088.6
func TestAGatewayIsTransparent(t *testing.T) {
	path := fileOfOne(t)
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(cells()).Draw(t, "cell")
		compare(t, c, path, rapid.SliceOfN(rapid.Custom(stepOf), 1, 8).Draw(t, "steps"))
	})
}

// These were different once.
//
// Guarantees: G-0096.1
func TestDifferencesThatWereFound(t *testing.T) {
	path := fileOfOne(t)
	for _, c := range cells() {
		compare(t, c, path, []step{
			request(protocol.MethodComplete, `{"ref":{"type":"ref/resource","uri":"s:/one"},"argument":{"name":"N","value":"x"}}`, false),
			request(protocol.MethodReadResource, `{}`, true),
			request(protocol.MethodReadResource, `{"uri":"s:/all/none"}`, false),
			request(protocol.MethodReadResource, `{"uri":"other:/none"}`, false),
			request(protocol.MethodGetPrompt, `{"name":"@broken"}`, false),
			{"an update of a resource", update}, {"a new tool", addTool},
		})
	}
}

// fileOfOne returns the path of a file with one server.
func fileOfOne(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, []byte(`{"mcpServers":{"s":{"command":"/bin/s"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// compare does the same directly and through a gateway.
func compare(t checking, c cell, path string, steps []step) {
	one, other := direct(t, c), through(t, c, path)
	for i, s := range steps {
		want, before := s.do(one), other.served.Load()
		got := s.do(other)
		if got.Code != 0 && other.served.Load() == before { // the gateway has refused it, in its own words
			want.Message, got.Message = "", ""
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("step %d of %+v, %s: directly -, through the gateway +\n%s", i, c, s, diff)
		}
	}
}

// A seen is what a client sees of one step, without what may differ.
type seen struct {
	Result   any
	Code     int64
	Message  string
	Data     any
	Other    string // an error that no server has sent
	Progress []string
	Asked    []string
	Logged   []string
}

// see keeps what a request has led to.
func (w *world) see(result json.RawMessage, err error) (s seen) {
	fault := (*jsonrpc.Error)(nil)
	switch {
	case errors.As(err, &fault):
		s.Code, s.Message = fault.Code, strings.ReplaceAll(fault.Message, w.prefix, "")
		s.Data = meant(valueOf(fault.Data), "")
	case err != nil:
		s.Other = err.Error()
	default:
		s.Result = meant(valueOf(result), w.prefix)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	s.Asked, w.asked = w.asked, nil
	return s
}

func valueOf(raw json.RawMessage) (value any) {
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &value); err != nil {
			return fmt.Sprintf("%v: %s", err, raw)
		}
	}
	return value
}

// meant takes out of a result what may differ (ADR-0096), and the prefix of the gateway out of the names in lists.
func meant(value any, prefix string) any {
	result, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for _, hint := range []string{"ttlMs", "cacheScope", "nextCursor"} {
		delete(result, hint)
	}
	if meta, ok := result["_meta"].(map[string]any); ok {
		if delete(meta, protocol.MetaServerInfo); len(meta) == 0 {
			delete(result, "_meta")
		}
	}
	for _, kind := range []string{"tools", "prompts"} {
		entries, _ := result[kind].([]any)
		for _, entry := range entries {
			if entry, ok := entry.(map[string]any); ok {
				name, _ := entry["name"].(string)
				entry["name"] = strings.TrimPrefix(name, prefix)
			}
		}
	}
	return result
}

// list reads all pages of a list.
func (w *world) list(method, member string) seen {
	var all []any
	for params := "{}"; ; {
		raw, err := w.session.Request(w.ctx, method, json.RawMessage(params))
		s := w.see(raw, err)
		if err != nil {
			return s
		}
		result, _ := s.Result.(map[string]any)
		entries, _ := result[member].([]any)
		all = append(all, entries...)
		result[member] = nil
		var page struct{ NextCursor *string }
		if err := json.Unmarshal(raw, &page); err != nil || page.NextCursor == nil {
			result[member] = all
			return s
		}
		params = fmt.Sprintf(`{"cursor":%q}`, *page.NextCursor)
	}
}

// has reports whether a list of tools has a name.
func (w *world) has(name string) bool {
	result, _ := w.list(protocol.MethodListTools, "tools").Result.(map[string]any)
	tools, _ := result["tools"].([]any)
	return slices.ContainsFunc(tools, func(tool any) bool {
		entry, _ := tool.(map[string]any)
		return entry["name"] == name
	})
}
