package streamable

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"sync/atomic"

	httpheader "github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// An httpRequest is one HTTP request and its progress.
type httpRequest struct {
	to        *remote
	method    string
	header    http.Header // shared with other requests; see remote.keepsHeaders
	frame     []byte
	posts     *clientStream // the stream whose request it posts; nil for other messages
	inSession bool          // it carries the session's id
	bears     bool          // it carries the credentials of a web.Bearer

	handedOver bool        // to the HTTP client
	waiting    atomic.Bool // for a connection, new or used
	dialing    atomic.Bool // a new one is being made
	connected  atomic.Bool
	written    atomic.Bool
	fatal      error // why the link ends because of it

	alive bool // counted in to.alive; guarded by to.mu
	over  bool // its response is closed, or will never come; guarded by to.mu

	trace atomic.Pointer[requestTrace] // of the latest attempt

	// The first attempt needs these. They are part of the request to save allocations.
	traced   tracedContext
	reader   bytes.Reader
	received countedBody
}

// begin counts the request as alive, unless it has ended or is counted already.
func (r *httpRequest) begin() {
	if !r.over && !r.alive {
		r.alive = true
		r.to.alive++
	}
}

// end counts the request as ended.
func (r *httpRequest) end() {
	if r.over = true; r.alive {
		r.alive = false
		r.to.alive--
	}
}

func (m *remote) newRequest(method string, accept []string) *httpRequest {
	r := &httpRequest{to: m, method: method, header: m.newHeader()}
	if accept != nil {
		r.header["Accept"] = accept
	}
	return r
}

// newHeader returns the headers that all requests have. Requests share the values:
// replace them, and never change them.
func (m *remote) newHeader() http.Header {
	header := make(http.Header, len(m.header)+mostHeaders)
	for name, values := range m.header {
		header[name] = slices.Clip(values)
	}
	return header
}

// mostHeaders is how many headers most requests have in addition to the user's.
const mostHeaders = 5

// newPost returns the HTTP request that posts a message. The headers only depend on the
// message's route.
func (m *remote) newPost(ctx context.Context, o *outgoing) *httpRequest {
	r := new(httpRequest)
	m.preparePost(ctx, r, o)
	return r
}

