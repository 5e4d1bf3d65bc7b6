// Package loopback recognizes what stays on this machine, for servers that a browser must not
// reach under a name that an attacker has rebound.
package loopback

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Received reports whether a request arrived on a loopback address.
func Received(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.IsLoopback()
}

// Name returns a host without its port and its brackets.
func Name(host string) string {
	name := host
	if bare, _, err := net.SplitHostPort(host); err == nil {
		name = bare
	}
	return strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
}

// IsName reports whether a name is localhost or a loopback address.
func IsName(name string) bool {
	address, err := netip.ParseAddr(name)
	return err == nil && address.Unmap().IsLoopback() || strings.EqualFold(name, "localhost")
}
