package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/heard"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

const (
	// maxFailedDials is how many dials in a row may fail before the link is lost.
	maxFailedDials = 2

	// maxDisowned is how many refusals in a row that name no message, and so may
	// mean the session, lose the link.
	maxDisowned = 2

	// maxSessionID is the longest session id that a client accepts, in bytes.
	maxSessionID = 1 << 10
)

// A remote is the server of a link, as the link's HTTP requests have found it.
type remote struct {
	endpoint *url.URL
	client   *http.Client
	header   http.Header
	auth     web.Authorizer // nil for none
	heard    heard.Time

	template                              *http.Request // of all requests
	acceptsBoth, acceptsEvents, sendsJSON []string      // values of headers, which requests share

	mu          sync.Mutex
	session     session
	failedDials int // since anything was received
	alive       int // exchanges that have a connection and are not over
	disowned    int // refusals that name no message, since anything was accepted
}

// A session is what a legacy server has said in its response to initialize.
type session struct {
	begun   bool
	id      string // empty if the server keeps no session
	version string

	ids, versions []string // the same, as headers have them; nil if empty
}

func newRemote(endpoint *url.URL, client *http.Client, header http.Header) *remote {
	address := *endpoint
	address.Host = strings.TrimSuffix(address.Host, ":") // net/http does not accept an empty port
	return &remote{
		endpoint: endpoint, client: client, header: header,
		template:    &http.Request{URL: &address, Host: address.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1},
		acceptsBoth: []string{typeJSON + ", " + typeEvents}, acceptsEvents: []string{typeEvents}, sendsJSON: []string{typeJSON},
	}
}

func (m *remote) currentSession() session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session
}

// begin begins the session of a response to initialize, and of its session headers.
func (m *remote) begin(ids []string, response *jsonrpc.Message) error {
	if len(ids) > 1 {
		return fmt.Errorf("streamable: the server gives %d session ids", len(ids))
	}
	id := strings.Join(ids, "")
	if id != "" && !isToken(id, maxSessionID) {
		return fmt.Errorf("streamable: the server's session id, of %d bytes, is not visible ASCII of at most %d", len(id), maxSessionID)
	}
	var result struct {
		Version string `json:"protocolVersion"`
	}
	if !decode(response.Result, &result) || !isToken(result.Version, len("2025-11-25")) {
		result.Version = "" // the receiver of the response refuses it
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.session = session{begun: true, id: id, version: result.Version, ids: headerValue(id), versions: headerValue(result.Version)}
	return nil
}

// headerValue returns a value as headers have it, which may be shared among them.
func headerValue(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// received notes that something was received.
func (m *remote) received() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failedDials = 0
}

// An httpRequest is one HTTP request, and how far it came.
type httpRequest struct {
	to        *remote
	method    string
	header    http.Header
	frame     []byte
	written   func() // called once the request was written, or never
	inSession bool   // it carries the session's id

	handedOver bool        // to the HTTP client
	waiting    atomic.Bool // for a connection, new or used
	dialing    atomic.Bool // a new one is being made
	connected  atomic.Bool
	fatal      error // why the link is over with it

	alive bool // to counts it; guarded by to.mu
	over  bool // it has no response and gets none, or has closed it; guarded by to.mu
}

// begin counts the request as alive, unless it is over or counted already.
func (r *httpRequest) begin() {
	if !r.over && !r.alive {
		r.alive = true
		r.to.alive++
	}
}

// end counts the request as over.
func (r *httpRequest) end() {
	if r.over = true; r.alive {
		r.alive = false
		r.to.alive--
	}
}

func (m *remote) newRequest(method string, accept []string) *httpRequest {
	r := new(httpRequest)
	m.prepare(r, method, accept)
	return r
}

// prepare makes the beginning of a request. The values of its headers are shared with
// others: they are replaced, and never changed.
func (m *remote) prepare(r *httpRequest, method string, accept []string) {
	r.to, r.method, r.header = m, method, make(http.Header, len(m.header)+mostHeaders)
	for name, values := range m.header {
		r.header[name] = slices.Clip(values)
	}
	if accept != nil {
		r.header["Accept"] = accept
	}
}

// mostHeaders is how many headers most requests have beside those of the user.
const mostHeaders = 5

// newPost returns the HTTP request that posts a message. The message's route says
// all that the headers mirror.
func (m *remote) newPost(o *outgoing) *httpRequest {
	r := new(httpRequest)
	m.preparePost(r, o)
	return r
}

func (m *remote) preparePost(r *httpRequest, o *outgoing) {
	m.prepare(r, http.MethodPost, m.acceptsBoth)
	r.frame = o.Frame
	r.header["Content-Type"] = m.sendsJSON
	switch {
	case o.modern():
		values := []string{o.Route.Version, o.Route.Method, encodeHeader(o.Route.Name)}
		r.header[headerVersion] = values[:1:1]
		r.header[headerMethod] = values[1:2:2]
		if o.Route.Name != "" {
			r.header[headerName] = values[2:]
		}
		if o.Route.Arguments != nil {
			for name, value := range *o.Route.Arguments {
				r.header.Set(headerArgument+name, encodeHeader(value))
			}
		}
	case o.Route.Method != protocol.MethodInitialize:
		r.joinSession()
	}
}

// joinSession adds the headers of a legacy session, if there is one.
func (r *httpRequest) joinSession() {
	s := r.to.currentSession()
	if s.version != "" {
		r.header[headerVersion] = s.versions
	}
	if s.id != "" {
		r.header[headerSession] = s.ids
		r.inSession = true
	}
}

// do sends the request. The caller closes the body of the response.
func (r *httpRequest) do(ctx context.Context) (*http.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	response, unsent, err := web.Send(ctx, r.to.client, r.to.auth, func() (*http.Request, error) { return r.attempt(ctx) })
	if unsent {
		r.handedOver = false
	}
	r.fatal = r.count(ctx, response, err)
	if err == nil {
		r.to.heard.Note() // the headers
		response.Body = &countedBody{response.Body, r}
	}
	return response, err
}

// attempt returns the request to send, from the beginning.
func (r *httpRequest) attempt(ctx context.Context) (*http.Request, error) {
	r.to.mu.Lock()
	r.end()
	r.over = false
	r.to.mu.Unlock()
	r.waiting.Store(false)
	r.dialing.Store(false)
	r.connected.Store(false)
	request := r.to.template.WithContext(httptrace.WithClientTrace(ctx, r.trace()))
	address := *request.URL
	request.Method, request.URL, request.Header = r.method, &address, r.header
	if r.to.auth != nil { // it adds to them, and there may be another attempt
		request.Header = r.header.Clone()
	}
	if r.frame != nil {
		request.ContentLength = int64(len(r.frame))
		request.GetBody = r.body
		request.Body, _ = r.body()
	}
	r.handedOver = true
	return request, nil
}

// body returns the frame to send, from the beginning. It does not fail.
func (r *httpRequest) body() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(r.frame)), nil
}

