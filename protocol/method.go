package protocol

// Methods of requests.
const (
	MethodInitialize = "initialize"
	MethodPing       = "ping"
	MethodListTools  = "tools/list"
	MethodCallTool   = "tools/call"
)

// Methods of notifications.
const (
	NotificationInitialized = "notifications/initialized"
	NotificationCancelled   = "notifications/cancelled"
	NotificationProgress    = "notifications/progress"
)
