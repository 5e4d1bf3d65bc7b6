package streamable

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/bowline-mcp/bowline/internal/nodename"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Requests without a session are served where they arrive, except for those that need what
// only one process has: the next round of a call whose handler waits, and requests for a
// task. The client carries the name of its node in requestState or taskId (ADR-0075).

// named returns a handler that forwards a modern request to the node that it names, or nil
// if this node serves it. Nobody has checked the name. A request is forwarded only once.
func (h *Handler) named(r *http.Request, b *body) http.Handler {
	if h.options.Router == nil || r.Header.Get(headerForwarded) != "" {
		return nil
	}
	if node := nodeOf(b); node != "" && node != h.node {
		return h.options.Router.ReachNode(node)
	}
	return nil
}

// nodeOf returns the node that a modern request names, or "".
func nodeOf(b *body) string {
	const longest = len(`"`+nodename.StateVersion+nodename.Mark) + nodename.Longest // the part of a state that has the name
	switch method, _ := protocol.MethodInfo(b.Method); {
	case method.NameParam == "taskId":
		return nodename.Of(method.NameOf(b.Params))
	case !bytes.Contains(b.Params, []byte(`"requestState"`)): // most requests; no client escapes this name
		return ""
	}
	state, repeated := jsonrpc.Member(b.Params, "requestState")
	if repeated || len(state) == 0 || state[0] != '"' {
		return "" // the server refuses it
	}
	return nodename.OfState(string(state[1:min(len(state), longest)])) // no client escapes this part
}

// forwardRead forwards a request whose body was read. It reports false if the node is gone,
// so that this node serves the request, which was not sent then.
func (h *Handler) forwardRead(to http.Handler, w http.ResponseWriter, r *http.Request, b *body) bool {
	sent, gone := &sentBody{b: b, rest: b.frame}, false
	defer sent.leave()
	r = r.Clone(context.WithValue(r.Context(), goneKey{}, func() bool {
		gone = sent.leave()
		return gone
	}))
	r.Header.Set(headerForwarded, "1")
	unlist(r.Header, headerForwarded)
	r.Header.Del("Expect")
	r.Body, r.ContentLength, r.TransferEncoding, r.Trailer = sent, int64(len(b.frame)), nil, nil
	to.ServeHTTP(w, r)
	return !gone
}

// goneKey is the key of a func() bool in the context of a request that was read. A handler of
// Forward calls it if its node is gone. If the result is true, it writes no response, because
// this node serves the request.
type goneKey struct{}

// A sentBody is the body of a forwarded request. It leaves its room as soon as it was read,
// because the answer may take long. One goroutine reads at a time, but not the one that
// serves the request.
type sentBody struct {
	mu   sync.Mutex
	b    *body // nil if it was read, and when the request is over
	rest []byte
}

// Read implements io.Reader.
func (s *sentBody) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	switch {
	case len(s.rest) > 0:
		return n, nil
	case s.b == nil:
		return n, io.EOF
	}
	s.b.take()
	s.b = nil
	return n, io.EOF
}

// Close implements io.Closer. The body stays readable, because the request may be sent again
// on another connection if nothing was read.
func (*sentBody) Close() error { return nil }

// leave prevents that a late read uses the body of a request that is over. It reports whether
// the body was left as it was.
func (s *sentBody) leave() (unread bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unread = s.b != nil && len(s.rest) == len(s.b.frame)
	s.b, s.rest = nil, nil
	return unread
}
