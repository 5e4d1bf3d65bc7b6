package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/internal/life"
	"github.com/bowline-mcp/bowline/gateway/internal/pool"
)

// connect returns the connection with a server that a request uses, until leave. It starts nothing. The error says that others have all of
// them, or is that of ctx.
func (l *lifecycle) connect(ctx context.Context, u *upstream) (*connection, error) {
	if u.share == shareAll {
		u.use.Hold()
		return &u.shared, nil
	}
	owner, of := ownerIn(ctx, u.share)
	var session any
	if of != nil {
		session = of.session
	}
	made := false
	create := func(p *place) {
		made = true
		p.Value = &connection{place: p, as: fmt.Sprint(u.Name, copySign, l.copies.Add(1))}
	}
	place, err := u.pool.Enter(ctx, owner, session, create, func(idle *place) { l.endCopy(u, idle) })
	if err != nil {
		return nil, err
	}
	if of != nil && of.ctx.Err() != nil { // it may have left before it was noted
		u.pool.Left(session)
		made = true
	}
	if made {
		l.Check()
	}
	return place.Value, nil
}

// hold keeps a connection that is used now, until one more leave.
func (l *lifecycle) hold(u *upstream, c *connection) {
	if c.place == nil {
		u.use.Hold()
		return
	}
	u.pool.Hold(c.place)
}

// leave ends connect, or hold.
func (l *lifecycle) leave(u *upstream, c *connection) {
	if c.place == nil {
		u.use.Release(true)
	} else if u.pool.Leave(c.place) {
		l.Check()
	}
}

// left notes that the session of a client has ended, so that no connection is kept for it.
func (l *lifecycle) left(s *server.Session) {
	for _, u := range l.servers() {
		u.pool.Left(s)
		u.states.left(s)
	}
	l.Check()
}

// session returns the session of a connection, if it runs.
func (l *lifecycle) session(u *upstream, c *connection) (*client.Session, bool) {
	if c.place == nil {
		return l.set.Session(u.Name)
	}
	return l.set.Copy(u.Name, c.as)
}

// start starts the session of a connection that is to run and does not. It does not wait until the server is ready.
func (l *lifecycle) start(ctx context.Context, u *upstream, c *connection) error {
	if c.place == nil {
		return l.startIfAsleep(ctx, u)
	}
	if _, running := l.set.Copy(u.Name, c.as); running {
		return nil
	}
	return l.set.StartCopy(ctx, u.Name, c.as, func() bool { return l.mayStart(u) })
}

// mayStart reports whether a server may have connections: nobody has stopped it, and no file has replaced it.
func (l *lifecycle) mayStart(u *upstream) bool {
	if now := l.servers()[u.Name]; now == nil || now.pool != u.pool {
		return false
	}
	_, asleep := u.use.IsAsleep()
	_, running := l.set.Session(u.Name)
	return asleep || running
}

// endCopies ends the connections that nobody needs any more, and returns when that of another may be.
func (l *lifecycle) endCopies(u *upstream, now time.Time) (next time.Time) {
	keeps := func(of pool.Owner) bool { return u.share != shareAll && (of.Session == nil || u.share == shareClient) }
	due, next := u.pool.Due(now, keeps, func(left bool) life.Rule {
		r := life.Rule{Idle: u.rule.Idle, Longest: u.rule.Longest}
		if left && (r.Idle == 0 || r.Idle > absentIdle) {
			r.Idle = absentIdle
		}
		return r
	})
	for _, place := range due {
		l.Go(func(context.Context) {
			defer u.pool.Ended()
			l.endCopy(u, place)
		})
	}
	return next
}

// endCopy ends the session of an owner, for whom a new one is started if he comes back.
func (l *lifecycle) endCopy(u *upstream, p *place) {
	defer u.notifier.notify()
	grace, cancel := context.WithTimeout(context.Background(), endGrace)
	defer cancel()
	if err := l.set.StopCopyIf(grace, u.Name, p.Value.as, func() bool { return true }); err != nil {
		l.log.Warn("bowline: a connection of a user did not end properly", "server", u.Name, "error", err)
	}
}

// logOut ends the session of an owner whose user was logged out. If the owner calls again, a new one begins, with what the store has then.
func (l *lifecycle) logOut(u *upstream, c *connection) {
	c.login.seen.Store(false)
	l.endCopy(u, c.place)
}
