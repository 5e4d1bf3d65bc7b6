package protocol_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// stamped returns a result as a modern server sends it.
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

func unsupported(requested string, supported []string) *jsonrpc.Error {
	data, _ := protocol.Marshal(protocol.UnsupportedVersionData{Supported: supported, Requested: requested})
	return &jsonrpc.Error{Code: protocol.CodeUnsupportedVersion, Message: "unsupported protocol version", Data: data}
}

// fullModernMessages are what this package sends with every member it has, by
// the name of their definition.
func fullModernMessages(t *testing.T) map[string]any {
	of := inParams(t, fullContext())
	all := messages(protocol.Latest, of)
	ttl := int64(60_000)
	subscription := protocol.NotificationParams{Meta: protocol.Meta{protocol.MetaSubscriptionID: json.RawMessage(`"s-1"`)}}
	filter := protocol.SubscriptionFilter{
		ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true,
		ResourceSubscriptions: []string{"file:///a"}, TaskIDs: []string{"t"},
		Others: map[string]json.RawMessage{"other": json.RawMessage(`[]`)},
	}
	for definition, message := range all {
		switch result := message.(type) {
		case protocol.ListToolsResult:
			result.TTLMs, result.CacheScope = &ttl, protocol.CachePublic
			all[definition] = stamped(&result)
		case protocol.CallToolResult:
			result.StructuredContent = json.RawMessage(`[3]`)
			all[definition] = stamped(&result)
		case protocol.ListResourcesResult:
			all[definition] = stamped(&result)
		case protocol.ListResourceTemplatesResult:
			all[definition] = stamped(&result)
		case protocol.ReadResourceResult:
			all[definition] = stamped(&result)
		case protocol.ListPromptsResult:
			all[definition] = stamped(&result)
		case protocol.GetPromptResult:
			all[definition] = stamped(&result)
		case protocol.CompleteResult:
			all[definition] = stamped(&result)
		}
	}
	missing, err := protocol.Marshal(protocol.MissingCapabilityData{RequiredCapabilities: fullContext().ClientCapabilities})
	if err != nil {
		t.Fatal(err)
	}
	notFound, err := protocol.Marshal(protocol.ResourceNotFoundData{URI: "file:///a"})
	if err != nil {
		t.Fatal(err)
	}
	questions, answers := questionsOf(protocol.Latest)
	state := "opaque"
	asks := &protocol.InputRequired{InputRequests: questions, RequestState: &state}
	replies := protocol.InputParams{InputResponses: answers, RequestState: &state}
	for name, message := range map[string]any{
		"DiscoverRequest": request(protocol.MethodDiscover, protocol.DiscoverParams{RequestParams: of}),
		"DiscoverResult": stamped(&protocol.DiscoverResult{
			SupportedVersions: protocol.Versions(),
			Capabilities: protocol.ServerCapabilities{
				Tools: &protocol.ListCapability{ListChanged: true}, Resources: &protocol.ResourcesCapability{Subscribe: true},
				Prompts: &protocol.ListCapability{}, Logging: &protocol.Capability{}, Completions: &protocol.Capability{},
				Extensions: map[string]json.RawMessage{protocol.ExtensionTasks: json.RawMessage(`{}`)},
			},
			Instructions: "read me",
		}),
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
		"UnsupportedProtocolVersionError":      failure(unsupported("2099-01-01", protocol.Versions())),
		"MissingRequiredClientCapabilityError": failure(&jsonrpc.Error{Code: protocol.CodeMissingCapability, Message: "no", Data: missing}),
		"HeaderMismatchError":                  failure(&jsonrpc.Error{Code: protocol.CodeHeaderMismatch, Message: "no"}),
		"JSONRPCErrorResponse":                 failure(&jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "no", Data: notFound}),

		"InputRequiredResult of a tool":     stamped(&protocol.CallToolResult{InputRequired: asks, Content: contentsOf(protocol.Latest)}),
		"InputRequiredResult of a prompt":   stamped(&protocol.GetPromptResult{InputRequired: asks}),
		"InputRequiredResult of a resource": stamped(&protocol.ReadResourceResult{InputRequired: asks}),
		"CallToolRequest again":             request(protocol.MethodCallTool, protocol.CallToolParams{RequestParams: of, InputParams: replies, Name: "add"}),
		"GetPromptRequest again":            request(protocol.MethodGetPrompt, protocol.GetPromptParams{RequestParams: of, InputParams: replies, Name: "review"}),
		"ReadResourceRequest again":         request(protocol.MethodReadResource, protocol.ReadResourceParams{RequestParams: of, InputParams: replies, URI: "file:///a"}),
		"CompleteRequest of a template": request(protocol.MethodComplete, protocol.CompleteParams{RequestParams: of,
			Ref: protocol.CompleteReference{Type: protocol.ReferenceResource, URI: "file:///{a}"}}),
	} {
		all[name] = message
	}
	for name, question := range questions {
		definition, _, _ := strings.Cut(name, " ")
		all[definition+"Request "+name] = map[string]any{"method": question.Method(), "params": question}
		all[definition+"Result "+name] = answers[name]
	}
	return all
}

