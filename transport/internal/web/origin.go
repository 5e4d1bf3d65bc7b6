package web

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/bowline-mcp/bowline/internal/network"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/transport"
)

// VersionOf returns the version in a protocol such as "HTTP/1.1". HTTP/2 and HTTP/3 have
// no minor version.
func VersionOf(protocol string) string {
	if protocol == "HTTP/1.1" {
		return "1.1" // a constant, which does not keep the line that it was read from
	}
	version := strings.TrimPrefix(protocol, "HTTP/")
	if version != "1.0" {
		version = strings.TrimSuffix(version, ".0")
	}
	return version
}

// OriginOf returns where the message of a request came from.
func OriginOf(r *http.Request, identity string) *transport.Origin {
	origin := &transport.Origin{RemoteAddr: r.RemoteAddr, Client: network.Client(r.Context()), Headers: r.Header, HTTP: VersionOf(r.Proto), Identity: identity, Value: r.Context().Value}
	if r.TLS != nil {
		origin.TLS = r.TLS
	}
	return origin
}

// AddressOf returns the address of the client of a request.
func AddressOf(r *http.Request) string { return cmp.Or(network.Client(r.Context()), r.RemoteAddr) }

// ClientOf returns whose share of a handler a request uses: that of its identity or, if that is empty, of the network
// of its address.
func ClientOf(identity, address string) share.Client {
	if identity != "" {
		return share.Client{Identity: identity}
	}
	return share.Client{Network: network.Of(address)}
}
