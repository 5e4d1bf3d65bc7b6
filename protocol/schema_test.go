package protocol_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// fits reports why a value does not fit a definition, or nil.
func fits(t *testing.T, published *specification.Revision, definition string, value any) error {
	t.Helper()
	if published.Definitions()[definition] == nil {
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
	return published.Check(definition, instance)
}

func request(method string, params any) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
}

func notification(method string, params any) map[string]any {
	return map[string]any{"jsonrpc": "2.0", "method": method, "params": params}
}

// since returns a value for revisions from first on, and the zero value before.
func since[T any](version, first string, value T) (none T) {
	if version >= first {
		return value
	}
	return none
}

func pointer[T any](value T) *T { return &value }

// contentsOf returns one block of each type that a revision has.
func contentsOf(version string) protocol.Contents {
	contents := protocol.Contents{
		&protocol.TextContent{Annotations: &protocol.Annotations{Audience: []protocol.Role{protocol.RoleUser}, Priority: pointer(0.5)}},
		protocol.Image([]byte{1, 2}, "image/png"),
		&protocol.EmbeddedResource{Resource: protocol.ResourceContents{URI: "file:///a", MIMEType: "text/plain", Text: pointer("contents")}},
		&protocol.EmbeddedResource{Resource: protocol.ResourceContents{URI: "file:///a", Blob: []byte{}}},
	}
	if version >= protocol.Version20250326 {
		contents = append(contents, protocol.Audio([]byte{3}, "audio/wav"))
	}
	if version >= protocol.Version20250618 {
		contents = append(contents, &protocol.ResourceLink{URI: "file:///b", Name: "b", Size: pointer(int64(7)),
			Annotations: &protocol.Annotations{LastModified: "2026-07-28T00:00:00Z"}, Meta: protocol.Meta{"a": json.RawMessage("1")}})
	}
	return contents
}

// messages are the messages that a revision shares with earlier or later ones,
// by the name of their definition and with every member that the revision has.
func messages(version string, of protocol.RequestParams) map[string]any {
	cursor := pointer("next")
	icons := since(version, protocol.Version20251125, []protocol.Icon{{Source: "https://a/b.png", MIMEType: "image/png", Sizes: []string{"48x48"}, Theme: "dark"}})
	title := since(version, protocol.Version20250618, "Title")
	meta := since(version, protocol.Version20250618, protocol.Meta{"a": json.RawMessage("1")})
	text := protocol.ResourceContents{URI: "file:///a", MIMEType: "text/plain", Text: pointer(""), Meta: meta}
	tool := &protocol.Tool{
		Name: "add", Title: title, Description: "adds", InputSchema: json.RawMessage(`{"type":"object"}`),
		OutputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &protocol.ToolAnnotations{ReadOnlyHint: true}, Icons: icons, Meta: meta,
	}
	resource := &protocol.Resource{URI: "file:///a", Name: "a", Title: title, Description: "d", MIMEType: "text/plain", Size: pointer(int64(0)),
		Annotations: &protocol.Annotations{Audience: []protocol.Role{protocol.RoleAssistant}}, Icons: icons, Meta: meta}
	template := &protocol.ResourceTemplate{URITemplate: "file:///{a}", Name: "a", Title: title, Description: "d", MIMEType: "text/plain",
		Annotations: &protocol.Annotations{Priority: pointer(1.0)}, Icons: icons, Meta: meta}
	prompt := &protocol.Prompt{Name: "review", Title: title, Description: "d", Icons: icons, Meta: meta,
		Arguments: []protocol.PromptArgument{{Name: "file", Title: title, Description: "d", Required: true}}}
	var prompts []protocol.PromptMessage
	for _, block := range contentsOf(version) {
		prompts = append(prompts, protocol.PromptMessage{Role: protocol.RoleUser, Content: block})
	}
	return map[string]any{
		"ListToolsRequest":     request(protocol.MethodListTools, protocol.ListToolsParams{RequestParams: of, Cursor: cursor}),
		"ListToolsResult":      protocol.ListToolsResult{Tools: []*protocol.Tool{tool}, NextCursor: cursor},
		"CallToolRequest":      request(protocol.MethodCallTool, protocol.CallToolParams{RequestParams: of, Name: "add", Arguments: json.RawMessage(`{"a":1}`)}),
		"CallToolResult":       protocol.CallToolResult{Content: contentsOf(version), StructuredContent: json.RawMessage(`{"sum":3}`), IsError: true},
		"ListResourcesRequest": request(protocol.MethodListResources, protocol.ListResourcesParams{RequestParams: of, Cursor: cursor}),
		"ListResourcesResult":  protocol.ListResourcesResult{Resources: []*protocol.Resource{resource}, NextCursor: cursor},
		"ListResourceTemplatesRequest": request(protocol.MethodListResourceTemplates,
			protocol.ListResourceTemplatesParams{RequestParams: of, Cursor: cursor}),
		"ListResourceTemplatesResult": protocol.ListResourceTemplatesResult{ResourceTemplates: []*protocol.ResourceTemplate{template}, NextCursor: cursor},
		"ReadResourceRequest":         request(protocol.MethodReadResource, protocol.ReadResourceParams{RequestParams: of, URI: "file:///a"}),
		"ReadResourceResult":          protocol.ReadResourceResult{Contents: []protocol.ResourceContents{text, {URI: "file:///b", Blob: []byte{1}}}},
		"ListPromptsRequest":          request(protocol.MethodListPrompts, protocol.ListPromptsParams{RequestParams: of, Cursor: cursor}),
		"ListPromptsResult":           protocol.ListPromptsResult{Prompts: []*protocol.Prompt{prompt}, NextCursor: cursor},
		"GetPromptRequest":            request(protocol.MethodGetPrompt, protocol.GetPromptParams{RequestParams: of, Name: "review", Arguments: map[string]string{"file": "a"}}),
		"GetPromptResult":             protocol.GetPromptResult{Description: "d", Messages: prompts},
		"CompleteRequest": request(protocol.MethodComplete, protocol.CompleteParams{RequestParams: of,
			Ref:      protocol.CompleteReference{Type: protocol.ReferencePrompt, Name: "review", Title: title},
			Argument: protocol.CompleteArgument{Name: "file", Value: "a"},
			Context:  since(version, protocol.Version20250618, &protocol.CompleteContext{Arguments: map[string]string{"b": "c"}})}),
		"CompleteResult":        protocol.CompleteResult{Completion: protocol.Completion{Values: []string{"a"}, Total: pointer(int64(7)), HasMore: true}},
		"CancelledNotification": notification(protocol.NotificationCancelled, protocol.CancelledParams{RequestID: jsonrpc.IntegerID(1), Reason: "no"}),
		"ProgressNotification": notification(protocol.NotificationProgress,
			protocol.ProgressParams{ProgressToken: jsonrpc.StringID("t"), Progress: 1, Total: 2, Message: "half"}),
		"LoggingMessageNotification": notification(protocol.NotificationMessage,
			protocol.LogMessageParams{Level: protocol.LogEmergency, Logger: "l", Data: json.RawMessage(`{"a":null}`)}),
		"ResourceUpdatedNotification": notification(protocol.NotificationResourcesUpdated, protocol.ResourceUpdatedParams{URI: "file:///a"}),
		"ToolListChangedNotification": notification(protocol.NotificationToolsListChanged, protocol.NotificationParams{}),
	}
}

