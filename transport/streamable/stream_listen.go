package streamable

import (
	"net/http"
	"slices"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// listen serves a GET: it is where Main leads. It takes over from an earlier
// one, whose client may not know yet that it is dead. What that one has not
// begun to write is left to this one.
func (h *Handler) listen(s *serverSession, w http.ResponseWriter, r *http.Request) *refusal {
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
	if n := len(s.listeners); n > 0 && !s.listeners[n-1].cut {
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
		old.cut = true
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
	s.mu.Lock()
	s.listeners = slices.DeleteFunc(s.listeners, func(other *route) bool { return other == l })
	waited := false
	if s.listener() == nil {
		waited = s.main.abandon() && s.reason == nil
		if s.listeners = nil; s.main.queue.Len() == 0 {
			s.main = nil
		}
	}
	s.mu.Unlock()
	if waited {
		s.to.tell(transport.Receiver.Writable)
	}
}