func (m *remote) preparePost(ctx context.Context, r *httpRequest, o *outgoing) {
	r.to, r.method, r.frame = m, http.MethodPost, o.Frame
	var bearer []string
	if m.auth != nil {
		bearer = web.BearerOf(ctx, m.auth, m.template.URL)
		r.bears = bearer != nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if like := (postHeader{version: o.Route.Version}); like.mirrors(o) {
		if bearer != nil {
			like.bearer = &bearer[0]
		}
		if m.posted.header == nil || !m.posted.isLike(&like) {
			like.header, like.inSession = m.postHeader(o, bearer)
			m.posted = like
		}
		r.header, r.inSession = m.posted.header, m.posted.inSession
		return
	}
	r.header, r.inSession = m.postHeader(o, bearer)
}

// postHeader returns the headers for posting a message. The caller holds mu.
func (m *remote) postHeader(o *outgoing, bearer []string) (header http.Header, inSession bool) {
	header = m.newHeader()
	header["Accept"], header["Content-Type"] = m.acceptsBoth, m.sendsJSON
	if bearer != nil {
		header["Authorization"] = bearer
	}
	switch {
	case o.modern():
		values := []string{o.Route.Version, o.Route.Method, httpheader.Encode(o.Route.Name)}
		header[headerVersion] = values[:1:1]
		header[headerMethod] = values[1:2:2]
		if o.Route.Name != "" {
			header[headerName] = values[2:]
		}
		if o.Route.Arguments != nil {
			for name, value := range *o.Route.Arguments {
				header.Set(headerArgument+name, httpheader.Encode(value))
			}
		}
	case o.Route.Method != protocol.MethodInitialize:
		inSession = m.session.join(header)
	}
	return header, inSession
}

// A postHeader contains the headers of a posted message, and the parts of the message
// that they depend on.
type postHeader struct {
	version, method, name string // of a modern message
	bearer                *string
	header                http.Header
	inSession             bool
}

// mirrors records the parts of a message that its headers depend on. It reports false if
// other messages will hardly have the same headers.
func (h *postHeader) mirrors(o *outgoing) bool {
	if o.modern() {
		h.method, h.name = o.Route.Method, o.Route.Name
		return o.Route.Arguments == nil
	}
	return o.Route.Method != protocol.MethodInitialize
}

func (h *postHeader) isLike(other *postHeader) bool {
	return h.version == other.version && h.method == other.method && h.name == other.name && h.bearer == other.bearer
}

// keepsHeaders reports whether the sender of requests leaves their headers unchanged. A
// RoundTripper should, but many add headers, and a cookie jar does. This is checked for
// each request, because programs replace http.DefaultTransport while links are open.
func (m *remote) keepsHeaders() bool {
	_, standard := cmp.Or(m.client.Transport, http.DefaultTransport).(*http.Transport)
	return standard && m.client.Jar == nil && m.endpoint.User == nil
}

// sharesHeaders reports whether the request can use shared headers, without a copy to
// change.
func (r *httpRequest) sharesHeaders() bool {
	return r.to.keepsHeaders() && (r.to.auth == nil || r.bears)
}

// joinSession adds the headers of a legacy session, if there is one.
func (r *httpRequest) joinSession() {
	s := r.to.currentSession()
	r.inSession = s.join(r.header)
}

// do sends the request. The caller closes the body of the response.
func (r *httpRequest) do(ctx context.Context) (*http.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	response, unsent, err := r.send(ctx)
	if unsent {
		r.handedOver = false
	}
	r.fatal = r.count(ctx, response, err)
	if err == nil {
		r.to.heard.Note() // the headers
		r.received = countedBody{response.Body, r}
		response.Body = &r.received
	}
	return response, err
}

func (r *httpRequest) send(ctx context.Context) (response *http.Response, unsent bool, err error) {
	if r.to.auth == nil {
		response, err = web.Do(r.to.client, r.attempt(ctx))
		return response, false, err
	}
	if !r.bears {
		return r.sendAuthorized(ctx)
	}
	request := r.attempt(ctx)
	if response, err = web.Do(r.to.client, request); !web.Denied(response, err) {
		return response, false, err
	}
	return r.sendAgain(ctx, request, response)
}

func (r *httpRequest) sendAuthorized(ctx context.Context) (response *http.Response, unsent bool, err error) {
	return web.Send(ctx, r.to.client, r.to.auth, func() (*http.Request, error) { return r.attempt(ctx), nil })
}

// sendAgain repeats a request whose credentials were refused. The Authorizer then adds
// new ones, or none.
func (r *httpRequest) sendAgain(ctx context.Context, refused *http.Request, response *http.Response) (_ *http.Response, unsent bool, err error) {
	r.bears = false
	r.header = r.header.Clone()
	delete(r.header, "Authorization")
	if given, ok := r.to.header["Authorization"]; ok {
		r.header["Authorization"] = given
	}
	return web.SendAgain(ctx, r.to.client, r.to.auth, refused, response, func() (*http.Request, error) { return r.attempt(ctx), nil })
}

// attempt returns the HTTP request for another attempt, with its body at the beginning.
func (r *httpRequest) attempt(ctx context.Context) *http.Request {
	traced, reader := &r.traced, &r.reader
	if r.trace.Load() != nil { // an earlier attempt may still use them
		traced, reader = new(tracedContext), new(bytes.Reader)
		r.to.mu.Lock()
		r.end()
		r.over = false
		r.to.mu.Unlock()
		r.waiting.Store(false)
		r.dialing.Store(false)
		r.connected.Store(false)
	}
	trace := r.to.newTrace(r)
	r.trace.Store(trace)
	traced.Context, traced.trace = ctx, trace.carrier
	request := r.to.template.WithContext(traced)
	request.Method, request.Header = r.method, r.header
	if !r.sharesHeaders() {
		request.Header = r.header.Clone()
		address := *request.URL
		request.URL = &address
	}
	if r.frame != nil {
		request.ContentLength = int64(len(r.frame))
		request.GetBody = r.body
		reader.Reset(r.frame)
		request.Body = io.NopCloser(reader)
	}
	r.handedOver = true
	return request
}

// body returns the frame as a new reader. It never fails.
func (r *httpRequest) body() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(r.frame)), nil
}

// A countedBody counts its bytes. When it is closed, its request has ended.
type countedBody struct {
	io.ReadCloser
	of *httpRequest
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.of.to.heard.Note()
	}
	return n, err
}

func (b *countedBody) Close() error {
	b.of.to.mu.Lock()
	b.of.end()
	b.of.to.mu.Unlock()
	err := b.ReadCloser.Close()
	b.of.releaseTrace()
	return err
}

// unsent reports whether certainly no byte of the request was sent. If the RoundTripper
// does not support tracing, this is uncertain.
func (r *httpRequest) unsent() bool {
	return !r.handedOver || r.waiting.Load() && !r.connected.Load()
}
