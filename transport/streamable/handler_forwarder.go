package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	httpheader "github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// A forwarder sends requests of the server to other nodes, in the name of a client.
//
// The request that arrives there has the headers of the client, so that node establishes the same
// sender. It is told that this node has checked it, because some proofs are valid only once.
type forwarder struct {
	handler *Handler
	request *http.Request // of the client; its body was read
}

// Forward implements transport.Forwarder.
func (f *forwarder) Forward(ctx context.Context, node string, o transport.Outbound) ([]byte, error) {
	to := f.handler.options.Router.ReachNode(node)
	if to == nil {
		return nil, fmt.Errorf("streamable: the node %q is not there", node)
	}
	r := f.request.Clone(context.WithValue(ctx, retriedKey{}, ifGone))
	// These belong to the connection and to the session, which end here.
	for _, name := range []string{headerSession, headerLastEventID, "Connection", "Expect", "Accept-Encoding"} {
		r.Header.Del(name)
	}
	for name, value := range map[string]string{
		headerVersion: o.Route.Version, headerMethod: o.Route.Method, headerName: httpheader.Encode(o.Route.Name),
		"Content-Type": web.TypeJSON, "Accept": typeBoth,
	} {
		r.Header.Set(name, value)
	}
	markForwarded(r.Header, true)
	r.Method, r.Body, r.ContentLength, r.TransferEncoding, r.Trailer = http.MethodPost, io.NopCloser(bytes.NewReader(o.Frame)), int64(len(o.Frame)), nil, nil
	w := &collector{header: http.Header{}, limit: f.handler.maxFrame}
	err := w.collect(to, r)
	switch {
	case w.status == http.StatusMisdirectedRequest:
		return nil, fmt.Errorf("streamable: the node %q is gone", node)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("streamable: the response of the node %q: %w", node, err)
	}
	return w.text, nil
}

// A collector is a ResponseWriter that keeps the response.
// It refuses to take more than its limit, and its writer decides what to do about that.
type collector struct {
	header http.Header
	status int
	limit  int // the maximum size of the response, in bytes
	text   []byte
	failed error
}

// collect lets a handler write the response. It returns an error if that is no message.
func (c *collector) collect(from http.Handler, r *http.Request) (err error) {
	defer func() {
		switch why := recover(); {
		case why == http.ErrAbortHandler:
			err = errors.New("it has broken off")
		// A mistake in the program is not hidden.
		case why != nil:
			panic(why)
		}
	}()
	from.ServeHTTP(c, r)
	switch {
	case c.failed != nil:
		return c.failed
	case web.MediaType(c.header) != web.TypeJSON:
		return fmt.Errorf("status %d without a message", c.status)
	default:
		return nil
	}
}

// Header implements http.ResponseWriter.
func (c *collector) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *collector) WriteHeader(status int) {
	if c.status < http.StatusOK { // statuses below that are provisional
		c.status = status
	}
}

// Write implements http.ResponseWriter.
func (c *collector) Write(text []byte) (int, error) {
	if len(c.text)+len(text) > c.limit {
		c.failed = fmt.Errorf("it is above the limit of %d bytes", c.limit)
		return 0, c.failed
	}
	c.text = append(c.text, text...)
	return len(text), nil
}

// Flush implements http.Flusher.
func (*collector) Flush() {}
