package streamable

import (
	"net/http"

	"github.com/bowline-mcp/bowline/transport"
)

// originOf says who sent a request.
func originOf(r *http.Request, identity string) *transport.Origin {
	origin := &transport.Origin{RemoteAddr: r.RemoteAddr, Headers: r.Header, Identity: identity, Value: r.Context().Value}
	if r.TLS != nil {
		origin.TLS = r.TLS
	}
	return origin
}

func (h *Handler) identify(r *http.Request) string {
	if h.options.Identify == nil {
		return ""
	}
	return h.options.Identify(r)
}