// questionsOf returns the input requests of a server and the answers: requests and results in
// the legacy revisions, parts of results and params in the modern ones.
func questionsOf(version string) (questions map[string]protocol.InputRequest, answers map[string]protocol.InputResponse) {
	conversation := []protocol.SamplingMessage{{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("hi")}}}
	sample := &protocol.CreateMessageParams{
		Messages: conversation, MaxTokens: 100, SystemPrompt: "s", IncludeContext: "none", Temperature: pointer(0.0),
		StopSequences: []string{"."}, Metadata: json.RawMessage(`{"a":1}`),
		ModelPreferences: &protocol.ModelPreferences{Hints: []protocol.ModelHint{{Name: "m"}}, CostPriority: pointer(0.0),
			SpeedPriority: pointer(0.5), IntelligencePriority: pointer(1.0)},
	}
	sampled := &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Content: protocol.SamplingContents{protocol.Text("hi")},
		Model: "m", StopReason: protocol.StopEndTurn}
	questions = map[string]protocol.InputRequest{"CreateMessage": sample, "ListRoots": &protocol.ListRootsParams{}}
	answers = map[string]protocol.InputResponse{"CreateMessage": sampled, "ListRoots": &protocol.ListRootsResult{Roots: []protocol.Root{{URI: "file:///a", Name: "a"}}}}
	if version >= protocol.Version20250618 {
		questions["Elicit"] = &protocol.ElicitParams{Message: "Size?",
			RequestedSchema: json.RawMessage(`{"type":"object","properties":{"size":{"type":"integer","minimum":1}},"required":["size"]}`)}
		answers["Elicit"] = &protocol.ElicitResult{Action: protocol.ElicitAccept, Content: json.RawMessage(`{"size":3}`)}
	}
	if version >= protocol.Version20251125 {
		use := &protocol.ToolUseContent{ID: "u", Name: "add", Input: json.RawMessage(`{"a":1}`)}
		sample.Messages = append(conversation,
			protocol.SamplingMessage{Role: protocol.RoleAssistant, Content: protocol.SamplingContents{protocol.Text("a"), use}},
			protocol.SamplingMessage{Role: protocol.RoleUser, Content: protocol.SamplingContents{&protocol.ToolResultContent{
				ToolUseID: "u", Content: contentsOf(version), StructuredContent: json.RawMessage(`{"sum":1}`), IsError: true}}})
		sample.Tools = []*protocol.Tool{{Name: "add", InputSchema: json.RawMessage(`{"type":"object"}`)}}
		sample.ToolChoice = &protocol.ToolChoice{Mode: protocol.ToolChoiceRequired}
		sampled.Content = append(sampled.Content, use)
		page := &protocol.ElicitParams{Mode: protocol.ElicitURL, Message: "Pay?", URL: "https://a/b"}
		if version == protocol.Version20251125 {
			page.ElicitationID = "e"
		}
		questions["Elicit page"], answers["Elicit page"] = page, &protocol.ElicitResult{Action: protocol.ElicitDecline}
	}
	return questions, answers
}

