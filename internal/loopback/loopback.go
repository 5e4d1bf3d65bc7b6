// Package loopback recognizes what stays on this machine: requests to servers that a browser must
// not reach under a name that an attacker has rebound, and addresses to which secrets may go over
// plain http.
package loopback

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
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

// KeepsSecrets reports whether nobody on the way can read what is sent to a URL: over https, or
// over http to this machine.
func KeepsSecrets(to *url.URL) bool {
	host := to.Hostname()
	local := host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host).IsLoopback()
	return to.Scheme == "https" || to.Scheme == "http" && local
}
