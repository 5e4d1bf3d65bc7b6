package protocol

// Methods of requests.
const (
	MethodInitialize = "initialize" // legacy
	MethodPing       = "ping"       // legacy
	MethodListTools  = "tools/list"
	MethodCallTool   = "tools/call"
	MethodDiscover   = "server/discover"      // since 2026-07-28
	MethodListen     = "subscriptions/listen" // since 2026-07-28

	MethodCreateMessage = "sampling/createMessage" // a server's, legacy
	MethodElicit        = "elicitation/create"     // a server's, legacy
	MethodListRoots     = "roots/list"             // a server's, legacy
)

// Methods of notifications.
const (
	NotificationInitialized          = "notifications/initialized" // legacy
	NotificationCancelled            = "notifications/cancelled"
	NotificationProgress             = "notifications/progress"
	NotificationMessage              = "notifications/message"
	NotificationToolsListChanged     = "notifications/tools/list_changed"
	NotificationPromptsListChanged   = "notifications/prompts/list_changed"
	NotificationResourcesListChanged = "notifications/resources/list_changed"
	NotificationResourcesUpdated     = "notifications/resources/updated"
	NotificationAcknowledged         = "notifications/subscriptions/acknowledged" // since 2026-07-28
)