// A countedBody counts its bytes. Its request is over when it is closed.
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
	return b.ReadCloser.Close()
}

// trace observes the request. Its functions run on the HTTP client's goroutines.
func (r *httpRequest) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:      func(string) { r.waiting.Store(true) },
		DNSStart:     func(httptrace.DNSStartInfo) { r.dialing.Store(true) },
		ConnectStart: func(string, string) { r.dialing.Store(true) },
		GotConn:      func(httptrace.GotConnInfo) { r.gotConnection() },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if r.written != nil && info.Err == nil {
				r.written()
			}
		},
	}
}

func (r *httpRequest) gotConnection() {
	r.connected.Store(true)
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	r.begin()
}

// unsent reports whether surely no byte of the request left. A RoundTripper that
// does not trace leaves that open.
func (r *httpRequest) unsent() bool {
	return !r.handedOver || r.waiting.Load() && !r.connected.Load()
}

// count counts how the request went, and returns why the link is over with it. A
// failed dial says little while another exchange is alive: a server that drains
// refuses connections, and finishes what it has begun.
func (r *httpRequest) count(ctx context.Context, response *http.Response, err error) error {
	m := r.to
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		r.end()
	}
	switch {
	case err == nil:
		r.begin() // also if the RoundTripper does not trace
		m.failedDials = 0
		if response.StatusCode/100 == 2 {
			m.disowned = 0
		}
		if r.inSession && response.StatusCode == http.StatusNotFound {
			return transport.ErrSessionExpired
		}
	case r.dialing.Load() && !r.connected.Load() && !errors.Is(ctx.Err(), context.Canceled) && m.alive == 0:
		if m.failedDials++; m.failedDials >= maxFailedDials {
			return fmt.Errorf("streamable: %s cannot be reached: %w", m.endpoint.Host, err)
		}
	}
	return nil
}

// countRefused counts a refusal that names no message. Some servers answer so,
// instead of with 404, when they do not know the session: two in a row mean that.
func (r *httpRequest) countRefused(refused *transport.StatusError) {
	if r.fatal != nil || !r.inSession || refused.Status != http.StatusBadRequest || refused.Fault == nil {
		return
	}
	r.to.mu.Lock()
	defer r.to.mu.Unlock()
	if r.to.disowned++; r.to.disowned >= maxDisowned {
		r.fatal = fmt.Errorf("%w: %w", transport.ErrSessionExpired, refused)
	}
}
