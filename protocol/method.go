package protocol

import (
	"bytes"
	stdjson "encoding/json"
	"slices"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/go-json-experiment/json/jsontext"
)

// The methods of requests. [MethodInfo] says who sends each of them, and in which
// revisions.
const (
	MethodInitialize = "initialize"
	MethodDiscover   = "server/discover"
	MethodPing       = "ping"

	MethodListTools = "tools/list"
	MethodCallTool  = "tools/call"

	MethodListResources         = "resources/list"
	MethodListResourceTemplates = "resources/templates/list"
	MethodReadResource          = "resources/read"
	MethodSubscribe             = "resources/subscribe"
	MethodUnsubscribe           = "resources/unsubscribe"
	MethodListen                = "subscriptions/listen"

	MethodListPrompts = "prompts/list"
	MethodGetPrompt   = "prompts/get"
	MethodComplete    = "completion/complete"
	MethodSetLogLevel = "logging/setLevel"

	MethodCreateMessage = "sampling/createMessage"
	MethodElicit        = "elicitation/create"
	MethodListRoots     = "roots/list"

	MethodGetTask       = "tasks/get"
	MethodGetTaskResult = "tasks/result"
	MethodListTasks     = "tasks/list"
	MethodCancelTask    = "tasks/cancel"
	MethodUpdateTask    = "tasks/update"

	MethodListSkills    = "skills/list"
	MethodGetSkill      = "skills/get"
	MethodReadDirectory = "resources/directory/read"
)

// The methods of notifications.
const (
	NotificationInitialized          = "notifications/initialized"
	NotificationCancelled            = "notifications/cancelled"
	NotificationProgress             = "notifications/progress"
	NotificationMessage              = "notifications/message"
	NotificationToolsListChanged     = "notifications/tools/list_changed"
	NotificationPromptsListChanged   = "notifications/prompts/list_changed"
	NotificationResourcesListChanged = "notifications/resources/list_changed"
	NotificationResourcesUpdated     = "notifications/resources/updated"
	NotificationRootsListChanged     = "notifications/roots/list_changed"
	NotificationElicitationComplete  = "notifications/elicitation/complete"
	NotificationAcknowledged         = "notifications/subscriptions/acknowledged"
	NotificationTaskStatus           = "notifications/tasks/status" // the tasks of 2025-11-25
	NotificationTask                 = "notifications/tasks"        // the tasks extension
)

// The extensions whose messages this package has.
const (
	ExtensionTasks  = "io.modelcontextprotocol/tasks"
	ExtensionSkills = "io.modelcontextprotocol/skills"
)

// A Sender says who sends the messages of a method.
type Sender uint8

const (
	ByClient Sender = 1 << iota
	ByServer
	ByBoth = ByClient | ByServer
)

// A Method describes a request or notification of the protocol.
type Method struct {
	Name         string
	Notification bool
	Sender       Sender

	// Since and Until are the first and the last revision that have the method. An
	// empty Until means that the newest revision has it.
	Since, Until string

	// NameParam is the member of params that names what the request is about: the
	// value that HTTP mirrors in Mcp-Name. It is empty for most methods.
	NameParam string

	// ServerCapability and ClientCapability are the capabilities that the server
	// and the client must have declared before anybody sends the method, in the
	// form that Has takes. Empty means none. A request that either side may send
	// needs only the capability of its receiver.
	//
	// Two rules do not fit: in 2024-11-05 a server offers completion/complete
	// without any capability, and subscriptions/listen needs any one of the
	// listChanged and subscribe flags.
	ServerCapability, ClientCapability string

	// Extension is the extension that defines the method in the modern revisions.
	// There it replaces both capabilities: client and server must have declared it.
	// ExtensionSkills is an exception: only the server must declare it.
	Extension string
}

// In reports whether a revision has the method.
func (m Method) In(version string) bool {
	return isWithin(version, m.Since, m.Until)
}

// Legacy reports whether any legacy revision has the method.
func (m Method) Legacy() bool { return m.Since <= LatestLegacy }

// Modern reports whether any modern revision has the method.
func (m Method) Modern() bool { return m.Until == "" }

// NameOf returns the value of the member NameParam in params: "" if there is
// none, or it is not a string. It looks at the first such member only; decoding
// the params refuses a second one.
func (m Method) NameOf(params stdjson.RawMessage) string {
	if m.NameParam == "" {
		return ""
	}
	value, _ := jsonrpc.Member(params, m.NameParam)
	if len(value) > 1 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1])
	}
	name, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return ""
	}
	return string(name)
}

// MethodInfo describes a method. It reports false for one that no revision has.
func MethodInfo(method string) (Method, bool) {
	i, ok := methodIndex[method]
	if !ok {
		return Method{}, false
	}
	return methods[i], true
}

// Methods lists every method of the protocol, requests first.
func Methods() []Method { return slices.Clone(methods) }

var methodIndex = indexMethods()

func indexMethods() map[string]int {
	index := make(map[string]int, len(methods))
	for i, m := range methods {
		index[m.Name] = i
	}
	return index
}

const (
	v2411 = Version20241105
	v2506 = Version20250618
	v2511 = Version20251125
	v2607 = Version20260728
)

