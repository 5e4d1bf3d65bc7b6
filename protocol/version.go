package protocol

import (
	stdjson "encoding/json"
	"slices"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// The revisions of the protocol. A legacy session begins with a handshake; in a
// modern revision every request stands alone (2026-07-28 basic/versioning).
const (
	Version20241105 = "2024-11-05" // legacy
	Version20250326 = "2025-03-26" // legacy
	Version20250618 = "2025-06-18" // legacy
	Version20251125 = "2025-11-25" // legacy
	Version20260728 = "2026-07-28" // modern
)

const (
	LatestLegacy = Version20251125 // the newest revision that initialize can negotiate
	Latest       = Version20260728 // the newest revision
)

// Versions lists every revision, oldest first.
func Versions() []string { return append(LegacyVersions(), ModernVersions()...) }

// LegacyVersions lists the revisions that initialize can negotiate, oldest first.
func LegacyVersions() []string {
	return []string{Version20241105, Version20250326, Version20250618, Version20251125}
}

// IsLegacy reports whether initialize can negotiate version.
func IsLegacy(version string) bool { return slices.Contains(LegacyVersions(), version) }

// isWithin reports whether version is one of the revisions from since to until, both included.
// Without an until, there is no last one.
func isWithin(version, since, until string) bool {
	return since <= version && (until == "" || version <= until) // dates sort by age
}

// ModernVersions lists the revisions that a request names in its _meta, oldest
// first.
func ModernVersions() []string { return []string{Version20260728} }

// IsModern reports whether version is a known revision that a request names in
// its _meta.
func IsModern(version string) bool { return slices.Contains(ModernVersions(), version) }

// The error codes that MCP defines, beside those of JSON-RPC. Over HTTP each of
// the modern ones has the status 400 (2026-07-28 basic/index).
const (
	CodeHeaderMismatch     = -32020 // HTTP headers are missing, or differ from the body
	CodeMissingCapability  = -32021 // the client did not declare what the request needs: MissingCapabilityData
	CodeUnsupportedVersion = -32022 // the server does not support the revision: UnsupportedVersionData

	CodeUserRejected           = -1     // legacy: the user refused sampling
	CodeResourceNotFound       = -32002 // legacy: ResourceNotFoundData; modern servers send jsonrpc.CodeInvalidParams
	CodeURLElicitationRequired = -32042 // 2025-11-25 only: URLElicitationData
)

// The reasons that the data of an error of jsonrpc.CodeInvalidParams of a Bowline server may
// give.
const (
	ReasonMeta         = "invalid_meta"          // the _meta of a modern request is malformed
	ReasonRequestState = "invalid_request_state" // a requestState is unknown, was used, or has expired: make the call anew
)

// InvalidParams returns an error of jsonrpc.CodeInvalidParams that gives a reason, which must
// need no escapes in JSON.
func InvalidParams(reason, message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: message, Data: stdjson.RawMessage(`{"reason":"` + reason + `"}`)}
}

// IsInvalidParams reports whether an error is one of jsonrpc.CodeInvalidParams that gives this
// reason.
func IsInvalidParams(fault *jsonrpc.Error, reason string) bool {
	var data struct {
		Reason string `json:"reason"`
	}
	return fault != nil && fault.Code == jsonrpc.CodeInvalidParams && Unmarshal(fault.Data, &data) == nil && data.Reason == reason
}

// MissingCapabilityData is the data of a CodeMissingCapability error. It names
// what the client would have to declare.
type MissingCapabilityData struct {
	RequiredCapabilities ClientCapabilities `json:"requiredCapabilities"`
}

// UnsupportedVersionData is the data of a CodeUnsupportedVersion error. Supported
// may name legacy revisions: use initialize for those.
type UnsupportedVersionData struct {
	// Supported are at most MaxParts when they are decoded.
	Supported []string `json:"supported" most:"MaxParts supported versions"`
	Requested string   `json:"requested"`
}

// ResourceNotFoundData is the data of an error about a resource that does not
// exist.
type ResourceNotFoundData struct {
	URI string `json:"uri"`
}
