package streamable

import (
	"io"
	"net/http"
	"slices"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// listen serves a GET: it is where Main leads. It takes over from an earlier
// one, whose client may not know yet that it is dead. What that one has not
// begun to write is left to this one.
func (h *Handler) listen(s *serverSession, w http.ResponseWriter, r *http.Request) *refusal {
	if !canFlush(w) {
		return cannotFlush(jsonrpc.ID{})
	}
	l := newRoute(s, w, nil)
	if !s.takeOver(&l) {
		return s.refusal(jsonrpc.ID{})
	}
	defer s.retireListener(&l)
	out := &response{ResponseWriter: w, route: &l, keepAlive: h.options.KeepAlive}
	out.begin()
	out.stream(r.Context(), nil, func([]transport.Outbound) {}) // its end is no news: Send finds nobody here
	return nil
}

// listener is the GET stream in use, or nil.
func (s *serverSession) listener() *route {
	if n := len(s.listeners); n > 0 && s.listeners[n-1].cut == nil {
		return s.listeners[n-1]
	}
	return nil
}

func (s *serverSession) takeOver(l *route) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != nil {
		return false
	}
	if old := s.listener(); old != nil {
		old.cut = io.EOF
		old.signal()
	}
	if s.main == nil {
		s.main = new(backlog)
	}
	l.box = s.main
	s.listeners = append(s.listeners, l)
	return true
}

func (s *serverSession) retireListener(l *route) {
	if s.stopListening(l) {
		s.to.Tell(transport.Receiver.Writable)
	}
}

// stopListening reports whether somebody waits for room on Main, which leads
// nowhere any more. One that was cut before may end after the one that has
// taken over.
func (s *serverSession) stopListening(l *route) (waited bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = slices.DeleteFunc(s.listeners, func(other *route) bool { return other == l })
	if s.listener() != nil || s.main == nil {
		return false
	}
	waited = s.main.abandon() && s.reason == nil
	if s.main.queue.Len() == 0 {
		s.main = nil
	}
	return waited
}
