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
	"sync/atomic"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// maxMisses is how many dials in a row may fail before the link is lost.
const maxMisses = 2

// maxDisowned is how many refusals in a row that name no message, and may mean
// the session, lose the link.
const maxDisowned = 2

// An attempt is one HTTP request, and how far it came.
type attempt struct {
	link      *clientLink
	method    string
	header    http.Header
	frame     []byte
	written   func() // called when the request was written, perhaps not at all
	inSession bool   // it carries the session's id

	handed    bool        // to the HTTP client
	waiting   atomic.Bool // for a connection, new or used
	dialing   atomic.Bool // a new one is being made
	connected atomic.Bool
	fatal     error // why the link is over with it
}

func (l *clientLink) newAttempt(method, accept string) *attempt {
	a := &attempt{link: l, method: method, header: l.header.Clone()}
	if a.header == nil {
		a.header = make(http.Header)
	}
	if accept != "" {
		a.header.Set("Accept", accept)
	}
	return a
}

// newPost returns the attempt to post a frame.
func (l *clientLink) newPost(o *outgoing) *attempt {
	a := l.newAttempt(http.MethodPost, typeJSON+", "+typeStream)
	a.frame = o.Frame
	a.header.Set("Content-Type", typeJSON)
	switch {
	case o.modern():
		a.header.Set(headerVersion, o.Route.Version)
		a.header.Set(headerMethod, o.Route.Method)
		if o.Route.Name != "" {
			a.header.Set(headerName, encodeHeader(o.Route.Name))
		}
	case o.Route.Method != protocol.MethodInitialize:
		a.joinSession()
	}
	return a
}

// joinSession adds the headers of a legacy session, if there is one.
func (a *attempt) joinSession() {
	a.link.mu.Lock()
	s := a.link.session
	a.link.mu.Unlock()
	if s.version != "" {
		a.header.Set(headerVersion, s.version)
	}
	if s.id != "" {
		a.header.Set(headerSession, s.id)
		a.inSession = true
	}
}

// do sends the request. The response's body is the caller's to close.
func (a *attempt) do(ctx context.Context) (*http.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, a.trace()), a.method, a.link.endpoint.String(), a.body())
	if err != nil {
		return nil, err
	}
	request.Header = a.header
	a.handed = true
	response, err := a.link.http.Do(request)
	var detail *url.Error
	if errors.As(err, &detail) {
		err = detail.Err // the address may hold secrets
	}
	a.fatal = a.link.count(a, ctx, response, err)
	if err == nil {
		a.link.in.Add(1) // the headers
		response.Body = heardBody{a.link.in.Reader(response.Body), response.Body}
	}
	return response, err
}

// heardBody is a body whose bytes are counted.
type heardBody struct {
	io.Reader
	io.Closer
}

func (a *attempt) body() io.Reader {
	if a.frame == nil {
		return nil
	}
	return bytes.NewReader(a.frame)
}

// trace watches the request. Its functions run on the HTTP client's goroutines.
func (a *attempt) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn:      func(string) { a.waiting.Store(true) },
		DNSStart:     func(httptrace.DNSStartInfo) { a.dialing.Store(true) },
		ConnectStart: func(string, string) { a.dialing.Store(true) },
		GotConn:      func(httptrace.GotConnInfo) { a.connected.Store(true) },
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if a.written != nil && info.Err == nil {
				a.written()
			}
		},
	}
}

// unsent reports whether surely no byte of it left. A RoundTripper that cannot
// be traced leaves that open.
func (a *attempt) unsent() bool {
	return !a.handed || a.waiting.Load() && !a.connected.Load()
}

// count takes note of how an attempt went, and returns why the link is over.
func (l *clientLink) count(a *attempt, ctx context.Context, response *http.Response, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.misses = 0
		if response.StatusCode/100 == 2 {
			l.disowned = 0
		}
		if a.inSession && response.StatusCode == http.StatusNotFound {
			return transport.ErrSessionExpired
		}
	case a.dialing.Load() && !a.connected.Load() && !errors.Is(ctx.Err(), context.Canceled):
		if l.misses++; l.misses >= maxMisses {
			return fmt.Errorf("streamable: %s cannot be reached: %w", l.endpoint.Host, err)
		}
	}
	return nil
}

// countDisowned takes note of a refusal that concerns no message in particular.
// Some servers answer so when they do not know the session, where 404 is due:
// two in a row, with nothing accepted in between, mean that.
func (l *clientLink) countDisowned(a *attempt, refused *transport.StatusError) error {
	if !a.inSession || refused.Status != http.StatusBadRequest || refused.Fault == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.disowned++; l.disowned < maxDisowned {
		return nil
	}
	return fmt.Errorf("%w: %w", transport.ErrSessionExpired, refused)
}

// heard takes note that the server is there.
func (l *clientLink) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.misses = 0
}
