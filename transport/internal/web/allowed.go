package web

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/bowline-mcp/bowline/internal/network"
)

// Allowed lists the origins and hosts that a server accepts besides its own, as
// streamable.HandlerOptions.AllowedOrigins and AllowedHosts explain them.
type Allowed struct {
	Origins []string
	Hosts   []string
}

// Check refuses requests that a browser sends for a page of another site, or under a
// rebound host name.
func (a Allowed) Check(r *http.Request) error {
	switch {
	case !a.originAllowed(r):
		return errors.New("origin not allowed")
	case (network.OnLoopback(r) || len(a.Hosts) > 0) && !a.hostAllowed(r.Host):
		return errors.New("host not allowed")
	default:
		return nil
	}
}

func (a Allowed) originAllowed(r *http.Request) bool {
	origins := r.Header["Origin"]
	if len(origins) == 0 { // browsers name none for images and links, but say of which site the page is
		site := r.Header.Get("Sec-Fetch-Site")
		return site == "" || site == "none" || site == "same-origin"
	}
	if len(origins) > 1 {
		return false
	}
	same := func(allowed string) bool { return strings.EqualFold(allowed, origins[0]) }
	if slices.ContainsFunc(a.Origins, same) {
		return true
	}
	origin, err := url.Parse(origins[0])
	return err == nil && a.isOwn(origin, r)
}

// isOwn reports whether an origin is this server's own. It is not enough that the
// origin and the request name the same host, because an attacker can rebind a name to
// this address. TLS must have verified the name, or the name must be one of this
// server's.
func (a Allowed) isOwn(origin *url.URL, r *http.Request) bool {
	if origin.Host == "" || !strings.EqualFold(origin.Host, r.Host) {
		return false
	}
	if r.TLS != nil {
		return origin.Scheme == "https"
	}
	return origin.Scheme == "http" && a.hostAllowed(r.Host)
}

// hostAllowed reports whether a host is localhost, a loopback address, or one of
// Hosts.
func (a Allowed) hostAllowed(host string) bool {
	name := network.NameOf(host)
	return network.IsLoopback(name) || slices.ContainsFunc(a.Hosts, func(allowed string) bool {
		return strings.EqualFold(allowed, host) || strings.EqualFold(allowed, name)
	})
}
