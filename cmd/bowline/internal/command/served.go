package command

import (
	"cmp"
	"net"
	"net/url"
	"strings"
)

const (
	endpointPath = "/mcp"                   // where a server is found
	searchPath   = endpointPath + "/search" // where a gateway offers tools by which the others are found
)

func urlOf(listener net.Listener) string { return "http://" + listener.Addr().String() + endpointPath }

// isServed reports whether a URL is that of an endpoint at an address, as far as that can be seen without looking up names. What
// a name resolves to may change; a ring that is not seen here is noticed by the gateway when it is used.
func isServed(at, address string) bool {
	u, err := url.Parse(at)
	host, port, wrong := net.SplitHostPort(address)
	if err != nil || wrong != nil || cmp.Or(u.Port(), "80") != port {
		return false
	}
	if path := strings.TrimSuffix(u.Path, "/"); path != endpointPath && !strings.HasPrefix(path, endpointPath+"/") {
		return false
	}
	return u.Hostname() == host || isThisMachine(u.Hostname()) && isThisMachine(host)
}

// isThisMachine reports whether a host is local in any case. To listen at one without a name, or at all, is to listen there as well.
func isThisMachine(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || strings.EqualFold(host, "localhost") || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}
