package refusal

import (
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Negotiate returns the version with which a server answers initialize: the requested
// version if it is supported, or otherwise the newest supported one. It returns "" if
// supported contains no legacy revision. Modern revisions have no handshake, so Negotiate
// ignores them.
func Negotiate(requested string, supported []string) string {
	newest := ""
	for _, version := range supported {
		switch {
		case protocol.IsModern(version):
			continue
		case version == requested:
			return version
		}
		newest = max(newest, version) // dates sort by age
	}
	return newest
}

// longestVersion bounds how many bytes of a requested revision are sent back.
const longestVersion = 64

// Unsupported returns the error that answers a request of an unsupported
// revision. It repeats the requested revision, cut to 64 bytes.
func Unsupported(requested string, supported []string) *jsonrpc.Error {
	requested = requested[:min(len(requested), longestVersion)]
	data, err := protocol.Marshal(protocol.UnsupportedVersionData{Supported: supported, Requested: requested})
	if err != nil { // strings can be encoded
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
	}
	return &jsonrpc.Error{Code: protocol.CodeUnsupportedVersion, Message: "unsupported protocol version", Data: data}
}
