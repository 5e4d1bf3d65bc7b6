package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/policy"
	"github.com/bowline-mcp/bowline/gateway/internal/pool"
)

// Who shares a connection with a server; see mcpjson.Hosting.
const (
	shareAll    = "all"
	shareUser   = "user"
	shareClient = "client"
)

// absentIdle is how long a connection waits for a user without a session, unless the file says something shorter: nobody knows whether a modern
// client comes back.
const absentIdle = 10 * time.Minute

// copySign stands between the name of a server and the number of a connection. No two connections of a gateway ever have the same number, so that
// whoever has the name of one that has ended finds nothing, and never that of another owner.
const copySign = " #"

// wakeInterval is between two calls that wake the same server, if it has answered none meanwhile. Calls must not make a broken server start
// in a loop.
const wakeInterval = 5 * time.Second

// A connection is one with a server, as clients use it.
type connection struct {
	place   *place                    // nil: all clients share it
	as      string                    // what its session is called
	subject subject                   // of its user
	name    atomic.Pointer[string]    // by which people know its user; nil: there is none
	woken   atomic.Pointer[time.Time] // when a call woke it last; nil: it has answered a call since
	login   seenLogin                 // of its user

	mu    sync.Mutex
	level sentLevel
}

type place = pool.Place[*connection]

// mayWake reports whether a call may wake the server at this time, which it then does.
func (c *connection) mayWake(now time.Time) bool {
	last := c.woken.Load()
	return (last == nil || now.Sub(*last) >= wakeInterval) && c.woken.CompareAndSwap(last, &now)
}

// hasAnswered notes that the server works: if it dies now, that is no reason to let calls wait.
func (c *connection) hasAnswered() {
	if c.woken.Load() != nil {
		c.woken.Store(nil)
	}
}

// serves reports whether a client may see what comes over this connection.
func (c *connection) serves(identity string, s *server.Session) bool {
	if c.place == nil {
		return true
	}
	of := c.place.Owner
	return of.User == identity && (of.Session == nil || of.Session == any(s))
}

// A member is a client with a session, in the context of all its requests and of its end.
type member struct {
	session *server.Session
	ctx     context.Context         // of the session
	user    atomic.Pointer[user]    // nil: it has sent nothing yet
	decided atomic.Pointer[decided] // as its last request was; nil: no policy has been asked

	subscriber atomic.Pointer[policy.Who] // as who it has subscribed last; nil: it has not
}

// decided says by which policy, and about which class, requests of a client are decided.
type decided struct {
	by    *policy.Policy
	class policy.Class
}

type memberKey struct{}

// of returns the session; nil: a modern client has none.
func (m *member) of() *server.Session {
	if m == nil {
		return nil
	}
	return m.session
}

// ownerIn returns whose connection a request wants, and the session of its client. A modern client has no session: its user counts.
func ownerIn(ctx context.Context, share string) (owner pool.Owner, of *member) {
	of, _ = ctx.Value(memberKey{}).(*member)
	if request := server.RequestFrom(ctx); request != nil {
		owner.User = request.Origin.Identity
	} else if of != nil {
		if known := of.user.Load(); known != nil {
			owner.User = known.identity
		}
	}
	if share == shareClient && of != nil {
		owner.Session = of.session
	}
	return owner, of
}
