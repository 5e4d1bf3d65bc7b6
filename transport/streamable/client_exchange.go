package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

const (
	// maxFailedDials is how many dials in a row may fail before the link is lost.
	maxFailedDials = 2

	// maxDisowned is how many refusals in a row that name no message lose the link: they
	// may mean that the server does not know the session.
	maxDisowned = 2
)

// An httpRequest is one HTTP request and its progress.
//
// The HTTP client reports to it on goroutines of its own, even after do has returned (requestTrace).
// What they set is atomic or guarded by to.mu. Everything else belongs to the goroutine that calls do.
type httpRequest struct {
	to        *remote
	method    string
	header    http.Header // shared with other requests; see remote.keepsHeaders
	frame     []byte
	posts     *clientStream // the stream whose request it posts; nil for other messages
	inSession bool          // the request carries the session's id
	bears     bool          // the request carries the credentials of a web.Bearer

	handedOver bool        // the HTTP client has the request
	waiting    atomic.Bool // the request waits for a connection, new or used
	dialing    atomic.Bool // a new connection is being made
	connected  atomic.Bool
	written    atomic.Bool
	foreign    bool  // perhaps something else than the server has responded
	fatal      error // why the link must end because of this request; nil if it need not

	alive bool // the request is counted in to.alive; guarded by to.mu
	over  bool // the response is closed, or will never come; guarded by to.mu

	trace atomic.Pointer[requestTrace] // the trace of the latest attempt

	// The first attempt needs these. They are part of the request to save allocations.
	traced   tracedContext
	reader   bytes.Reader
	received countedBody
}

// begin counts the request as alive, unless it has ended or is counted already.
// The caller holds to.mu.
func (r *httpRequest) begin() {
	if !r.over && !r.alive {
		r.alive = true
		r.to.alive++
	}
}

// end counts the request as ended.
// The caller holds to.mu.
func (r *httpRequest) end() {
	if r.over = true; r.alive {
		r.alive = false
		r.to.alive--
	}
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
	// The Authorizer failed, so the last attempt was not sent, and those before were refused.
	if unsent {
		r.handedOver = false
	}
	r.fatal = r.count(ctx, response, err)
	if err == nil {
		r.foreign = response.StatusCode >= http.StatusInternalServerError
		if !r.foreign {
			r.to.reads.Note() // the headers of the response have arrived
		}
		r.received = countedBody{response.Body, r}
		response.Body = &r.received
	}
	return response, err
}

// send sends the request, with credentials. One that bears them already shares its headers with others;
// the Authorizer is asked only if they are refused.
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
	// Other requests have the same headers, so they must not change.
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
		// The earlier attempt counts as ended, and this one as not begun.
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
	// An Authorizer, a cookie jar, and a RoundTripper of the program may change what they get, so they
	// get a copy.
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
	// From now on only the trace can tell that nothing was sent.
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
	if n > 0 && !b.of.foreign {
		b.of.to.reads.Note()
	}
	return n, err
}

func (b *countedBody) Close() error {
	b.of.to.mu.Lock()
	b.of.end()
	b.of.to.mu.Unlock()
	err := b.ReadCloser.Close()
	// Only now, because until the body is closed net/http may report to the trace.
	b.of.releaseTrace()
	return err
}

// unsent reports whether certainly no byte of the request was sent. If the RoundTripper
// does not support tracing, this is uncertain.
// In doubt it reports false: a message that may have been executed must not be sent again.
func (r *httpRequest) unsent() bool {
	return !r.handedOver || r.waiting.Load() && !r.connected.Load()
}

// count counts the result of the request. If the link must end, it returns the reason. A
// failed dial says little while another exchange is running: a server that shuts down
// refuses connections, but finishes running requests.
func (r *httpRequest) count(ctx context.Context, response *http.Response, err error) error {
	to := r.to
	to.mu.Lock()
	defer to.mu.Unlock()
	if err != nil {
		r.end()
	}
	switch {
	case err == nil:
		r.begin() // in case the RoundTripper does not support tracing
		to.failedDials, to.http = 0, web.VersionOf(response.Proto)
		if response.StatusCode/100 == 2 {
			to.disowned = 0
		}
		if r.inSession && r.method == http.MethodPost && response.StatusCode == http.StatusNotFound {
			return transport.ErrSessionExpired
		}
	// A cancelled dial does not count: this side did not wait for the server.
	case r.dialing.Load() && !r.connected.Load() && !errors.Is(ctx.Err(), context.Canceled) && to.alive == 0:
		if to.failedDials++; to.failedDials >= maxFailedDials {
			return err
		}
	}
	return nil
}

