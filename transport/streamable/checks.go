package streamable

import (
	"fmt"
	"net/http"
	"strings"

	httpheader "github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// checkSource refuses requests that a browser sends for a page of another site, or under
// a rebound host name (HandlerOptions.AllowedOrigins, AllowedHosts).
func (o *HandlerOptions) checkSource(r *http.Request) *refusal {
	allowed := web.Allowed{Origins: o.AllowedOrigins, Hosts: o.AllowedHosts}
	if err := allowed.Check(r); err != nil {
		return &refusal{status: http.StatusForbidden, text: err.Error()}
	}
	return nil
}

// checkMediaTypes checks the type of a POSTed body, and the response types that the
// client accepts.
func checkMediaTypes(header http.Header) *refusal {
	problem := web.CheckBody(header)
	switch {
	case problem != "":
		return &refusal{status: http.StatusUnsupportedMediaType, text: problem}
	case !accepts(header, web.TypeJSON) || !accepts(header, web.TypeEvents):
		return &refusal{status: http.StatusNotAcceptable, text: "Accept must include " + web.TypeJSON + " and " + web.TypeEvents}
	default:
		return nil
	}
}

// checkLegacyVersion checks the version header of a request with a session.
func checkLegacyVersion(header http.Header, id jsonrpc.ID) *refusal {
	if version := header.Get(headerVersion); version != "" && !protocol.IsLegacy(version) {
		return invalid(id, "%s is %.80q: supported with a session are %s", headerVersion, version,
			strings.Join(protocol.LegacyVersions(), ", "))
	}
	return nil
}

// checkMirrors compares a modern message with the headers that mirror it. It accepts a
// message that names no revision; other checks refuse that.
func checkMirrors(header http.Header, m *body) *refusal {
	text := ""
	if m.modern() {
		text = differs(header, headerVersion, textOf(m.meta.Version), verbatim)
	}
	if isRequest := m.Kind == jsonrpc.KindRequest; text == "" && (isRequest || len(header[headerMethod]) > 0) {
		text = differs(header, headerMethod, m.Method, verbatim)
	}
	method, _ := protocol.MethodInfo(m.Method)
	if name := method.NameOf(m.Params); text == "" && (name != "" || method.NameParam != "" && len(header[headerName]) > 0) {
		text = differs(header, headerName, name, httpheader.Decode)
	}
	if text == "" {
		return nil
	}
	return &refusal{status: http.StatusBadRequest, code: protocol.CodeHeaderMismatch, id: m.requestID(), text: text}
}

// differs returns how a header differs from the value that it should mirror, or "" if it
// is correct.
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
