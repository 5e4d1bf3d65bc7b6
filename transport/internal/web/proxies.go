package web

import (
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/internal/network"
)

// Proxies say which senders of requests are proxies that a handler trusts (ADR-0086).
type Proxies struct {
	Trusted network.Proxies
	Log     *slog.Logger

	warned atomic.Bool
}

// NewProxies returns the proxies with these addresses. Log is told once if another sender seems to be a proxy.
func NewProxies(trusted []netip.Prefix, log *slog.Logger) *Proxies {
	return &Proxies{Trusted: trusted, Log: log}
}

// Received returns the request with the address of its client, if a trusted proxy has told it.
func (p *Proxies) Received(r *http.Request) *http.Request {
	if len(r.Header["X-Forwarded-For"]) == 0 && len(r.Header["Forwarded"]) == 0 {
		return r
	}
	if network.Client(r.Context()) != "" { // another node has established it
		return r
	}
	if !p.Trusted.Trust(r.RemoteAddr) {
		if p.warned.CompareAndSwap(false, true) {
			p.Log.Warn("bowline: requests name a client in X-Forwarded-For or Forwarded, but their sender is not a trusted proxy: "+
				"anonymous clients behind it share the limits of one client. If it is your proxy, set HandlerOptions.TrustedProxies", "sender", r.RemoteAddr)
		}
		return r
	}
	if client := p.Trusted.ClientOf(r.Header); client != "" {
		return r.WithContext(network.WithClient(r.Context(), client))
	}
	return r
}
