package protocol_test

import (
	"encoding/json"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// stamped is a result as a modern server sends it.
func stamped(result protocol.ModernResult) any {
	result.Stamp(json.RawMessage(`{"name":"s","version":"1"}`))
	return result
}

func failure(err *jsonrpc.Error) any {
	fault := map[string]any{"code": err.Code, "message": err.Message}
	if err.Data != nil {
		fault["data"] = err.Data
	}
	return map[string]any{"jsonrpc": "2.0", "id": 1, "error": fault}
}

// fullModernMessages are what this package sends with every member it has, by
// the name of their definition.
func fullModernMessages(t *testing.T) map[string]any {
	legacy := messages(protocol.LatestLegacy)
	cursor, ttl := "next", int64(60_000)
	of := inParams(t, fullContext())
	subscription := protocol.NotificationParams{Meta: protocol.Meta{protocol.MetaSubscriptionID: json.RawMessage(`"s-1"`)}}
	filter := protocol.SubscriptionFilter{
		ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true,
		ResourceSubscriptions: []string{"file:///a"},
		Others:                map[string]json.RawMessage{"taskIds": json.RawMessage(`["t"]`)},
	}
	tools := legacy["ListToolsResult"].(protocol.ListToolsResult)
	tools.TTLMs, tools.CacheScope = &ttl, protocol.CachePublic
	called := legacy["CallToolResult"].(protocol.CallToolResult)
	called.StructuredContent = json.RawMessage(`[3]`)
	missing, err := protocol.Marshal(protocol.MissingCapabilityData{RequiredCapabilities: fullContext().ClientCapabilities})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]any{
		"DiscoverRequest": request(protocol.MethodDiscover, protocol.DiscoverParams{RequestParams: of}),
		"DiscoverResult": stamped(&protocol.DiscoverResult{
			SupportedVersions: protocol.Versions(),
			Capabilities: protocol.ServerCapabilities{
				Tools: &protocol.ListCapability{ListChanged: true}, Resources: &protocol.ResourcesCapability{Subscribe: true},
			},
			Instructions: "read me",
		}),
		"ListToolsRequest":           request(protocol.MethodListTools, protocol.ListToolsParams{RequestParams: of, Cursor: &cursor}),
		"ListToolsResult":            stamped(&tools),
		"CallToolRequest":            request(protocol.MethodCallTool, protocol.CallToolParams{RequestParams: of, Name: "add", Arguments: json.RawMessage(`{}`)}),
		"CallToolResult":             stamped(&called),
		"SubscriptionsListenRequest": request(protocol.MethodListen, protocol.ListenParams{RequestParams: of, Notifications: filter}),
		"SubscriptionsAcknowledgedNotification": notification(protocol.NotificationAcknowledged,
			protocol.AcknowledgedParams{NotificationParams: subscription, Notifications: filter}),
		"SubscriptionsListenResult":       stamped(&protocol.ListenResult{Result: protocol.Result{Meta: subscription.Meta}}),
		"ToolListChangedNotification":     notification(protocol.NotificationToolsListChanged, subscription),
		"PromptListChangedNotification":   notification(protocol.NotificationPromptsListChanged, subscription),
		"ResourceListChangedNotification": notification(protocol.NotificationResourcesListChanged, subscription),
		"ResourceUpdatedNotification": notification(protocol.NotificationResourcesUpdated,
			protocol.ResourceUpdatedParams{NotificationParams: subscription, URI: "file:///a"}),
		"EmptyResult":                          stamped(&protocol.EmptyResult{}),
		"UnsupportedProtocolVersionError":      failure(protocol.UnsupportedVersion("2099-01-01", protocol.Versions())),
		"MissingRequiredClientCapabilityError": failure(&jsonrpc.Error{Code: protocol.CodeMissingCapability, Message: "no", Data: missing}),
		"HeaderMismatchError":                  failure(&jsonrpc.Error{Code: protocol.CodeHeaderMismatch, Message: "no"}),
		"CancelledNotification":                legacy["CancelledNotification"],
		"ProgressNotification":                 legacy["ProgressNotification"],
	}
}

// minimalModernMessages are the same with nothing that can be left out.
func minimalModernMessages(t *testing.T) map[string]any {
	of := inParams(t, minimalContext())
	id := protocol.Meta{protocol.MetaSubscriptionID: json.RawMessage(`1`)}
	bare := func(result protocol.ModernResult) any { result.Stamp(nil); return result }
	return map[string]any{
		"DiscoverRequest":                       request(protocol.MethodDiscover, protocol.DiscoverParams{RequestParams: of}),
		"DiscoverResult":                        bare(&protocol.DiscoverResult{}),
		"ListToolsRequest":                      request(protocol.MethodListTools, protocol.ListToolsParams{RequestParams: of}),
		"ListToolsResult":                       bare(&protocol.ListToolsResult{}),
		"CallToolRequest":                       request(protocol.MethodCallTool, protocol.CallToolParams{RequestParams: of}),
		"CallToolResult":                        bare(&protocol.CallToolResult{}),
		"SubscriptionsListenRequest":            request(protocol.MethodListen, protocol.ListenParams{RequestParams: of}),
		"SubscriptionsAcknowledgedNotification": notification(protocol.NotificationAcknowledged, protocol.AcknowledgedParams{}),
		"SubscriptionsListenResult":             bare(&protocol.ListenResult{Result: protocol.Result{Meta: id}}),
		"ToolListChangedNotification":           notification(protocol.NotificationToolsListChanged, protocol.NotificationParams{}),
		"ResourceUpdatedNotification":           notification(protocol.NotificationResourcesUpdated, protocol.ResourceUpdatedParams{}),
		"EmptyResult":                           bare(&protocol.EmptyResult{}),
		"UnsupportedProtocolVersionError":       failure(protocol.UnsupportedVersion("", nil)),
	}
}

