package gateway

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/policy"
	"github.com/bowline-mcp/bowline/protocol"
)

// A levels is the log level that legacy clients want.
type levels struct {
	unclaimed atomic.Int64 // messages that nobody got

	mu      sync.Mutex
	wanted  protocol.LogLevel           // the most verbose one; "": nobody wants messages
	changes int                         // how often it may have changed
	users   map[*server.Session]logUser // the sessions that there are
}

// A logUser is whose session it is that has chosen a level.
type logUser struct {
	policy.Who
	chose bool
}

// now returns the level, and a number that is another one after each change.
func (l *levels) now() (protocol.LogLevel, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted, l.changes
}

// choose notes that a session has chosen a level. One that has ended meanwhile wants no messages, and would never be forgotten.
func (l *levels) choose(s *server.Session, who policy.Who) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, exists := l.users[s]; exists {
		l.users[s] = logUser{who, true}
		l.update()
	}
}

// update finds the level anew. The caller holds mu.
func (l *levels) update() {
	l.changes++
	l.wanted = ""
	for s, user := range l.users {
		if user.chose {
			l.wanted = moreVerbose(l.wanted, s.LogLevel())
		}
	}
}

// add notes a session, which has chosen no level yet. It is forgotten at the end of its context.
func (l *levels) add(ctx context.Context, s *server.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users == nil {
		l.users = make(map[*server.Session]logUser)
	}
	l.users[s] = logUser{}
	context.AfterFunc(ctx, func() { l.remove(s) })
}

func (l *levels) remove(s *server.Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	chose := l.users[s].chose
	if delete(l.users, s); chose {
		l.update()
	}
}

// everybody returns the sessions that have chosen a level and may see a message, and whether all are of the same user.
func (l *levels) everybody(may func(who policy.Who, s *server.Session) bool) (all []*server.Session, same bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := ""
	for s, user := range l.users {
		switch {
		case !user.chose, !may(user.Who, s):
			continue
		case len(all) > 0 && user.Identity != of:
			return nil, false
		}
		of, all = user.Identity, append(all, s)
	}
	return all, true
}

// moreVerbose returns the level with more messages. "" has none.
func moreVerbose(a, b protocol.LogLevel) protocol.LogLevel {
	if a == "" || b != "" && b.Severity() < a.Severity() {
		return b
	}
	return a
}

// A sentLevel is the log level that a server knows.
type sentLevel struct {
	conn    *conn.Conn // of its session
	level   protocol.LogLevel
	changes int // of levels, then
}

// next returns the level that the server is to be told; "": it knows.
func (t sentLevel) next(over *conn.Conn, wanted protocol.LogLevel, changes int, ofCall protocol.LogLevel) protocol.LogLevel {
	if t.conn != over {
		t = sentLevel{}
	}
	level := moreVerbose(wanted, ofCall)
	if t.changes == changes {
		level = moreVerbose(t.level, level)
	}
	if level == "" && t.level != "" {
		level = protocol.LogEmergency // there is no level without messages
	}
	if level == t.level {
		return ""
	}
	return level
}
