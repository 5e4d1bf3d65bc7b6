package gateway

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/gateway/internal/life"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/mcpjson/sessions"
)

// endGrace is how long a server may take to end that nobody uses.
const endGrace = 5 * time.Second

// A lifecycle ends servers that nobody uses, and starts them again for those who do.
type lifecycle struct {
	*life.Keeper
	set *sessions.Set
	log *slog.Logger

	copies atomic.Int64 // how many connections there were that not all clients share

	servers func() map[string]*upstream          // of the file; never changed
	kept    func(name string) bool               // it must run, although no call is under way
	known   func(name string) bool               // all that it offers is known
	sweep   func(now time.Time) (next time.Time) // forgets tasks whose time is over, which hold their servers
}

// begin makes the keeper. Nothing is ended before the first Check.
func (l *lifecycle) begin() { l.Keeper = life.NewKeeper(l.endDue) }

// endDue ends the servers whose life is over, and returns when that of another may be.
func (l *lifecycle) endDue(now time.Time) (next time.Time) {
	next = l.sweep(now)
	for name, u := range l.servers() {
		next = life.Earlier(next, l.endCopies(u, now))
		switch at, over := u.use.Look(u.rule, l.kept(name), now); {
		case over:
			l.Go(func(ctx context.Context) { l.end(ctx, u) })
		default:
			next = life.Earlier(next, at)
		}
	}
	return next
}

// end ends a server that nobody uses. One that was only too old is started again.
func (l *lifecycle) end(ctx context.Context, u *upstream) {
	defer u.notifier.notify()
	ran := false
	defer func() { u.use.Ended(ran) }()
	grace, cancel := context.WithTimeout(ctx, endGrace)
	defer cancel()
	err := l.set.StopIf(grace, u.Name, func() bool {
		ran = true
		return l.mayStop(u)
	})
	if err != nil && ctx.Err() == nil {
		l.log.Warn("bowline: a server that nobody uses did not end properly", "server", u.Name, "error", err)
	}
	if u.rule.Renews() && ctx.Err() == nil {
		_ = l.startIfAsleep(ctx, u) // which notes why it could not
	}
}

// mayStop reports whether a server ends now. One of an earlier file may have got another rule, or be another server by now. What is wrong with
// it is kept for the report: else a server that does not work would look as if it only slept.
func (l *lifecycle) mayStop(u *upstream) bool {
	now := l.servers()[u.Name]
	if now == nil || now.traffic != u.traffic {
		return false
	}
	failure := ""
	if session, running := l.set.Session(u.Name); running {
		if status := session.Status(); status.State != conn.Ready && status.LastFailure.Kind != "" {
			failure = status.LastFailure.Error()
		}
	}
	return u.use.FallAsleep(now.rule, l.kept(u.Name), time.Now(), failure)
}

// isLater reports whether a server is started by its first use. It is not if something that it offers is not known: nobody could use that.
func (l *lifecycle) isLater(s *mcpjson.Server) bool {
	u := l.servers()[s.Name]
	if u == nil || !u.rule.OnDemand || !l.known(s.Name) {
		return false
	}
	u.use.SetAsleep(true)
	return true
}

// startIfAsleep starts a server that is asleep. One that is being ended ends first. It does not wait until the server is ready.
func (l *lifecycle) startIfAsleep(ctx context.Context, u *upstream) error {
	if _, asleep := u.use.IsAsleep(); !asleep {
		return nil
	}
	err := l.set.Start(ctx, u.Name)
	if u.note(err); err != nil {
		u.use.SetAsleep(true) // the next use tries again
	}
	u.notifier.notify()
	return err
}