// isForeign reports whether something else than the server has refused the request, such
// as a proxy that cannot reach it. If a status from 500 on comes without a message, the
// server has probably not sent it, unless it asks to come back later.
func (r *httpRequest) isForeign(refused *transport.StatusError, body []byte) bool {
	if !r.foreign {
		return false
	}
	if _, err := jsonrpc.Decode(body, jsonrpc.Limits{}); err != nil && !refused.Overloaded() {
		return true
	}
	// It has sent a message, or asks to come back later, so it is the server, and is alive.
	r.to.reads.Note()
	return false
}

// countRefused counts a refusal that names no message. Some servers respond so, instead
// of with 404, when they do not know the session. Two in a row are taken to mean that.
func (r *httpRequest) countRefused(refused *transport.StatusError) {
	if !r.inSession || refused.Status != http.StatusBadRequest || refused.Fault == nil {
		return
	}
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	if r.to.disowned++; r.to.disowned >= maxDisowned {
		r.fatal = fmt.Errorf("%w: %w", transport.ErrSessionExpired, refused)
	}
}

// A requestTrace observes one attempt of an HTTP request. The HTTP client calls its
// functions on its own goroutines. A new one needs ten allocations, so a trace is reused
// once it has certainly seen everything of its attempt.
//
// Reports may come late. A trace that could get one more must never be reused: it would say of another
// request that it has a connection, or was written.
type requestTrace struct {
	carrier context.Context // contains the trace for net/http
	of      atomic.Pointer[httpRequest]

	connections atomic.Int32 // how many connections the attempt got
	made        atomic.Bool  // one of the connections was new, so a dial may still be running
	written     atomic.Int32 // how often the attempt was written
}

// newTrace returns a trace for one attempt.
func (to *remote) newTrace(r *httpRequest) *requestTrace {
	t, ok := to.traces.Get().(*requestTrace)
	if !ok {
		t = new(requestTrace)
		t.carrier = httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
			GetConn:      func(string) { t.of.Load().waiting.Store(true) },
			DNSStart:     func(httptrace.DNSStartInfo) { t.of.Load().dialing.Store(true) },
			ConnectStart: func(string, string) { t.of.Load().dialing.Store(true) },
			GotConn:      t.gotConnection,
			WroteRequest: t.wrote,
		})
	}
	t.of.Store(r)
	return t
}

func (t *requestTrace) gotConnection(info httptrace.GotConnInfo) {
	t.connections.Add(1)
	if !info.WasIdle {
		t.made.Store(true)
	}
	r := t.of.Load()
	r.connected.Store(true)
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	r.begin()
}

func (t *requestTrace) wrote(info httptrace.WroteRequestInfo) {
	if r := t.of.Load(); r.posts != nil && info.Err == nil {
		r.written.Store(true)
		r.posts.written()
	}
	// Last, because releaseTrace takes it as the sign that this function is done with the request.
	t.written.Add(1)
}

// releaseTrace makes the trace of the last attempt reusable, if nothing more can be
// reported to it: if the attempt got one connection, without a dial, and was written to
// it. Other traces stay with their attempt. Two goroutines may close a body; only one of
// them returns the trace.
func (r *httpRequest) releaseTrace() {
	t := r.trace.Load()
	if t == nil || t.connections.Load() != 1 || t.made.Load() || t.written.Load() != 1 {
		return
	}
	if !r.trace.CompareAndSwap(t, nil) {
		return
	}
	t.connections.Store(0)
	t.written.Store(0)
	r.to.traces.Put(t)
}

// A tracedContext is a context with a trace.
// It spares each request the hooks and contexts that httptrace.WithClientTrace would allocate.
type tracedContext struct {
	context.Context
	trace context.Context
}

// Value implements context.Context.
func (c *tracedContext) Value(key any) any {
	if value := c.trace.Value(key); value != nil {
		return value
	}
	return c.Context.Value(key)
}

// maxKind is how many bytes of a content type an error contains.
const maxKind = 100

// leastRead is the initial size of the buffer for a body of unknown length.
const leastRead = 512

// readBody reads a body of at most limit bytes, counted after decompression. It
// allocates as bytes arrive. It reads up to the end of the body, so that the connection
// can be reused.
func readBody(response *http.Response, limit int) ([]byte, error) {
	length := response.ContentLength
	if length > int64(limit) {
		return nil, &transport.OversizedError{Limit: limit, Size: int(length)}
	}
	// The length is not announced, or not that after decompression.
	if length < 0 {
		length = leastRead
	}
	body := make([]byte, 0, min(length, web.MaxErrorBody)+1)
	for {
		n, err := response.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > limit:
			return nil, &transport.OversizedError{Limit: limit, Size: len(body)}
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, fmt.Errorf("streamable: read the response: %w", err)
		case len(body) == cap(body):
			body = slices.Grow(body, leastRead)
		}
	}
}
