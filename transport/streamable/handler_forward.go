package streamable

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// byNodeKey is the key in the context of a request that comes from another node.
type byNodeKey struct{}

// retriedKey is the key in the context of a request that is forwarded, and has a retried as its
// value.
type retriedKey struct{}

// A retried says in which case a request that did not reach its node is served by another one. A
// handler of Forward then answers 421.
type retried uint8

const (
	notRetried retried = iota
	ifGone             // if the node has refused two connections, at least a second apart
	ifRefused          // if it has refused a connection
)

func retriedOf(r *http.Request) retried {
	on, _ := r.Context().Value(retriedKey{}).(retried)
	return on
}

// Forwarded returns a request as one that another node has forwarded. Call it only if the sender
// has proved that it is such a node, which has checked origin and host of the request; package
// cluster does so. RemoteAddr and TLS of the request must say how the client has reached that
// node, and not how the node has reached this one.
//
// If the session of the request is at another node, or cannot be served here, the response has
// status 421. The header Mcp-Session-Node then names the node that has the session, if that is
// known. A Handler that has forwarded a request looks after that itself.
func Forwarded(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), byNodeKey{}, byNodeKey{}))
}

// checkedKey is the key in the context of a request that another node has checked and sent back.
type checkedKey struct{}

// CheckedBefore reports whether HandlerOptions.Check of another node has accepted a request already,
// which that node has then forwarded, or left to others. So what a client may use only once, such as
// a DPoP proof, was used by this very request.
func CheckedBefore(r *http.Request) bool {
	return r.Context().Value(checkedKey{}) != nil || isByNode(r) && r.Header.Get(headerChecked) != ""
}

// isByNode reports whether another node has forwarded a request, and has proved that it is one.
func isByNode(r *http.Request) bool { return r.Context().Value(byNodeKey{}) != nil }

// A request that another node does not serve comes back, and is served here or by a third node. That
// is only possible while its body can be sent again: so a short body is kept, and a longer one is not
// sent before the other node has said that it wants it (100-continue).

// hop forwards a request of a session to another node. Served is false if that node does not
// serve it. Nothing was written then, and the node may have named the owner of the session. A
// small body is kept for that case. A larger one is not sent before the node asks for it.
func (a *arrival) hop(to http.Handler) (served bool, owner string, refused *refusal) {
	a.hops++
	length, on := a.r.ContentLength, notRetried
	if a.h.savings != nil {
		on = ifRefused
	}
	switch {
	case length > int64(a.h.options.MaxBody):
		return true, "", a.h.bodies.tooLarge()
	case a.received != nil:
	case a.r.Body == nil || length <= 0 || length > web.SmallBody || on == notRetried:
		return a.stream(to, on)
	default:
		if a.received, refused = a.receive(); refused != nil {
			return true, "", refused
		}
	}
	served, owner = a.h.forwardRead(to, a.w, a.r, a.received, on, &a.checked)
	return served, owner, nil
}

// stream forwards a request while its body arrives, if it has one. Once the body was read, only
// that node can serve the request.
func (a *arrival) stream(to http.Handler, on retried) (served bool, owner string, refused *refusal) {
	ctx, cancel := context.WithCancel(context.WithValue(a.r.Context(), retriedKey{}, on))
	defer cancel()
	if a.r.Method == http.MethodGet { // its client comes back elsewhere
		defer context.AfterFunc(a.h.ctx, cancel)()
	}
	r := a.r.Clone(ctx)
	if r.Body == nil || r.ContentLength == 0 {
		served, owner = forward(to, a.w, r, nil, &a.checked)
		return served, owner, nil
	}
	announced := a.w.Header()["Connection"]
	a.w.Header().Del("Connection") // here, because another goroutine reads the body
	// A MaxBytesReader also remembers the end: net/http closes the body when the response begins, and a transport that
	// then found no end would break off the response.
	body := &arriving{Reader: http.MaxBytesReader(a.w, r.Body, int64(a.h.options.MaxBody)), pace: newPace(a.expected)}
	body.returned = body.pace.begun
	defer body.leave()
	if r.Body = body; on != notRetried {
		r.Header.Set("Expect", "100-continue")
	}
	if served, owner = forward(to, a.w, r, nil, &a.checked); served {
		return true, "", nil
	}
	if announced != nil {
		a.w.Header()["Connection"] = announced
	}
	if !body.reclaim() && on != notRetried {
		return true, "", moving(jsonrpc.ID{})
	}
	return false, owner, nil
}

// forwardRead forwards a request whose body was read. Served is false if the other node does not
// serve the request. Nothing was written then, and the node may have named the owner of the
// session. The body leaves its room when the response begins or, unless it is kept because any
// refusal is retried, when it was read.
func (h *Handler) forwardRead(to http.Handler, w http.ResponseWriter, r *http.Request, b *body, on retried, checked *bool) (served bool, owner string) {
	sent := &sentBody{b: b, rest: b.frame, keeps: on == ifRefused}
	defer sent.leave()
	r = r.Clone(context.WithValue(r.Context(), retriedKey{}, on))
	r.Header.Del("Expect")
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer = sent, int64(len(b.frame)), nil, nil
	return forward(to, w, r, func() { sent.done() }, checked)
}

// A sentBody is the body of a forwarded request that was read. It leaves its room early, because
// the answer may take long. One goroutine reads at a time, but not the one that serves the
// request.
type sentBody struct {
	keeps bool // the body stays until the response begins

	mu   sync.Mutex
	b    *body // nil if it has left its room, and when the request is over
	rest []byte
}

