package protocol

import "github.com/bowline-mcp/bowline/protocol/jsonrpc"

// Error codes of the modern revisions (2026-07-28 basic/index). Over HTTP each
// of them has the status 400.
const (
	CodeHeaderMismatch     = -32020 // HTTP headers are missing, or say other than the body
	CodeMissingCapability  = -32021 // the request needs what its client has not declared: MissingCapabilityData
	CodeUnsupportedVersion = -32022 // the server does not speak the revision: UnsupportedVersionData
)

// IsModernError reports whether only a server of a modern revision answers with
// code: a client that sees it need not fall back to initialize.
func IsModernError(code int64) bool {
	return CodeUnsupportedVersion <= code && code <= CodeHeaderMismatch
}

// MissingCapabilityData says what a client would have to declare.
type MissingCapabilityData struct {
	RequiredCapabilities ClientCapabilities `json:"requiredCapabilities"`
}

// UnsupportedVersionData says which revisions a server speaks. Legacy ones may
// be among them: those are negotiated by initialize.
type UnsupportedVersionData struct {
	Supported SupportedVersions `json:"supported"`
	Requested string            `json:"requested"`
}

// longestVersion is how much of a revision's name is sent back, in bytes.
const longestVersion = 64

// UnsupportedVersion is the answer to a request of a revision that is not
// supported. What is requested is sent back, cut to 64 bytes.
func UnsupportedVersion(requested string, supported []string) *jsonrpc.Error {
	requested = requested[:min(len(requested), longestVersion)]
	data, err := Marshal(UnsupportedVersionData{Supported: supported, Requested: requested})
	if err != nil { // strings can be encoded
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
	}
	return &jsonrpc.Error{Code: CodeUnsupportedVersion, Message: "unsupported protocol version", Data: data}
}
