package streamable

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// These are the headers of MCP, and Last-Event-ID of HTML's server-sent events.
const (
	headerVersion     = "Mcp-Protocol-Version"
	headerSession     = "Mcp-Session-Id"
	headerMethod      = "Mcp-Method"
	headerName        = "Mcp-Name"
	headerArgument    = "Mcp-Param-" // followed by the name of an argument
	headerLastEventID = "Last-Event-ID"
)

// typeBoth is what clients accept.
const typeBoth = web.TypeJSON + ", " + web.TypeEvents

// accepts reports whether a request accepts a media type: by its name, by a wildcard, or
// because there is no Accept header.
func accepts(header http.Header, mediaType string) bool {
	lists := header["Accept"]
	if len(lists) == 1 && lists[0] == typeBoth && (mediaType == web.TypeJSON || mediaType == web.TypeEvents) {
		return true
	}
	for _, list := range lists {
		for entry := range strings.SplitSeq(list, ",") {
			mediaRange, parameters, _ := strings.Cut(entry, ";")
			if matches(strings.TrimSpace(mediaRange), mediaType) && !excludes(parameters) {
				return true
			}
		}
	}
	return len(lists) == 0
}

func matches(mediaRange, mediaType string) bool {
	if mediaRange == "*/*" || strings.EqualFold(mediaRange, mediaType) {
		return true
	}
	kind, isWildcard := strings.CutSuffix(mediaRange, "/*")
	return isWildcard && strings.HasPrefix(mediaType, strings.ToLower(kind)+"/")
}

// excludes reports whether the parameters contain a quality of zero (RFC 9110, section
// 12.4.2).
func excludes(parameters string) bool {
	for parameter := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
		if strings.EqualFold(name, "q") && value != "" && strings.Trim(value, "0.") == "" {
			return true
		}
	}
	return false
}

// namesModern reports whether the version header names a revision without sessions.
func namesModern(header http.Header) bool {
	version := header.Get(headerVersion)
	return isDate(version) && revision.Has(version, revision.NoSessions)
}

// isDate reports whether a text has the form of a revision, such as 2026-07-28.
func isDate(s string) bool {
	if len(s) != len(protocol.Latest) {
		return false
	}
	for i := range len(s) {
		if dash := i == 4 || i == 7; dash != (s[i] == '-') || !dash && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return true
}

// isToken reports whether a value is visible ASCII of a length from 1 to limit.
func isToken(value string, limit int) bool {
	return value != "" && len(value) <= limit &&
		strings.IndexFunc(value, func(c rune) bool { return !isVisible(c) }) < 0
}

// isVisible reports whether c is a visible ASCII character.
func isVisible(c rune) bool { return '!' <= c && c <= '~' }

// differs returns how a header differs from the value that it should mirror, or "" if it
// is correct.
// A header that is given twice is refused: others may read the first one, or the last.
func differs(header http.Header, name, want string, decode func(string) (string, error)) string {
	values := header[name]
	if len(values) == 0 {
		return fmt.Sprintf("%s is missing: the message has %.80q", name, want)
	}
	if len(values) > 1 {
		return fmt.Sprintf("%s is given %d times", name, len(values))
	}
	got, err := decode(values[0])
	if err != nil {
		return fmt.Sprintf("%s is %.80q, which cannot be decoded: the message has %.80q", name, values[0], want)
	}
	if got != want {
		return fmt.Sprintf("%s is %.80q, but the message has %.80q", name, got, want)
	}
	return ""
}

func verbatim(value string) (string, error) { return value, nil }

// These are the headers between nodes.
const (
	// headerForwarded says that a request was already forwarded to a node.
	headerForwarded = "Mcp-Session-Forwarded"

	// headerOwner names the node that has the session, in a response with status 421 to
	// another node.
	headerOwner = "Mcp-Session-Node"

	// headerChecked says, in a request that a node has forwarded and in a response with status
	// 421, that HandlerOptions.Check of a node has accepted the request.
	headerChecked = "Mcp-Session-Checked"
)
