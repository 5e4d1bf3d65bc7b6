package sse

import (
	"cmp"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// HandlerOptions configures a Handler. The zero value means the defaults. For every
// numeric field, a value of zero or less means the default.
type HandlerOptions struct {
	// Choose returns the server for a session. The handler calls it for the GET that begins
	// one; the session stays with its server. If Choose returns nil or a nil pointer, the
	// response is 404, and if the handler cannot compare the result with ==, it is 500. The
	// handler compares Acceptors to shut down each server once, so always return the same
	// pointer for the same server. Default: the Acceptor given to NewHandler.
	Choose func(*http.Request) transport.Acceptor

	// Endpoint is the address to which clients POST: an absolute path, or a URL with
	// the origin of the handler. Set it if a proxy changes paths. Default: the path
	// of the GET request.
	Endpoint string

	// Identify returns the identity of the client, as your authentication has
	// established it: a user id for instance, or "" for an anonymous client.
	// Handlers read it as transport.Origin.Identity. A session belongs to the
	// identity that began it. For a POST of another identity the response is 403.
	// Default: every client is anonymous.
	Identify func(*http.Request) string

	// AllowedOrigins lists the values of the Origin header, such as
	// "https://app.example.com", that browsers may send in addition to the
	// server's own origin. For any other origin the response is 403.
	AllowedOrigins []string

	// AllowedHosts lists the host names, with or without a port, under which
	// clients may call the server in addition to localhost and loopback
	// addresses. For any other Host header the response is 403, since it may be an
	// attack by DNS rebinding. If AllowedHosts is empty, the Host header is
	// checked only for requests that arrive on a loopback address.
	AllowedHosts []string

	// TrustedProxies lists the addresses of the reverse proxies in front of the handler, such as 10.0.0.0/8. If a request comes
	// from one of them, its client is the last address in X-Forwarded-For that is none of them; or in Forwarded (RFC
	// 7239), if there is no X-Forwarded-For. This address is whose share of the limits a client without an identity
	// uses, and transport.Origin.Client. It is not used for anything else, such as AllowedHosts. If the header is malformed or
	// longer than 4 KiB, or if both are there and differ, the client is the proxy.
	//
	// Make sure that nobody but the proxy can send requests from these addresses, and that the proxy adds to the header or
	// replaces it. Default: no proxy is trusted. All clients without an identity behind one proxy are then one client.
	TrustedProxies []netip.Prefix

	// MaxBody is the maximum size of the body of a POST, in bytes; default 4 MiB. For
	// a longer body, and for an initialize above 64 KiB, the response is 413.
	MaxBody int

	// MaxFrame is the maximum size of a message to a client, in bytes; default 16
	// MiB. Send refuses a longer message with a *transport.OversizedError.
	MaxFrame int

	// MaxSessions is the maximum number of sessions at a time; default 1,000. Clients share
	// them: one client, which is an identity or, if anonymous, a network, may have 38 % of them,
	// or less the more others have; fewer than 64 go to whom comes first. Beyond that, the
	// response to a GET is 503. Set Identify or TrustedProxies if many clients share a proxy.
	MaxSessions int

	// KeepAlive is how long a stream may be silent before the handler sends a
	// comment, which keeps proxies from closing the connection; default 15 s.
	KeepAlive time.Duration

	// Log receives a warning, once, when a request that a proxy seems to have sent comes from none of
	// TrustedProxies. Default: slog.Default().
	Log *slog.Logger
}

func (o HandlerOptions) withDefaults() HandlerOptions {
	o.MaxBody = cmp.Or(max(o.MaxBody, 0), 4<<20)
	o.MaxFrame = cmp.Or(max(o.MaxFrame, 0), parts.DefaultMaxFrame)
	o.MaxSessions = cmp.Or(max(o.MaxSessions, 0), 1000)
	o.KeepAlive = cmp.Or(max(o.KeepAlive, 0), 15*time.Second)
	return o
}