// legacyMessages returns all messages of a legacy revision.
func legacyMessages(t *testing.T, version string) map[string]any {
	all := messages(version, protocol.RequestParams{})
	mode := &protocol.Capability{}
	peer := protocol.Implementation{Name: "c", Version: "1"}
	client := protocol.ClientCapabilities{
		Roots: &protocol.RootsCapability{ListChanged: true}, Sampling: &protocol.SamplingCapability{},
		Elicitation:  since(version, protocol.Version20250618, &protocol.ElicitationCapability{}),
		Experimental: map[string]json.RawMessage{"a": json.RawMessage(`{}`)},
	}
	server := protocol.ServerCapabilities{
		Tools: &protocol.ListCapability{ListChanged: true}, Prompts: &protocol.ListCapability{},
		Resources: &protocol.ResourcesCapability{Subscribe: true, ListChanged: true}, Logging: mode,
		Completions: since(version, protocol.Version20250326, mode),
	}
	if version >= protocol.Version20251125 {
		client.Sampling, client.Elicitation = &protocol.SamplingCapability{Context: mode, Tools: mode}, &protocol.ElicitationCapability{Form: mode, URL: mode}
		client.Tasks = &protocol.TasksCapability{List: mode, Cancel: mode, Requests: map[string]map[string]protocol.Capability{"sampling": {"createMessage": {}}}}
		server.Tasks = &protocol.TasksCapability{List: mode, Cancel: mode, Requests: map[string]map[string]protocol.Capability{"tools": {"call": {}}}}
		peer.Title, peer.Description, peer.WebsiteURL, peer.Icons = "C", "d", "https://a", []protocol.Icon{{Source: "data:,"}}
		legacyTaskMessages(t, all)
	}
	all["InitializeRequest"] = request(protocol.MethodInitialize,
		protocol.InitializeParams{ProtocolVersion: version, ClientInfo: peer, Capabilities: client})
	all["InitializeResult"] = protocol.InitializeResult{ProtocolVersion: version, ServerInfo: peer, Capabilities: server, Instructions: "read me"}
	all["InitializedNotification"] = notification(protocol.NotificationInitialized, protocol.NotificationParams{})
	all["PingRequest"] = request(protocol.MethodPing, protocol.PingParams{})
	all["EmptyResult"] = protocol.EmptyResult{}
	all["SetLevelRequest"] = request(protocol.MethodSetLogLevel, protocol.SetLogLevelParams{Level: protocol.LogNotice})
	all["SubscribeRequest"] = request(protocol.MethodSubscribe, protocol.SubscribeParams{URI: "file:///a"})
	all["UnsubscribeRequest"] = request(protocol.MethodUnsubscribe, protocol.UnsubscribeParams{URI: "file:///a"})
	all["RootsListChangedNotification"] = notification(protocol.NotificationRootsListChanged, protocol.NotificationParams{})
	all["PromptListChangedNotification"] = notification(protocol.NotificationPromptsListChanged, protocol.NotificationParams{})
	all["ResourceListChangedNotification"] = notification(protocol.NotificationResourcesListChanged, protocol.NotificationParams{})
	questions, answers := questionsOf(version)
	for name, question := range questions {
		definition, _, _ := strings.Cut(name, " ")
		all[definition+"Request "+name] = request(question.Method(), question)
		all[definition+"Result "+name] = answers[name]
	}
	return all
}

