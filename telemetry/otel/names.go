package otel

import "go.opentelemetry.io/otel/attribute"

// The names of the semantic conventions for MCP (status: development).
const (
	keyMethod          = attribute.Key("mcp.method.name")
	keyTool            = attribute.Key("gen_ai.tool.name")
	keyPrompt          = attribute.Key("gen_ai.prompt.name")
	keyOperation       = attribute.Key("gen_ai.operation.name")
	keyArguments       = attribute.Key("gen_ai.tool.call.arguments")
	keyRequestID       = attribute.Key("jsonrpc.request.id")
	keyStatusCode      = attribute.Key("rpc.response.status_code")
	keyErrorType       = attribute.Key("error.type")
	keyProtocolVersion = attribute.Key("mcp.protocol.version")
	keyResourceURI     = attribute.Key("mcp.resource.uri")
	keyTransport       = attribute.Key("network.transport")
	keyProtocolName    = attribute.Key("network.protocol.name")
	keyProtocolHTTP    = attribute.Key("network.protocol.version")
	keyServerAddress   = attribute.Key("server.address")
	keyServerPort      = attribute.Key("server.port")
	keyClientAddress   = attribute.Key("client.address")
	keyClientPort      = attribute.Key("client.port")
	keySessionID       = attribute.Key("mcp.session.id")

	executeTool = "execute_tool" // gen_ai.operation.name of tools/call
	toolError   = "tool_error"   // error.type of a result with isError

	clientDuration        = "mcp.client.operation.duration"
	serverDuration        = "mcp.server.operation.duration"
	clientSessionDuration = "mcp.client.session.duration"
	serverSessionDuration = "mcp.server.session.duration"
)

// The names of our own.
const (
	keyConn       = attribute.Key("bowline.conn")
	keyEpoch      = attribute.Key("bowline.epoch")
	keyAttempt    = attribute.Key("bowline.attempt")
	keyAttempts   = attribute.Key("bowline.attempts")
	keyCause      = attribute.Key("bowline.cause")
	keyDelivery   = attribute.Key("bowline.delivery")
	keyResult     = attribute.Key("bowline.result")
	keyReason     = attribute.Key("bowline.reason")
	keyState      = attribute.Key("bowline.state")
	keyWhere      = attribute.Key("bowline.where")
	keyWhy        = attribute.Key("bowline.why")
	keySupervisor = attribute.Key("bowline.supervisor")
	keyGate       = attribute.Key("bowline.gate")
	keyHandler    = attribute.Key("bowline.handler")
	keyResource   = attribute.Key("bowline.resource")
	keyHTTPStatus = attribute.Key("bowline.status")

	other = "_OTHER" // replaces names that are not listed, and everything beyond a limit
)

// durations are the buckets that the conventions want, in seconds.
var durations = []float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}

// fineDurations are for Options.FineBuckets, in seconds.
var fineDurations = []float64{0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005}
