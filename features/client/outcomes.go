package client

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// isRefused reports whether the machine itself refused a connection: nothing listens at
// the address, or there is no such host.
func isRefused(err error) bool {
	const onWindows = syscall.Errno(10061) // WSAECONNREFUSED
	var lookup *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, onWindows) || errors.As(err, &lookup) && lookup.IsNotFound
}

// isHopeless reports whether a server could not be reached for a reason that waiting
// does not remove.
func isHopeless(why conn.Reason) bool {
	if why.Kind == conn.CrashLooping {
		errors.As(why.Err, &why)
	}
	switch why.Kind {
	case conn.ExecutableMissing, conn.Incompatible, conn.AuthRequired, conn.Exited, conn.Malformed, conn.Oversized:
		return true
	}
	var fault *jsonrpc.Error
	var status *transport.StatusError
	switch {
	case errors.As(why.Err, &status):
		return !mayPass(status.Status)
	case errors.As(why.Err, &fault): // the server refused initialize
		return fault.Code == jsonrpc.CodeMethodNotFound || fault.Code == jsonrpc.CodeInvalidParams || fault.Code == jsonrpc.CodeInvalidRequest
	case errors.As(why.Err, new(*transport.StartError)):
		var passing interface{ Temporary() bool }
		return !errors.As(why.Err, &passing) || !passing.Temporary()
	default:
		return errors.Is(why.Err, transport.ErrUntrusted) || errors.As(why.Err, new(*ResultError)) || endedUnanswered(why.Err)
	}
}

// mayPass reports whether an HTTP server that answers with this status may later work as
// an MCP server: it is overloaded, starting or failing.
func mayPass(status int) bool {
	switch status {
	case 408, 425, 429:
		return true
	case 501, 505: // the server does not support POST, or this version of HTTP
		return false
	default:
		return status >= 500
	}
}

// isLegacy reports whether server/discover shows that the server supports no modern
// revision, or none that this client supports.
func isLegacy(outcome error) bool {
	var status *transport.StatusError
	var fault *jsonrpc.Error
	switch {
	case outcome == nil:
		return false
	case errors.As(outcome, &status) && (status.Denied() || status.Overloaded()):
		return false // the server does not answer this client, or not at present
	case errors.Is(outcome, &jsonrpc.Error{Code: jsonrpc.CodeOverloaded}):
		return false
	case errors.Is(outcome, errNoModernVersion), errors.As(outcome, new(*ResultError)):
		return true
	case errors.As(outcome, &fault):
		return !revision.IsModernCode(fault.Code) || slices.ContainsFunc(supportedVersions(fault), protocol.IsLegacy)
	default:
		return status != nil || endedUnanswered(outcome) || errors.Is(outcome, conn.ErrTimedOut)
	}
}

// errNoModernVersion says that a server answers server/discover, but supports no modern
// revision that this client supports.
var errNoModernVersion = errors.New("client: no modern revision in common")

// supportedVersions returns the revisions that a server lists when it refuses one.
func supportedVersions(outcome error) []string {
	var fault *jsonrpc.Error
	var data protocol.UnsupportedVersionData
	if !errors.As(outcome, &fault) || fault.Code != protocol.CodeUnsupportedVersion || protocol.Unmarshal(fault.Data, &data) != nil {
		return nil
	}
	return data.Supported
}

// refusesOwnVersion reports whether a server refuses a revision that it lists as
// supported. The client then asks once more (2026-07-28 basic/versioning).
func refusesOwnVersion(outcome error, version string) bool {
	return slices.Contains(supportedVersions(outcome), version)
}

// incompatible marks an outcome of server/discover that does not change by waiting.
func incompatible(outcome error) error {
	var fault *jsonrpc.Error
	var status *transport.StatusError
	if errors.As(outcome, &status) && (status.Status == 429 || status.Status >= 500) {
		return outcome // the outcome has nothing to do with the server's revisions
	}
	if isLegacy(outcome) || errors.As(outcome, &fault) && fault.Code == protocol.CodeUnsupportedVersion {
		return fmt.Errorf("%w: %w", conn.ErrIncompatible, outcome)
	}
	return outcome
}

// endedUnanswered reports whether the server properly ended the stream of the request
// without an answer, while the link is still open.
func endedUnanswered(outcome error) bool {
	var why conn.Reason
	return errors.As(outcome, &why) && why.Kind == conn.StreamLost && errors.Is(why, transport.ErrPeerClosed)
}