var methods = []Method{
	{Name: MethodInitialize, Sender: ByClient, Since: v2411, Until: v2511},
	{Name: MethodDiscover, Sender: ByClient, Since: v2607},
	{Name: MethodPing, Sender: ByBoth, Since: v2411, Until: v2511},

	{Name: MethodListTools, Sender: ByClient, Since: v2411, ServerCapability: "tools"},
	{Name: MethodCallTool, Sender: ByClient, Since: v2411, ServerCapability: "tools", NameParam: "name"},

	{Name: MethodListResources, Sender: ByClient, Since: v2411, ServerCapability: "resources"},
	{Name: MethodListResourceTemplates, Sender: ByClient, Since: v2411, ServerCapability: "resources"},
	{Name: MethodReadResource, Sender: ByClient, Since: v2411, ServerCapability: "resources", NameParam: "uri"},
	{Name: MethodSubscribe, Sender: ByClient, Since: v2411, Until: v2511, ServerCapability: "resources.subscribe"},
	{Name: MethodUnsubscribe, Sender: ByClient, Since: v2411, Until: v2511, ServerCapability: "resources.subscribe"},
	{Name: MethodListen, Sender: ByClient, Since: v2607},

	{Name: MethodListPrompts, Sender: ByClient, Since: v2411, ServerCapability: "prompts"},
	{Name: MethodGetPrompt, Sender: ByClient, Since: v2411, ServerCapability: "prompts", NameParam: "name"},
	{Name: MethodComplete, Sender: ByClient, Since: v2411, ServerCapability: "completions"},
	{Name: MethodSetLogLevel, Sender: ByClient, Since: v2411, Until: v2511, ServerCapability: "logging"},

	// In the modern revisions these three travel inside of a result: see InputRequired.
	{Name: MethodCreateMessage, Sender: ByServer, Since: v2411, Until: v2511, ClientCapability: "sampling"},
	{Name: MethodElicit, Sender: ByServer, Since: v2506, Until: v2511, ClientCapability: "elicitation"},
	{Name: MethodListRoots, Sender: ByServer, Since: v2411, Until: v2511, ClientCapability: "roots"},

	// In the modern revisions only clients send these.
	{Name: MethodGetTask, Sender: ByBoth, Since: v2511, ServerCapability: "tasks", ClientCapability: "tasks", Extension: ExtensionTasks, NameParam: "taskId"},
	{Name: MethodCancelTask, Sender: ByBoth, Since: v2511, ServerCapability: "tasks.cancel", ClientCapability: "tasks.cancel", Extension: ExtensionTasks, NameParam: "taskId"},
	{Name: MethodGetTaskResult, Sender: ByBoth, Since: v2511, Until: v2511, ServerCapability: "tasks", ClientCapability: "tasks"},
	{Name: MethodListTasks, Sender: ByBoth, Since: v2511, Until: v2511, ServerCapability: "tasks.list", ClientCapability: "tasks.list"},
	{Name: MethodUpdateTask, Sender: ByClient, Since: v2607, Extension: ExtensionTasks, NameParam: "taskId"},

	{Name: MethodListSkills, Sender: ByClient, Since: v2607, Extension: ExtensionSkills},
	{Name: MethodGetSkill, Sender: ByClient, Since: v2607, Extension: ExtensionSkills},
	{Name: MethodReadDirectory, Sender: ByClient, Since: v2607, Extension: ExtensionSkills},

	{Name: NotificationInitialized, Notification: true, Sender: ByClient, Since: v2411, Until: v2511},
	{Name: NotificationCancelled, Notification: true, Sender: ByBoth, Since: v2411},
	{Name: NotificationProgress, Notification: true, Sender: ByBoth, Since: v2411},
	{Name: NotificationMessage, Notification: true, Sender: ByServer, Since: v2411, ServerCapability: "logging"},
	{Name: NotificationToolsListChanged, Notification: true, Sender: ByServer, Since: v2411, ServerCapability: "tools.listChanged"},
	{Name: NotificationPromptsListChanged, Notification: true, Sender: ByServer, Since: v2411, ServerCapability: "prompts.listChanged"},
	{Name: NotificationResourcesListChanged, Notification: true, Sender: ByServer, Since: v2411, ServerCapability: "resources.listChanged"},
	{Name: NotificationResourcesUpdated, Notification: true, Sender: ByServer, Since: v2411, ServerCapability: "resources.subscribe"},
	{Name: NotificationRootsListChanged, Notification: true, Sender: ByClient, Since: v2411, Until: v2511, ClientCapability: "roots.listChanged"},
	{Name: NotificationElicitationComplete, Notification: true, Sender: ByServer, Since: v2511, Until: v2511, ClientCapability: "elicitation.url"},
	{Name: NotificationAcknowledged, Notification: true, Sender: ByServer, Since: v2607},
	{Name: NotificationTaskStatus, Notification: true, Sender: ByBoth, Since: v2511, Until: v2511},
	{Name: NotificationTask, Notification: true, Sender: ByServer, Since: v2607, Extension: ExtensionTasks},
}