// minimalModernMessages are the same without optional members.
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
		"ListResourcesResult":                   bare(&protocol.ListResourcesResult{}),
		"ListResourceTemplatesResult":           bare(&protocol.ListResourceTemplatesResult{}),
		"ReadResourceResult":                    bare(&protocol.ReadResourceResult{}),
		"ListPromptsResult":                     bare(&protocol.ListPromptsResult{}),
		"GetPromptResult":                       bare(&protocol.GetPromptResult{}),
		"CompleteResult":                        bare(&protocol.CompleteResult{}),
		"InputRequiredResult":                   bare(&protocol.CallToolResult{InputRequired: &protocol.InputRequired{}}),
		"UnsupportedProtocolVersionError":       failure(unsupported("", nil)),
	}
}

func TestModernMessagesFitThePublishedSchemas(t *testing.T) {
	for _, version := range protocol.ModernVersions() {
		published := specification.Of(version)
		testsEveryMessage(t, published, version, fullModernMessages(t))
		for _, all := range []map[string]any{fullModernMessages(t), minimalModernMessages(t)} {
			for name, message := range all {
				definition, _, _ := strings.Cut(name, " ")
				if err := fits(t, published, definition, message); err != nil {
					t.Errorf("%s %s: %v", version, name, err)
				}
			}
		}
	}
}

