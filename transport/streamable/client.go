package streamable

import (
	"context"
	"net/http"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A Client is a [transport.Transport] to one MCP endpoint over Streamable HTTP, in
// every revision. Its links read the fields; do not change them after the first
// Open.
//
// A server that only speaks HTTP+SSE (2024-11-05) usually refuses initialize with
// 400, 404 or 405, and without a JSON-RPC response. After such a refusal the link
// sends a GET request to URL. If an event of type endpoint arrives within 5 s, the
// link uses HTTP+SSE from then on, as a link of package sse does. Otherwise the link
// reports the refusal of initialize, or the 401 or 403 of the GET request.
//
// A link queues at most 256 messages and 16 MiB for writing. One message always
// fits. If the queue is full, Send returns transport.ErrBusy. Each stream holds one
// inbound frame and 4 KiB of read-ahead; over HTTP/2, net/http reads 64 KiB more ahead.
// An idle link has no goroutine. Each request in flight has one, and so has the open
// GET stream of a legacy session.
type Client struct {
	// URL is the address of the endpoint; http or https.
	URL string

	// HTTP sends the requests. A link uses its Transport, Jar and CheckRedirect,
	// and ignores its Timeout, because streams stay open. Default: a connection pool
	// of this Client, with the proxy and time limits of http.DefaultTransport, whose
	// connections let a single caller wait less (ADR-0065).
	//
	// A Transport of your own needs HTTP2.SendPingTimeout and HTTP2.PingTimeout, because
	// otherwise a connection over HTTP/2 whose other end has disappeared is used again
	// and again, and HTTP2.MaxReceiveBufferPerStream, because otherwise each stream
	// holds up to 4 MiB. The default is 5 s, 5 s and 64 KiB.
	//
	// If HTTP has no CheckRedirect, a link follows only redirects 307 and 308 to
	// the scheme and host of URL, at most three in a row. Any other redirect
	// fails the message with a *transport.StatusError. If HTTP has a CheckRedirect,
	// it may allow other hosts; Header and MCP's own headers are not sent there.
	HTTP *http.Client

	// Header is sent with every request, for instance Authorization.
	Header http.Header

	// Authorizer authorizes each request, after Header. Nil: Header alone.
	Authorizer transport.Authorizer

	// MaxFrame is the maximum size of a message in either direction, in bytes. Zero
	// or less: 16 MiB. A request whose response is longer fails. Send refuses a
	// longer message with a *transport.OversizedError.
	MaxFrame int

	pool web.Pool
}

// Open implements transport.Transport. It does no I/O: if the endpoint cannot be
// reached, the first messages fail, and then the link is lost. Open fails with a
// *transport.URLError, or with the error of an ended context.
func (c *Client) Open(ctx context.Context) (transport.Link, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	endpoint, err := web.ParseEndpoint(c.URL)
	if err != nil {
		return nil, err
	}
	limit := c.MaxFrame
	if limit <= 0 {
		limit = parts.DefaultMaxFrame
	}
	l := newClientLink(endpoint, c.pool.Client(c.HTTP, endpoint), c.Header.Clone(), limit)
	l.remote.auth = c.Authorizer
	if c.HTTP == nil {
		l.release = l.remote.client.CloseIdleConnections
	}
	return l, nil
}

// Traits implements transport.Describer. The name is the host of the URL, with its port if
// the URL has one; the endpoint is the scheme and that host.
func (c *Client) Traits() transport.Traits {
	return transport.Traits{Name: web.HostOf(c.URL), Endpoint: web.LocationOf(c.URL), MirrorsArguments: true}
}

// Check implements transport.Checked. It returns what is wrong with the URL, as a
// *transport.URLError.
func (c *Client) Check() error { return web.CheckEndpoint(c.URL) }
