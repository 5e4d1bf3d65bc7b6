package protocol

import (
	"encoding/json"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// InitializeParams opens a legacy session.
type InitializeParams struct {
	RequestParams
	ProtocolVersion string             `json:"protocolVersion"`
	Capabilities    ClientCapabilities `json:"capabilities"`
	ClientInfo      Implementation     `json:"clientInfo"`
}

// InitializeResult accepts a legacy session.
type InitializeResult struct {
	Meta            Meta               `json:"_meta,omitzero"`
	ProtocolVersion string             `json:"protocolVersion"`
	Capabilities    ServerCapabilities `json:"capabilities"`
	ServerInfo      Implementation     `json:"serverInfo"`
	Instructions    string             `json:"instructions,omitzero"` // for the model: how to use the server
}

// DiscoverParams asks a server to describe itself and its revisions (2026-07-28
// server/discover).
type DiscoverParams struct {
	RequestParams
}

// DiscoverResult describes a server. The server's name is in _meta, under
// MetaServerInfo.
type DiscoverResult struct {
	CacheableResult
	// SupportedVersions are at most MaxParts when they are decoded.
	// Absent ones are nil.
	SupportedVersions []string           `json:"supportedVersions" most:"MaxParts supported versions"`
	Capabilities      ServerCapabilities `json:"capabilities"`
	Instructions      string             `json:"instructions,omitzero"`
}

// PingParams asks whether the peer is alive. The result is an EmptyResult.
type PingParams struct {
	RequestParams
}

// CancelledParams says that the sender no longer wants the answer to a request
// that it made.
type CancelledParams struct {
	NotificationParams
	RequestID jsonrpc.ID `json:"requestId"`
	Reason    string     `json:"reason,omitzero"`
}

// ProgressParams reports the progress of a request. The token is the one in the
// _meta of the request, under MetaProgressToken.
type ProgressParams struct {
	NotificationParams
	ProgressToken jsonrpc.ID `json:"progressToken"`
	Progress      float64    `json:"progress"`         // larger with each notification
	Total         float64    `json:"total,omitzero"`   // 0 when unknown
	Message       string     `json:"message,omitzero"` // since 2025-03-26
}

// A LogLevel says how severe a log message is (RFC 5424).
type LogLevel string

// The log levels, least severe first.
const (
	LogDebug     LogLevel = "debug"
	LogInfo      LogLevel = "info"
	LogNotice    LogLevel = "notice"
	LogWarning   LogLevel = "warning"
	LogError     LogLevel = "error"
	LogCritical  LogLevel = "critical"
	LogAlert     LogLevel = "alert"
	LogEmergency LogLevel = "emergency"
)

// Severity returns a number that grows with the severity, from 0 for LogDebug to
// 7 for LogEmergency. It returns -1 for an unknown level.
func (l LogLevel) Severity() int {
	switch l {
	case LogDebug:
		return 0
	case LogInfo:
		return 1
	case LogNotice:
		return 2
	case LogWarning:
		return 3
	case LogError:
		return 4
	case LogCritical:
		return 5
	case LogAlert:
		return 6
	case LogEmergency:
		return 7
	default:
		return -1
	}
}

// SetLogLevelParams asks a legacy server for log messages of a level and above.
// A modern request carries the level under MetaLogLevel. The result is an
// EmptyResult.
type SetLogLevelParams struct {
	RequestParams
	Level LogLevel `json:"level"`
}

// LogMessageParams is a log message of a server. Never put credentials or
// personal data into it.
type LogMessageParams struct {
	NotificationParams
	Level  LogLevel        `json:"level"`
	Logger string          `json:"logger,omitzero"`
	Data   json.RawMessage `json:"data"` // any value: a text, or an object
}