// The schemas refuse a modern message without its context or result type.
func TestTheOracleRefusesLegacyMessages(t *testing.T) {
	published := specification.Of(protocol.Latest)
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
	const filter = `{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["file:///a"],"taskIds":["t"],"other":1}`
	const resource = `{"uri":"a:b","name":"n","title":"t","description":"d","mimeType":"a/b","size":0,"annotations":{"audience":["user"],"priority":1,"lastModified":"a"},"icons":[],"_meta":{},"other":1}`
	const task = `"taskId":"t","status":"input_required","statusMessage":"m","createdAt":"a","lastUpdatedAt":"b","ttlMs":null,"pollIntervalMs":5`
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
		{`{"resultType":"complete","ttlMs":0,"cacheScope":"private","resources":[` + resource + `],"nextCursor":""}`, roundTrip[protocol.ListResourcesResult]},
		{`{"resourceTemplates":[{"uriTemplate":"a:{b}","name":"n","title":"t","description":"d","mimeType":"a/b","annotations":{"priority":0},"icons":[],"_meta":{},"other":1}]}`,
			roundTrip[protocol.ListResourceTemplatesResult]},
		{`{"contents":[{"uri":"a:b","mimeType":"a/b","text":"","_meta":{}},{"uri":"a:b","blob":""}]}`, roundTrip[protocol.ReadResourceResult]},
		{`{"prompts":[{"name":"n","title":"t","description":"d","arguments":[{"name":"n","title":"t","description":"d","required":true}],"icons":[],"_meta":{},"other":1}]}`,
			roundTrip[protocol.ListPromptsResult]},
		{`{"resultType":"complete","description":"d","messages":[{"role":"user","content":{"type":"text","text":"a"}},{"role":"assistant","content":{"type":"hologram"}},` +
			`{"role":"user","content":null}]}`, roundTrip[protocol.GetPromptResult]},
		{`{"_meta":{},"name":"n","arguments":{"a":"b"}}`, roundTrip[protocol.GetPromptParams]},
		{`{"ref":{"type":"ref/resource","uri":"a:{b}"},"argument":{"name":"b","value":""},"context":{"arguments":{"a":"b"}}}`, roundTrip[protocol.CompleteParams]},
		{`{"completion":{"values":["a"],"total":0,"hasMore":true}}`, roundTrip[protocol.CompleteResult]},
		{`{"level":"info"}`, roundTrip[protocol.SetLogLevelParams]},
		{`{"_meta":{},"level":"loud","logger":"l","data":null}`, roundTrip[protocol.LogMessageParams]},
		{`{"_meta":{},"requestId":"r","reason":"n"}`, roundTrip[protocol.CancelledParams]},
		{`{"_meta":{},"progressToken":7,"progress":0.5,"total":2,"message":"m"}`, roundTrip[protocol.ProgressParams]},
		{`{"roots":{"listChanged":true,"x":1},"sampling":{"context":{},"tools":{"x":1},"y":2},"elicitation":{"form":{},"url":{"x":1},"y":2},` +
			`"tasks":{"list":{},"cancel":{},"requests":{"sampling":{"createMessage":{"x":1}}},"x":1},"telepathy":{}}`, roundTrip[protocol.ClientCapabilities]},
		{`{"prompts":{"x":1},"resources":{"subscribe":true,"x":1},"logging":{"x":1},"completions":{}}`, roundTrip[protocol.ServerCapabilities]},
		{`{"resultType":"task",` + task + `}`, roundTrip[protocol.CreateTaskResult]},
		{`{"resultType":"complete",` + task + `,"inputRequests":{"a":{"method":"roots/list","params":{}}}}`, roundTrip[protocol.GetTaskResult]},
		{`{"resultType":"complete",` + task + `,"result":{"content":[]}}`, roundTrip[protocol.GetTaskResult]},
		{`{"_meta":{},` + task + `,"error":{"code":-32603,"message":"m","data":null}}`, roundTrip[protocol.TaskParams]},
		{`{"_meta":{},"taskId":"t","inputResponses":{"a":{"action":"cancel"}}}`, roundTrip[protocol.UpdateTaskParams]},
		{`{"_meta":{},"taskId":"t","status":"working","createdAt":"","lastUpdatedAt":"","ttl":null}`, roundTrip[protocol.LegacyTaskResult]},
		{`{"skills":[{"uri":"skill://a/SKILL.md","frontmatter":{"name":"a","description":"d"},"resources":[{"uri":"skill://a/SKILL.md","digest":"sha256:00","size":1}],"other":1},` +
			`{"uri":"skill://b/SKILL.md","frontmatter":{},"resources":"dynamic"},{"uri":"","frontmatter":{},"resources":[]}]}`, roundTrip[protocol.ListSkillsResult]},
		{`{"resultType":"complete","ttlMs":1,"cacheScope":"public","skill":{"uri":"","frontmatter":{},"resources":"dynamic"}}`, roundTrip[protocol.GetSkillResult]},
		{`{"resultType":"complete","resources":[` + resource + `]}`, roundTrip[protocol.ReadDirectoryResult]},
		{`{"messages":[{"role":"user","content":[{"type":"tool_use","id":"u","name":"n","input":{}},{"type":"tool_result","toolUseId":"u","content":[{"type":"tool_result"}],` +
			`"structuredContent":null,"isError":true}],"_meta":{}},{"role":"user","content":{"type":"hologram"}},{"role":"user","content":[]}],"maxTokens":1,"toolChoice":{"mode":"none"}}`,
			roundTrip[protocol.CreateMessageParams]},
		{`{"name":"c","version":"1","icons":[{"src":"https://a/b.png","sizes":["48x48"]},{"src":"data:,"}]}`, roundTrip[protocol.Implementation]},
	} {
		if got, err := test.decode(test.wire); err != nil || got != test.wire {
			t.Errorf("%s was decoded and encoded as %s, %v", test.wire, got, err)
		}
	}
}
