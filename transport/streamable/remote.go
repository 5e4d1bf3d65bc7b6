package streamable

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	httpheader "github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// maxSessionID is the longest session id that a client accepts, in bytes.
const maxSessionID = 1 << 10

// A remote is what a link knows about its server, from its HTTP requests.
//
// Requests share maps of headers, and the slices in them. None may be changed: who must change one
// clones it first.
type remote struct {
	endpoint *url.URL
	client   *http.Client
	header   http.Header
	auth     transport.Authorizer // nil if there is none
	reads    parts.Reads

	template                              *http.Request // the template of all requests
	acceptsBoth, acceptsEvents, sendsJSON []string      // values of headers, shared by requests
	traces                                sync.Pool     // values are *requestTrace
	readers                               sync.Pool     // values are *eventstream.Reader

	mu          sync.Mutex
	session     session
	http        string     // the version of HTTP of the last response
	posted      postHeader // the headers of the last message, which other messages may share
	failedDials int        // how many dials have failed in a row, while no exchange was alive
	alive       int        // how many HTTP exchanges have a connection and have not ended
	disowned    int        // how many refusals without the id of a message came since a message was accepted
}

// A session is what the response to initialize of a legacy server says.
type session struct {
	begun   bool
	id      string // the session id; empty if the server keeps no session
	version string

	ids, versions []string // id and version as values of headers; nil if empty
}

func newRemote(endpoint *url.URL, client *http.Client, header http.Header) *remote {
	address := *endpoint
	address.Host = strings.TrimSuffix(address.Host, ":") // net/http does not accept an empty port
	return &remote{
		endpoint: endpoint, client: client, header: header,
		template:    &http.Request{URL: &address, Host: address.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1},
		acceptsBoth: []string{typeBoth}, acceptsEvents: []string{web.TypeEvents}, sendsJSON: []string{web.TypeJSON},
	}
}

func (to *remote) currentSession() session {
	to.mu.Lock()
	defer to.mu.Unlock()
	return to.session
}

func (to *remote) network() transport.Network {
	to.mu.Lock()
	defer to.mu.Unlock()
	return transport.Network{HTTP: to.http, Session: to.session.id}
}

// begin begins the session for a response to initialize, with the ids from its headers.
func (to *remote) begin(ids []string, response *jsonrpc.Message) error {
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
	if !decode(response.Result, &result) || !isToken(result.Version, len(protocol.Latest)) {
		result.Version = "" // the receiver of the response will refuse it
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	to.session = session{begun: true, id: id, version: result.Version, ids: headerValue(id), versions: headerValue(result.Version)}
	// The headers that are kept lack the session.
	to.posted = postHeader{}
	return nil
}

// join adds the headers of a legacy session, if there is one. It reports whether it
// added the session's id.
// All requests of the session share the values.
func (s *session) join(header http.Header) (inSession bool) {
	if s.version != "" {
		header[headerVersion] = s.versions
	}
	if s.id != "" {
		header[headerSession] = s.ids
	}
	return s.id != ""
}

// newReader returns a reader of events. The caller releases it.
func (to *remote) newReader(from io.Reader, limit int) *eventstream.Reader {
	r, ok := to.readers.Get().(*eventstream.Reader)
	if !ok {
		return eventstream.NewReader(from, limit)
	}
	r.Reset(from, limit)
	return r
}

// release keeps a reader for another stream.
// It refers to nothing of the stream that it has read.
func (to *remote) release(r *eventstream.Reader) {
	r.Reset(nil, 0)
	to.readers.Put(r)
}

// headerValue returns a value of a header, which requests may share.
func headerValue(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

func (to *remote) newRequest(method string, accept []string) *httpRequest {
	r := &httpRequest{to: to, method: method, header: to.newHeader()}
	if accept != nil {
		r.header["Accept"] = accept
	}
	return r
}

// newHeader returns the headers that all requests have. Requests share the values:
// replace them, and never change them.
func (to *remote) newHeader() http.Header {
	header := make(http.Header, len(to.header)+mostHeaders)
	for name, values := range to.header {
		header[name] = slices.Clip(values)
	}
	return header
}

// mostHeaders is how many headers most requests have in addition to the user's.
const mostHeaders = 5

// newPost returns the HTTP request that posts a message. The headers only depend on the
// message's route.
func (to *remote) newPost(ctx context.Context, o *outgoing) *httpRequest {
	r := new(httpRequest)
	to.preparePost(ctx, r, o)
	return r
}

// preparePost makes r a request that posts a message. The headers of the last message are kept, because
// most messages in a row need the same. Bearer is the program's code, so it is called without mu.
func (to *remote) preparePost(ctx context.Context, r *httpRequest, o *outgoing) {
	r.to, r.method, r.frame = to, http.MethodPost, o.Frame
	var bearer []string
	if to.auth != nil {
		bearer = web.BearerOf(ctx, to.auth, to.template.URL)
		r.bears = bearer != nil
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	if like := (postHeader{version: o.Route.Version}); like.mirrors(o) {
		if bearer != nil {
			like.bearer = &bearer[0]
		}
		if to.posted.header == nil || !to.posted.isLike(&like) {
			like.header, like.inSession = to.postHeader(o, bearer)
			to.posted = like
		}
		r.header, r.inSession = to.posted.header, to.posted.inSession
		return
	}
	r.header, r.inSession = to.postHeader(o, bearer)
}

// postHeader returns the headers for posting a message. The caller holds mu.
func (to *remote) postHeader(o *outgoing, bearer []string) (header http.Header, inSession bool) {
	header = to.newHeader()
	header["Accept"], header["Content-Type"] = to.acceptsBoth, to.sendsJSON
	if bearer != nil {
		header["Authorization"] = bearer
	}
	switch {
	// One array for three values: each header gets a slice of one, with no room to append.
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
	// initialize begins a session, so it belongs to none, even if there was one before.
	case o.Route.Method != protocol.MethodInitialize:
		inSession = to.session.join(header)
	}
	return header, inSession
}

// A postHeader contains the headers of a posted message, and the parts of the message
// that they depend on.
type postHeader struct {
	version, method, name string // set for a modern message only
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
func (to *remote) keepsHeaders() bool {
	_, standard := cmp.Or(to.client.Transport, http.DefaultTransport).(*http.Transport)
	return standard && to.client.Jar == nil
}
