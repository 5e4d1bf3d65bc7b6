package websocket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	ws "github.com/coder/websocket"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// ErrSubprotocol is wrapped by the error of Open when the server has accepted the connection, and not the subprotocol "mcp".
var ErrSubprotocol = errors.New("the server does not speak the subprotocol mcp")

// A Client is a [transport.Transport] to one server. Its links read the fields; do not change them after the first Open.
//
// A link queues at most 256 messages and 16 MiB. One message always fits. If the queue is full, Send returns transport.ErrBusy.
//
// The link is lost when the connection ends (transport.ErrPeerClosed, a *CloseError, or an error of the network), when a message is longer than
// MaxFrame (*transport.OversizedError), when the server sends a binary message, and when it sends a ping and takes nothing of what the link is writing for
// five seconds.
type Client struct {
	// URL is the address of the server; ws or wss.
	URL string

	// HTTP sends the handshake. A link uses its Transport, Jar and CheckRedirect, and ignores its Timeout, because the
	// connection stays open. The Transport must use HTTP/1.1 for it, as an *http.Transport does. Default: that of this Client, with the proxy and
	// time limits of http.DefaultTransport.
	//
	// If HTTP has no CheckRedirect, a link follows only redirects 307 and 308 to the scheme and host of URL, at most three in a row. If it
	// has one, it may allow other hosts; Header is not sent there.
	HTTP *http.Client

	// Header is sent with the handshake, for instance Authorization.
	Header http.Header

	// Authorizer authorizes the handshake, after Header. Messages carry no credentials of their own. Nil: Header alone.
	Authorizer transport.Authorizer

	// MaxFrame is the maximum size of a message in either direction, in bytes. Zero or less: 16 MiB. Send refuses a longer
	// message with a *transport.OversizedError.
	MaxFrame int

	pool web.Pool
}

// Traits implements transport.Describer. The name is the host of the URL, with its port if the URL has one; the endpoint is the scheme and
// that host.
func (c *Client) Traits() transport.Traits {
	address, err := web.Parse(c.URL, "ws", "wss")
	if err != nil {
		return transport.Traits{}
	}
	return transport.Traits{Name: address.Host, Endpoint: address.Scheme + "://" + address.Host}
}

// Check implements transport.Checked. It returns what is wrong with the URL, as a *transport.URLError.
func (c *Client) Check() error {
	_, err := parse(c.URL)
	return err
}

// Open connects. It fails with a *transport.URLError; with a *transport.StatusError if the server refuses the handshake; with ErrSubprotocol; with
// a *transport.UnreachableError; with transport.ErrUntrusted if its certificate is not trusted; or when ctx ends.
func (c *Client) Open(ctx context.Context) (transport.Link, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	address, err := parse(c.URL)
	if err != nil {
		return nil, err
	}
	limit := c.MaxFrame
	if limit <= 0 {
		limit = parts.DefaultMaxFrame
	}
	l := newLink(limit)
	h := &handshake{client: c.pool.Client(c.HTTP, address), auth: c.Authorizer, traffic: &l.traffic}
	stop := context.AfterFunc(ctx, l.traffic.abort) // Dial reads for up to three seconds what follows an answer that it refuses, whatever ctx says
	conn, err := h.dial(ctx, address, c.Header.Clone())
	stop()
	if c.HTTP == nil {
		h.client.CloseIdleConnections() // one that was refused may be left
	}
	switch {
	case context.Cause(ctx) != nil:
		err = context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("websocket: connect: %w", err)
	default:
		l.begin()
		go l.run(conn) // Close of the link waits for it
		return l, nil
	}
	if conn != nil {
		l.traffic.abort()
		_ = conn.CloseNow() // there is an error already
	}
	return nil, err
}

// A handshake is the RoundTripper of one Dial. It does what the client of a link does for any request, and keeps why that has failed: the error of
// Dial quotes the address, which may hold secrets.
type handshake struct {
	client  *http.Client
	auth    transport.Authorizer
	traffic *traffic
	err     error
}

func (h *handshake) dial(ctx context.Context, to *url.URL, header http.Header) (*ws.Conn, error) {
	last := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the client within has followed what it may
	conn, _, err := ws.Dial(ctx, to.String(), &ws.DialOptions{                            //nolint:bodyclose // Dial closes it
		HTTPClient: &http.Client{Transport: h, CheckRedirect: last}, HTTPHeader: header, Subprotocols: []string{subprotocol},
	})
	if h.err != nil {
		return nil, h.err
	}
	return conn, err
}

// RoundTrip implements http.RoundTripper.
func (h *handshake) RoundTrip(request *http.Request) (*http.Response, error) {
	response, _, err := web.Send(request.Context(), h.client, h.auth, func() (*http.Request, error) { return request.Clone(request.Context()), nil })
	if err != nil {
		h.err = err
		return nil, err
	}
	duplex, ok := response.Body.(io.ReadWriteCloser)
	if response.StatusCode != http.StatusSwitchingProtocols || !ok {
		h.err = web.NewStatusError(response, web.Excerpt(response))
		_ = response.Body.Close() // the response was read
		return nil, h.err
	}
	if response.Header.Get("Sec-WebSocket-Protocol") != subprotocol {
		h.err = ErrSubprotocol
		_ = response.Body.Close() // there is an error already
		return nil, h.err
	}
	h.traffic.over(duplex)
	response.Body = &body{duplex, h.traffic}
	return response, nil
}

// parse returns the address of a handshake, which is one of HTTP, or a *transport.URLError.
func parse(text string) (*url.URL, error) {
	address, err := web.Parse(text, "ws", "wss")
	if err != nil {
		return nil, err
	}
	address.Scheme = map[string]string{"ws": "http", "wss": "https"}[address.Scheme]
	address.Fragment = ""
	return address, nil
}
