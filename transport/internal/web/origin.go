package web

import (
	"net/http"
	"strings"

	"github.com/bowline-mcp/bowline/transport"
)

// versionOf returns the version of HTTP, as others write it: HTTP/2 has no minor one.
func versionOf(r *http.Request) string {
	version := strings.TrimPrefix(r.Proto, "HTTP/")
	if r.ProtoMajor >= 2 {
		version = strings.TrimSuffix(version, ".0")
	}
	return version
}

// OriginOf returns where the message of a request came from.
func OriginOf(r *http.Request, identity string) *transport.Origin {
	origin := &transport.Origin{RemoteAddr: r.RemoteAddr, Headers: r.Header, HTTP: versionOf(r), Identity: identity, Value: r.Context().Value}
	if r.TLS != nil {
		origin.TLS = r.TLS
	}
	return origin
}