func TestModernMessagesFitThePublishedSchemas(t *testing.T) {
	for _, version := range protocol.ModernVersions() {
		published := oracle(t, version)
		for _, all := range []map[string]any{fullModernMessages(t), minimalModernMessages(t)} {
			for definition, message := range all {
				if err := fits(t, published, definition, message); err != nil {
					t.Errorf("%s %s: %v", version, definition, err)
				}
			}
		}
	}
}

// Without its context or stamp no message is modern: the oracle knows.
func TestTheOracleRefusesLegacyMessages(t *testing.T) {
	published := oracle(t, protocol.Latest)
	for definition, message := range map[string]any{
		"DiscoverRequest":               request(protocol.MethodDiscover, protocol.DiscoverParams{}),
		"DiscoverResult":                protocol.DiscoverResult{},
		"ListToolsRequest":              request(protocol.MethodListTools, protocol.ListToolsParams{}),
		"ListToolsResult":               protocol.ListToolsResult{},
		"CallToolResult":                protocol.CallToolResult{},
		"EmptyResult":                   protocol.EmptyResult{},
		"SubscriptionsListenResult":     stamped(&protocol.ListenResult{}),
		"HeaderMismatchError":           failure(&jsonrpc.Error{Code: protocol.CodeMissingCapability}),
		"PromptListChangedNotification": notification(protocol.NotificationToolsListChanged, protocol.NotificationParams{}),
		"SubscriptionsListenRequest":    request(protocol.MethodListen, protocol.ListenParams{}),
		"ResourceUpdatedNotification":   notification(protocol.NotificationResourcesUpdated, protocol.NotificationParams{}),
		"ToolListChangedNotification":   notification(protocol.NotificationToolsListChanged, 3),
		"CallToolRequest":               request(protocol.MethodCallTool, protocol.CallToolParams{Name: "add"}),
	} {
		if fits(t, published, definition, message) == nil {
			t.Errorf("%s was accepted", definition)
		}
	}
}

// roundTrip decodes a text into a T, and encodes it again.
func roundTrip[T any](wire string) (string, error) {
	var value T
	if err := protocol.Unmarshal([]byte(wire), &value); err != nil {
		return "", err
	}
	raw, err := protocol.Marshal(value)
	return string(raw), err
}

func TestModernMessagesComeAsTheyWereSent(t *testing.T) {
	const meta = `{"io.modelcontextprotocol/subscriptionId":"s-1"}`
	const filter = `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["file:///a"],"taskIds":["t"]}`
	for _, test := range []struct {
		wire   string
		decode func(string) (string, error)
	}{
		{`{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}},"resultType":"complete","ttlMs":0,"cacheScope":"private",` +
			`"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"telepathy":{}},"instructions":"read me"}`, roundTrip[protocol.DiscoverResult]},
		{`{"resultType":"complete","ttlMs":300000,"cacheScope":"public","tools":[],"nextCursor":""}`, roundTrip[protocol.ListToolsResult]},
		{`{"_meta":{"a":1},"resultType":"input_required","content":[]}`, roundTrip[protocol.CallToolResult]},
		{`{"resultType":"complete","content":[],"structuredContent":null}`, roundTrip[protocol.CallToolResult]},
		{`{"notifications":` + filter + `}`, roundTrip[protocol.ListenParams]},
		{`{"notifications":{}}`, roundTrip[protocol.ListenParams]},
		{`{"_meta":` + meta + `,"notifications":` + filter + `}`, roundTrip[protocol.AcknowledgedParams]},
		{`{"_meta":` + meta + `,"resultType":"complete"}`, roundTrip[protocol.ListenResult]},
		{`{"_meta":` + meta + `,"uri":"file:///a"}`, roundTrip[protocol.ResourceUpdatedParams]},
		{`{"_meta":` + meta + `}`, roundTrip[protocol.NotificationParams]},
		{`{"supported":["2026-07-28"],"requested":"2099-01-01"}`, roundTrip[protocol.UnsupportedVersionData]},
		{`{"requiredCapabilities":{"elicitation":{"url":{}}}}`, roundTrip[protocol.MissingCapabilityData]},
		{`{}`, roundTrip[protocol.EmptyResult]},
		{`{"name":"c","version":"1","icons":[{"src":"https://a/b.png","sizes":["48x48"]},{"src":"data:,"}]}`, roundTrip[protocol.Implementation]},
	} {
		if got, err := test.decode(test.wire); err != nil || got != test.wire {
			t.Errorf("%s came as %s, %v", test.wire, got, err)
		}
	}
}
