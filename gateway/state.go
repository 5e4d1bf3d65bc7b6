package gateway

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"weak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
	"github.com/bowline-mcp/bowline/gateway/internal/pool"
	"github.com/bowline-mcp/bowline/protocol"
)

// mostStates is how many clients of a server are known to have used stateful tools. Of one more, another one is forgotten, and then not told of a loss.
const mostStates = 4096

// An incarnation is one life of a server, from one connection to the next.
type incarnation struct {
	conn  weak.Pointer[conn.Conn] // which must not be kept because of that
	epoch uint64
}

// states are the incarnations in which clients have called stateful tools of a server. The zero value is ready.
type states struct {
	mu sync.Mutex
	of map[pool.Owner]incarnation
}

// move notes that a client calls a stateful tool, and reports whether its earlier calls were in another incarnation. Only the first call after that
// is told so: the client begins again with the next one.
func (s *states) move(of pool.Owner, now incarnation) (lost bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.of[of]
	if s.of == nil {
		s.of = make(map[pool.Owner]incarnation)
	}
	if !known && len(s.of) >= mostStates {
		for other := range s.of {
			delete(s.of, other)
			break
		}
	}
	s.of[of] = now
	return known && before != now
}

// left forgets the session of a client that has ended.
func (s *states) left(session any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.of, func(of pool.Owner, _ incarnation) bool { return of.Session == session })
}

type statefulKey struct{}

// noteMode returns the context for a call of a tool, which says whether the tool is stateful: the file decides, or else the server.
func noteMode(ctx context.Context, u *upstream, item catalogue.Item) context.Context {
	mode := cmp.Or(u.modes[item.Own], u.modes["*"])
	if mode != protocol.Stateful && (mode != "" || !item.Stateful) {
		return ctx
	}
	return context.WithValue(ctx, statefulKey{}, true)
}

// inState returns the view of a session for a call. That of a stateful tool is bound to the incarnation that there is now; lost says that the client
// has called such a tool in an earlier one.
func inState(ctx context.Context, u *upstream, session *client.Session) (view *client.Session, lost bool) {
	if ctx.Value(statefulKey{}) == nil {
		return session, false
	}
	o, status := session.Calls(), session.Status()
	o.ToolMode = protocol.Stateful
	if status.State != conn.Ready {
		return session.With(o), false // it fails
	}
	o.Epoch = status.Epoch
	owner, of := ownerIn(ctx, shareClient)
	lost = u.states.move(owner, incarnation{weak.Make(session.Conn()), status.Epoch})
	if of != nil && of.ctx.Err() != nil { // it may have left before it was noted
		u.states.left(of.session)
	}
	return session.With(o), lost
}
