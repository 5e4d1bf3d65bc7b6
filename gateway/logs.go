package gateway

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// A levels is the log level that legacy clients want.
type levels struct {
	unclaimed atomic.Int64 // messages that nobody got

	mu      sync.Mutex
	wanted  protocol.LogLevel          // the most verbose one; "": nobody wants messages
	changes int                        // how often it may have changed
	users   map[*server.Session]string // the identities of those who have chosen a level
}

// now returns the level, and a number that is another one after each change.
func (l *levels) now() (protocol.LogLevel, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted, l.changes
}

// choose notes the level of a session, and of one that has ended that it has none.
func (l *levels) choose(s *server.Session, identity string, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users == nil {
		l.users = make(map[*server.Session]string)
	}
	if _, chose := l.users[s]; ended && !chose {
		return
	}
	if l.users[s] = identity; ended {
		delete(l.users, s)
	}
	l.changes++
	l.wanted = ""
	for other := range l.users {
		l.wanted = moreVerbose(l.wanted, other.LogLevel())
	}
}

// sessionContext notices when the session of a client ends.
func (l *levels) sessionContext(given func(context.Context, *server.Session) context.Context) func(context.Context, *server.Session) context.Context {
	return func(ctx context.Context, s *server.Session) context.Context {
		context.AfterFunc(ctx, func() { l.choose(s, "", true) })
		if given != nil {
			return given(ctx, s)
		}
		return ctx
	}
}

// everybody returns the sessions that have chosen a level, and whether all are of the same user.
func (l *levels) everybody() (all []*server.Session, same bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := ""
	for s, identity := range l.users {
		if len(all) > 0 && identity != of {
			return nil, false
		}
		of, all = identity, append(all, s)
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