// legacyTaskMessages adds the messages that only 2025-11-25 has.
func legacyTaskMessages(t *testing.T, all map[string]any) {
	t.Helper()
	task := protocol.LegacyTask{TaskID: "t", Status: protocol.TaskWorking, StatusMessage: "m", CreatedAt: "2026-07-28T00:00:00Z",
		LastUpdatedAt: "2026-07-28T00:00:00Z", TTL: pointer(int64(1)), PollInterval: pointer(int64(2))}
	forever := task
	forever.TTL = nil
	related, err := protocol.Marshal(protocol.RelatedTask{TaskID: "t"})
	if err != nil {
		t.Fatal(err)
	}
	data, err := protocol.Marshal(protocol.URLElicitationData{Elicitations: []*protocol.ElicitParams{
		{Mode: protocol.ElicitURL, Message: "Pay?", URL: "https://a/b", ElicitationID: "e"}}})
	if err != nil {
		t.Fatal(err)
	}
	asTask := &protocol.TaskMetadata{TTL: pointer(int64(5))}
	all["CallToolRequest as a task"] = request(protocol.MethodCallTool, protocol.CallToolParams{Name: "add", Task: asTask})
	all["ElicitRequest as a task"] = request(protocol.MethodElicit, protocol.ElicitParams{Mode: protocol.ElicitForm, Task: asTask,
		RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`)})
	all["Tool for tasks"] = protocol.Tool{InputSchema: json.RawMessage(`{"type":"object"}`), Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskRequired}}
	all["CreateTaskResult"] = protocol.LegacyCreateTaskResult{Task: task, Meta: protocol.Meta{protocol.MetaModelImmediateResponse: json.RawMessage(`"wait"`)}}
	all["GetTaskRequest"] = request(protocol.MethodGetTask, protocol.GetTaskParams{TaskID: "t"})
	all["GetTaskResult"] = protocol.LegacyTaskResult{LegacyTask: forever}
	all["GetTaskPayloadRequest"] = request(protocol.MethodGetTaskResult, protocol.GetTaskResultParams{TaskID: "t"})
	all["GetTaskPayloadResult"] = protocol.CallToolResult{Result: protocol.Result{Meta: protocol.Meta{protocol.MetaRelatedTask: related}}}
	all["CancelTaskRequest"] = request(protocol.MethodCancelTask, protocol.CancelTaskParams{TaskID: "t"})
	all["CancelTaskResult"] = protocol.LegacyTaskResult{LegacyTask: task}
	all["ListTasksRequest"] = request(protocol.MethodListTasks, protocol.ListTasksParams{Cursor: pointer("")})
	all["ListTasksResult"] = protocol.ListTasksResult{Tasks: []*protocol.LegacyTask{&task}, NextCursor: pointer("")}
	all["TaskStatusNotification"] = notification(protocol.NotificationTaskStatus, protocol.TaskStatusParams{LegacyTask: task})
	all["ElicitationCompleteNotification"] = notification(protocol.NotificationElicitationComplete, protocol.ElicitationCompleteParams{ElicitationID: "e"})
	all["URLElicitationRequiredError"] = failure(&jsonrpc.Error{Code: protocol.CodeURLElicitationRequired, Message: "no", Data: data})
}

func TestMessagesFitThePublishedSchemas(t *testing.T) {
	for _, version := range protocol.LegacyVersions() {
		published := specification.Of(version)
		all := legacyMessages(t, version)
		for name, message := range all {
			definition, _, _ := strings.Cut(name, " ")
			if err := fits(t, published, definition, message); err != nil {
				t.Errorf("%s %s: %v", version, name, err)
			}
		}
		testsEveryMessage(t, published, version, all)
	}
}

// testsEveryMessage fails unless there is a message for each request,
// notification and result that a revision defines.
func testsEveryMessage(t *testing.T, published *specification.Revision, version string, all map[string]any) {
	t.Helper()
	tested := map[string]bool{}
	for name := range all {
		definition, _, _ := strings.Cut(name, " ")
		tested[definition] = true
	}
	general := regexp.MustCompile(`^(JSONRPC.*|Client.*|Server.*|Paginated.*|Cacheable.*|Input.*|Request|Notification|Result)$`)
	message := regexp.MustCompile(`(Request|Notification|Result)$`)
	for definition := range published.Definitions() {
		if message.MatchString(definition) && !general.MatchString(definition) && !tested[definition] {
			t.Errorf("%s: no test sends a %s", version, definition)
		}
	}
}

// The schemas refuse invalid messages. Otherwise the other tests would prove nothing.
func TestTheOracleRefuses(t *testing.T) {
	for _, version := range protocol.Versions() {
		if fits(t, specification.Of(version), "CallToolResult", map[string]any{"content": "text"}) == nil {
			t.Errorf("%s: content that is a string was accepted", version)
		}
	}
}
