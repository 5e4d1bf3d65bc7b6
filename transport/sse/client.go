package sse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// maxQuoted is how much of what a server sent an error repeats, in bytes.
const maxQuoted = 200

// A Client is a [transport.Transport] to one MCP endpoint over HTTP+SSE. Its links
// read the fields; do not change them after the first Open.
//
// A link queues at most 256 messages and 16 MiB for posting. One message always fits.
// If the queue is full, Send returns transport.ErrBusy. The link posts messages in
// order: each one after the server has accepted or refused the one before. If the
// server has not accepted a request after one second, the link posts the next message
// at the same time. If it has not accepted any other message after 10 s, that message
// fails.
//
// The link is lost when the stream of events ends, when an event is longer than
// MaxFrame (*transport.OversizedError), and when the server answers 404 although it
// has accepted a message before (transport.ErrSessionExpired).
//
// An idle link has one goroutine, which reads the stream.
type Client struct {
	// URL is the address of the stream of events; http or https. It often ends in
	// /sse.
	URL string

	// HTTP sends the requests. A link uses its Transport, Jar and CheckRedirect,
	// and ignores its Timeout, because the stream stays open. Default: a connection pool
	// of this Client, with the proxy and time limits of http.DefaultTransport.
	//
	// A Transport of your own needs HTTP2.SendPingTimeout and HTTP2.PingTimeout, because
	// otherwise a connection over HTTP/2 whose other end has disappeared is used again
	// and again, and HTTP2.MaxReceiveBufferPerStream, because otherwise the stream
	// holds up to 4 MiB. The default is 5 s, 5 s and 64 KiB.
	//
	// If HTTP has no CheckRedirect, a link follows only redirects 307 and 308 to
	// the scheme and host of URL, at most three in a row. If HTTP has a
	// CheckRedirect, it may allow other hosts; Header is not sent there.
	HTTP *http.Client

	// Header is sent with every request, for instance Authorization.
	Header http.Header

	// Authorizer authorizes each request, after Header. Nil: Header alone.
	Authorizer transport.Authorizer

	// MaxFrame is the maximum size of a message in either direction, in bytes. Zero
	// or less: 16 MiB. Send refuses a longer message with a
	// *transport.OversizedError.
	MaxFrame int

	pool web.Pool
}

// An EndpointError says that the server named no address for messages, or an address
// of another origin. In the second case it wraps transport.ErrUntrusted: messages and
// their credentials would reach somebody else. The link is not opened.
type EndpointError struct {
	Endpoint string // as the server wrote it; shortened
	Err      error
}

func (e *EndpointError) Error() string {
	return fmt.Sprintf("sse: the endpoint %q that the server names: %v", e.Endpoint, e.Err)
}

func (e *EndpointError) Unwrap() error { return e.Err }

// Traits implements transport.Describer. The name is the host of the URL, with its port if
// the URL has one; the endpoint is the scheme and that host.
func (c *Client) Traits() transport.Traits {
	return transport.Traits{Name: web.HostOf(c.URL), Endpoint: web.LocationOf(c.URL)}
}

// Check implements transport.Checked. It returns what is wrong with the URL, as a
// *transport.URLError.
func (c *Client) Check() error { return web.CheckEndpoint(c.URL) }

// Open begins a session: it sends the GET request and waits until the server has
// named its endpoint. Open fails with a *transport.URLError; with a
// *transport.StatusError if the response is no stream of events; with an
// *EndpointError; or when ctx ends.
func (c *Client) Open(ctx context.Context) (transport.Link, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	address, err := web.ParseEndpoint(c.URL)
	if err != nil {
		return nil, err
	}
	l := newClientLink(c.pool.Client(c.HTTP, address), c.Header.Clone(), c.MaxFrame)
	l.auth = c.Authorizer
	if c.HTTP == nil {
		l.release = l.client.CloseIdleConnections
	}
	stop := context.AfterFunc(ctx, l.cancel)
	err = l.begin(address)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		l.abandon()
		return nil, err
	}
	l.start()
	return l, nil
}

// begin opens the stream of events and learns the endpoint.
func (l *clientLink) begin(address *url.URL) error {
	response, _, err := web.Send(l.ctx, l.client, l.auth, func() (*http.Request, error) { //nolint:bodyclose // read and abandon close it
		request, err := l.newRequest(l.ctx, http.MethodGet, address, nil)
		if err == nil {
			request.Header.Set("Accept", web.TypeEvents)
			request.Header.Set("Cache-Control", "no-store")
		}
		return request, err
	})
	if err != nil {
		return fmt.Errorf("sse: open the stream: %w", err)
	}
	l.body, l.http = response.Body, web.VersionOf(response.Proto)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("sse: open the stream: %w", web.NewStatusError(response, web.Excerpt(response)))
	}
	if kind := web.MediaType(response.Header); kind != web.TypeEvents {
		body := fmt.Sprintf("a GET was answered with %q, which is no event stream", web.Printable(kind, maxQuoted))
		return fmt.Errorf("sse: open the stream: %w", &transport.StatusError{Status: response.StatusCode, Body: body})
	}
	l.events = eventstream.NewReader(l.reads.Reader(response.Body), l.limit)
	first, err := l.events.Next()
	switch {
	case err == io.EOF:
		return fmt.Errorf("sse: the stream ended before its first event: %w", transport.ErrPeerClosed)
	case err != nil:
		return fmt.Errorf("sse: read the stream: %w", err)
	}
	l.endpoint, err = endpointOf(first, address)
	return err
}

// endpointOf reads the event that names the endpoint.
func endpointOf(first eventstream.Event, address *url.URL) (*url.URL, error) {
	failed := &EndpointError{Endpoint: web.Printable(string(first.Data), maxQuoted)}
	if first.Type != "endpoint" {
		failed.Err = fmt.Errorf("the first event is of type %q, not endpoint", web.Printable(first.Type, maxQuoted))
		return nil, failed
	}
	reference, err := url.Parse(string(first.Data))
	if err != nil {
		failed.Err = errors.New("it cannot be parsed")
		return nil, failed
	}
	endpoint := address.ResolveReference(reference)
	if !web.SameHost(endpoint, address) {
		failed.Err = fmt.Errorf("%w: it is not of the origin %s://%s", transport.ErrUntrusted, address.Scheme, address.Host)
		return nil, failed
	}
	endpoint.Host, endpoint.User, endpoint.Fragment = address.Host, address.User, "" // as the GET request has them
	return endpoint, nil
}
