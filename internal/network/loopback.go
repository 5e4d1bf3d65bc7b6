package network

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// OnLoopback reports whether a request arrived on a loopback address. A browser must not reach a server there
// under a name that an attacker has rebound.
func OnLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.IsLoopback()
}

// NameOf returns a host without its port and its brackets.
func NameOf(host string) string {
	name := host
	if bare, _, err := net.SplitHostPort(host); err == nil {
		name = bare
	}
	return strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
}

// IsLoopback reports whether a name is localhost or a loopback address, which has no zone.
func IsLoopback(name string) bool {
	return strings.EqualFold(name, "localhost") || net.ParseIP(name).IsLoopback()
}

// KeepsSecrets reports whether nobody on the way can read what is sent to a URL: over https, or
// over http to this machine.
func KeepsSecrets(to *url.URL) bool {
	host := to.Hostname()
	local := host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host).IsLoopback()
	return to.Scheme == "https" || to.Scheme == "http" && local
}
