package streamable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
	"github.com/bowline-mcp/bowline/transport/internal/heard"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

const (
	// maxFailedDials is how many dials in a row may fail before the link is lost.
	maxFailedDials = 2

	// maxDisowned is how many refusals in a row that name no message lose the link: they
	// may mean that the server does not know the session.
	maxDisowned = 2

	// maxSessionID is the longest session id that a client accepts, in bytes.
	maxSessionID = 1 << 10
)

// A remote is what a link knows about its server, from its HTTP requests.
type remote struct {
	endpoint *url.URL
	client   *http.Client
	header   http.Header
	auth     web.Authorizer // nil for none
	heard    heard.Time

	template                              *http.Request // of all requests
	acceptsBoth, acceptsEvents, sendsJSON []string      // values of headers, shared by requests
	traces                                sync.Pool     // of *requestTrace
	readers                               sync.Pool     // of *eventstream.Reader

	mu          sync.Mutex
	session     session
	http        string     // version of the last response
	posted      postHeader // of the last message whose headers others may share
	failedDials int        // since anything was received
	alive       int        // HTTP exchanges that have a connection and have not ended
	disowned    int        // refusals that name no message, since a message was accepted
}

// A session is what the response to initialize of a legacy server says.
type session struct {
	begun   bool
	id      string // empty if the server keeps no session
	version string

	ids, versions []string // the same, as values of headers; nil if empty
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

func (m *remote) currentSession() session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session
}

func (m *remote) network() transport.Network {
	m.mu.Lock()
	defer m.mu.Unlock()
	return transport.Network{HTTP: m.http, Session: m.session.id}
}

// begin begins the session for a response to initialize, with the ids from its headers.
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
		result.Version = "" // the receiver of the response will refuse it
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.session = session{begun: true, id: id, version: result.Version, ids: headerValue(id), versions: headerValue(result.Version)}
	m.posted = postHeader{}
	return nil
}

// join adds the headers of a legacy session, if there is one. It reports whether it
// added the session's id.
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
func (m *remote) newReader(from io.Reader, limit int) *eventstream.Reader {
	r, ok := m.readers.Get().(*eventstream.Reader)
	if !ok {
		return eventstream.NewReader(from, limit)
	}
	r.Reset(from, limit)
	return r
}

// release keeps a reader for another stream.
func (m *remote) release(r *eventstream.Reader) {
	r.Reset(nil, 0)
	m.readers.Put(r)
}

// headerValue returns a value of a header, which requests may share.
func headerValue(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// received records that something was received.
func (m *remote) received() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failedDials = 0
}

// count counts the result of the request. If the link must end, it returns the reason. A
// failed dial says little while another exchange is running: a server that shuts down
// refuses connections, but finishes running requests.
func (r *httpRequest) count(ctx context.Context, response *http.Response, err error) error {
	m := r.to
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		r.end()
	}
	switch {
	case err == nil:
		r.begin() // in case the RoundTripper does not support tracing
		m.failedDials, m.http = 0, web.VersionOf(response.Proto)
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

// countRefused counts a refusal that names no message. Some servers respond so, instead
// of with 404, when they do not know the session. Two in a row are taken to mean that.
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
