package protocol_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/google/jsonschema-go/jsonschema"
)

// oracle is the published schema of one revision, for an object that has a
// message under the name of its definition.
func oracle(t *testing.T, version string) *jsonschema.Resolved {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "schema", version+".json"))
	if err != nil {
		t.Fatal(err)
	}
	root := new(jsonschema.Schema)
	if err := json.Unmarshal(raw, root); err != nil {
		t.Fatal(err)
	}
	place, definitions := "#/$defs/", root.Defs
	if root.Definitions != nil {
		place, definitions = "#/definitions/", root.Definitions
	}
	root.Properties = map[string]*jsonschema.Schema{}
	for definition := range definitions {
		root.Properties[definition] = &jsonschema.Schema{Ref: place + definition}
	}
	resolved, err := root.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// fits reports why a value does not fit a definition, or nil.
func fits(t *testing.T, published *jsonschema.Resolved, definition string, value any) error {
	t.Helper()
	if published.Schema().Properties[definition] == nil {
		t.Fatalf("%s is not defined", definition)
	}
	raw, err := protocol.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var instance any
	if err := json.Unmarshal(raw, &instance); err != nil {
		t.Fatal(err)
	}
	return published.Validate(map[string]any{definition: instance})
}

func request(method string, params any) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
}

func notification(method string, params any) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "method": method, "params": params}
}

// messages are what this package sends, by the name of their definition.
func messages(version string) map[string]any {
	cursor := "next"
	size := int64(7)
	text := "contents"
	tool := &protocol.Tool{
		Name: "add", Title: "Add", Description: "adds", InputSchema: json.RawMessage(`{"type":"object"}`),
		Annotations: &protocol.ToolAnnotations{ReadOnlyHint: true},
	}
	contents := protocol.Contents{
		&protocol.TextContent{},
		&protocol.ImageContent{Data: []byte{1, 2}, MIMEType: "image/png"},
		&protocol.EmbeddedResource{Resource: protocol.ResourceContents{URI: "file:///a", Text: &text}},
	}
	if version >= protocol.Version20250326 {
		contents = append(contents, &protocol.AudioContent{Data: []byte{3}, MIMEType: "audio/wav"})
	}
	if version >= protocol.Version20250618 {
		contents = append(contents, &protocol.ResourceLink{URI: "file:///b", Name: "b", Size: &size})
	}
	return map[string]any{
		"InitializeRequest": request(protocol.MethodInitialize, protocol.InitializeParams{
			ProtocolVersion: version,
			ClientInfo:      protocol.Implementation{Name: "c", Version: "1"},
			Capabilities:    protocol.ClientCapabilities{Roots: &protocol.RootsCapability{ListChanged: true}},
		}),
		"InitializeResult": protocol.InitializeResult{
			ProtocolVersion: version,
			ServerInfo:      protocol.Implementation{Name: "s", Version: "1"},
			Capabilities:    protocol.ServerCapabilities{Tools: &protocol.ListCapability{}},
			Instructions:    "read me",
		},
		"PingRequest":           request(protocol.MethodPing, protocol.PingParams{}),
		"ListToolsRequest":      request(protocol.MethodListTools, protocol.ListToolsParams{Cursor: &cursor}),
		"ListToolsResult":       protocol.ListToolsResult{Tools: []*protocol.Tool{tool}, NextCursor: &cursor},
		"CallToolRequest":       request(protocol.MethodCallTool, protocol.CallToolParams{Name: "add", Arguments: json.RawMessage(`{"a":1}`)}),
		"CallToolResult":        protocol.CallToolResult{Content: contents, StructuredContent: json.RawMessage(`{"sum":3}`)},
		"CancelledNotification": notification(protocol.NotificationCancelled, protocol.CancelledParams{RequestID: jsonrpc.IntegerID(1), Reason: "no"}),
		"ProgressNotification":  notification(protocol.NotificationProgress, protocol.ProgressParams{ProgressToken: jsonrpc.StringID("t"), Progress: 1, Total: 2}),
	}
}

func TestMessagesFitThePublishedSchemas(t *testing.T) {
	for _, version := range protocol.LegacyVersions() {
		published := oracle(t, version)
		for definition, message := range messages(version) {
			if err := fits(t, published, definition, message); err != nil {
				t.Errorf("%s %s: %v", version, definition, err)
			}
		}
	}
}

// The oracle refuses what does not fit: a test that cannot fail proves nothing.
func TestTheOracleRefuses(t *testing.T) {
	for _, version := range protocol.Versions() {
		if fits(t, oracle(t, version), "CallToolResult", map[string]any{"content": "text"}) == nil {
			t.Errorf("%s: content that is a string was accepted", version)
		}
	}
}