// Read implements io.Reader.
func (s *sentBody) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := copy(p, s.rest)
	if s.rest = s.rest[n:]; len(s.rest) > 0 {
		return n, nil
	}
	if !s.keeps {
		s.drop()
	}
	return n, io.EOF
}

// Close implements io.Closer. The body stays readable, because the request may be sent again
// on another connection if nothing was read.
func (*sentBody) Close() error { return nil }

// done says that the body is not needed any more, except for what was not read yet.
func (s *sentBody) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
}

// leave prevents that a late read uses the body of a request that is over.
func (s *sentBody) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b, s.rest = nil, nil
}

// drop makes the body leave its room. The caller holds mu.
func (s *sentBody) drop() {
	if s.b != nil {
		s.b.take()
		s.b = nil
	}
}

// forward forwards a request. It calls begins, which may be nil, when the response begins.
// Served is false if the other node does not serve the request. Nothing was written then, and
// the node may have named the owner of the session. Checked says whether a node has checked the
// request, before and afterwards.
func forward(to http.Handler, w http.ResponseWriter, r *http.Request, begins func(), checked *bool) (served bool, owner string) {
	markForwarded(r.Header, *checked)
	answer := &relay{ResponseWriter: w, header: make(http.Header), begins: begins}
	to.ServeHTTP(answer, r)
	if answer.misdirected {
		*checked = *checked || answer.header.Get(headerChecked) != ""
		return false, answer.header.Get(headerOwner)
	}
	answer.WriteHeader(http.StatusOK) // without an effect, unless the node has written nothing
	return true, ""
}

// markForwarded says in the headers of a request that it is forwarded, and whether a node has checked
// it. What the client says of that does not count.
func markForwarded(header http.Header, checked bool) {
	header.Set(headerForwarded, "1")
	unlist(header, headerForwarded)
	header.Del(headerChecked)
	if checked {
		header.Set(headerChecked, "1")
		unlist(header, headerChecked)
	}
}

// A relay is the ResponseWriter of a request that another node serves. It holds back a response
// with status 421.
type relay struct {
	http.ResponseWriter
	header      http.Header // until the response begins
	begins      func()      // is called when it begins; may be nil
	begun       bool
	misdirected bool
}

// Unwrap implements what http.ResponseController needs.
func (w *relay) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Header implements http.ResponseWriter.
func (w *relay) Header() http.Header {
	if w.begun {
		return w.ResponseWriter.Header()
	}
	return w.header
}

// WriteHeader implements http.ResponseWriter.
func (w *relay) WriteHeader(status int) {
	switch {
	case w.begun || w.misdirected || status < http.StatusOK && status != http.StatusSwitchingProtocols:
	case status == http.StatusMisdirectedRequest:
		w.misdirected = true
	default:
		if w.begun = true; w.begins != nil {
			w.begins()
		}
		maps.Copy(w.ResponseWriter.Header(), w.header)
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (w *relay) Write(text []byte) (int, error) {
	if w.WriteHeader(http.StatusOK); w.misdirected {
		return len(text), nil
	}
	return w.ResponseWriter.Write(text)
}

// Flush implements http.Flusher.
func (w *relay) Flush() { _ = w.FlushError() }

// FlushError implements what http.ResponseController needs.
func (w *relay) FlushError() error {
	if w.WriteHeader(http.StatusOK); w.misdirected {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// unlist removes the name of a header from the Connection header. Otherwise a client could
// have a proxy remove that header.
func unlist(header http.Header, name string) {
	var kept []string
	for _, value := range header["Connection"] {
		for listed := range strings.SplitSeq(value, ",") {
			if listed = strings.TrimSpace(listed); listed != "" && !strings.EqualFold(listed, name) {
				kept = append(kept, listed)
			}
		}
	}
	if header["Connection"] = kept; kept == nil {
		delete(header, "Connection")
	}
}

// errReclaimed is the error of a Read of a body that is sent to another node by now.
var errReclaimed = errors.New("streamable: the request is sent to another node")

// An arriving body extends its deadline for each piece that arrives, and removes it when it
// has been read to the end. The time between two reads does not count, because the other
// node determines it. One goroutine reads at a time, but not the one that serves the request.
// Close does nothing: the server closes the body itself, and another node may need it.
type arriving struct {
	io.Reader
	arrived  int
	returned time.Time // when the last read returned

	mu        sync.Mutex
	pace      pace
	begun     bool // somebody has read
	left      bool // the request is over, so its connection may have another one
	reclaimed bool // nobody may read any more
}

func (a *arriving) Read(p []byte) (int, error) {
	if !a.expect() {
		return 0, errReclaimed
	}
	n, err := a.Reader.Read(p)
	a.arrived, a.returned = a.arrived+n, time.Now()
	if errors.Is(err, io.EOF) {
		a.setEnd()
	}
	return n, err
}

func (*arriving) Close() error { return nil }

// expect sets the deadline of the next read. It reports false if there must be none.
func (a *arriving) expect() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.begun = true; a.reclaimed {
		return false
	}
	if !a.left {
		a.pace.pause(time.Since(a.returned))
		a.pace.allow(a.arrived)
	}
	return true
}

// setEnd removes the deadline.
func (a *arriving) setEnd() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.left {
		a.pace.control.SetReadDeadline(time.Time{}) // without an effect if the writer does not support deadlines
	}
}

// leave prevents that a late read sets a deadline for the next request of the connection.
func (a *arriving) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
}

// reclaim prevents all reads, and reports whether there was none.
func (a *arriving) reclaim() (unread bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reclaimed = true
	return !a.begun
}
