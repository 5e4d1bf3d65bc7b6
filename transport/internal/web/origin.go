package web

import (
	"net/http"

	"github.com/bowline-mcp/bowline/transport"
)

// OriginOf returns where the message of a request came from.
func OriginOf(r *http.Request, identity string) *transport.Origin {
	origin := &transport.Origin{RemoteAddr: r.RemoteAddr, Headers: r.Header, Identity: identity, Value: r.Context().Value}
	if r.TLS != nil {
		origin.TLS = r.TLS
	}
	return origin
}
