package restore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// A Restorer knows what a session has asked for that must outlive the server. Its zero value
// has been asked for nothing.
type Restorer struct {
	mu       sync.Mutex
	level    levelChange   // the newest level that a server has accepted
	asked    []levelChange // newer levels that the server has not answered yet, oldest first
	levels   int           // the number of the newest level
	watching bool          // the goroutine of the Restorer is running
	first    bool          // nothing was restored on the known server yet
	known    Server        // the newest server that the program knows, from Connect or a Restored

	reports reports
}

// A levelChange is what one SetLogLevel asks for, or that of Begin for number 0.
type levelChange struct {
	number int
	level  protocol.LogLevel
}

// steps repeat on a new server what the session had asked the previous one for. They run in
// this order, once per server. Each returns the errors of requests that failed. A feature that
// asks a server for something lasting adds a step.
var steps = []func(*Restorer, context.Context, Caller, Server) []error{
	(*Restorer).restoreLogLevel,
	func(r *Restorer, ctx context.Context, c Caller, p Server) []error {
		return r.reports.resubscribe(ctx, c, p)
	},
	(*Restorer).restoreListening,
}

// SetDefault sets the level to ask each server for until SetLogLevel. Call it before the
// session begins.
func (r *Restorer) SetDefault(level protocol.LogLevel) { r.level.level = level }

// Begin starts to restore, if the program wants something from every server. First is the
// server that it already knows, or nil.
func (r *Restorer) Begin(s Session, first Server) {
	if s.WantsEvents() || r.LogLevel() != "" {
		r.watch(s, first, true)
	}
}

// watch starts the goroutine that restores. If fresh is not set, the present server
// needs nothing.
func (r *Restorer) watch(s Session, first Server, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watching {
		return
	}
	// The goroutine exists only from now on: a session that wants nothing lasting has none.
	r.watching, r.known, r.first = true, first, fresh
	if first == nil {
		s.StartsAway()
	}
	s.Conn().Control().Go("restore", func(ctx context.Context) { r.run(ctx, s) })
}

// run restores the session on each new server, until the session ends.
func (r *Restorer) run(ctx context.Context, s Session) {
	c := s.Conn()
	if first := r.known; first != nil && r.first {
		if failures := r.ask(ctx, s, first); len(failures) > 0 && isCurrent(first, c.Status()) {
			s.Restored(failures)
		}
	}
	// The status is read before the server. So a server that comes in between is seen in the next
	// turn at the latest, because Changed of the older status is closed then.
	for ctx.Err() == nil {
		status, p := c.Status(), s.Present()
		switch {
		case p != nil && p != r.known && isCurrent(p, status):
			if r.known != nil { // the loss of the known server may have been too short for this goroutine to notice
				s.Lost(r.known.Epoch(), status.LastFailure, time.Time{})
			}
			// Nothing is told of a server that was lost while the steps ran: the next turn reports
			// the loss, and one Restored stands for both.
			failures := r.ask(ctx, s, p)
			if isCurrent(p, c.Status()) {
				s.Restored(failures)
				r.reports.updatedAll()
			}
			continue
		case r.known != nil && !isCurrent(r.known, status) && status.State != conn.Closing:
			s.Lost(r.known.Epoch(), status.LastFailure, status.NextAttempt) // its reason may be that of the next attempt already
		}
		select {
		case <-status.Changed():
		case <-ctx.Done():
		}
	}
}

// ask runs the steps for one server. The program knows the server from then on.
func (r *Restorer) ask(ctx context.Context, s Session, p Server) (failures []error) {
	// The requests must not reach a later server: that one gets its own turn, from the first step on.
	bound := s.Caller(p.Epoch())
	for _, step := range steps {
		failures = append(failures, step(r, ctx, bound, p)...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.first = p, false
	return failures
}

// IsBehind reports whether a server is ready that the program does not know of yet, and
// returns the epoch of the server that the program knows if that one is gone, and else 0.
func (r *Restorer) IsBehind(status conn.Status, now Server) (behind bool, gone uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known != nil && !isCurrent(r.known, status) {
		gone = r.known.Epoch()
	}
	return r.watching && now != nil && isCurrent(now, status) && now != r.known, gone
}

// SawEpoch reports the loss of the known server. Call it before the program gets anything from
// the server of an epoch.
func (r *Restorer) SawEpoch(s Session, epoch uint64) {
	if known := r.knownServer(); known != nil && known.Epoch() < epoch {
		s.Lost(known.Epoch(), s.Conn().Status().LastFailure, time.Time{})
	}
}

func (r *Restorer) knownServer() Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

// LogLevel returns the level that the program has asked for last, unless a server has
// refused it.
func (r *Restorer) LogLevel() protocol.LogLevel {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.asked); n > 0 {
		return r.asked[n-1].level
	}
	return r.level.level
}

func (r *Restorer) restoreLogLevel(ctx context.Context, c Caller, p Server) []error {
	level := r.LogLevel()
	if level == "" || !p.Offers(protocol.MethodSetLogLevel) { // a modern request carries the level itself
		return nil
	}
	if err := c.SetLogLevel(ctx, p, level); err != nil {
		return []error{fmt.Errorf("log level %s: %w", level, err)}
	}
	return nil
}

// SetLogLevel asks this server, and every later one, for a log level. While several callers
// wait for an answer the newest one counts, and what a server refuses never counts.
func (r *Restorer) SetLogLevel(ctx context.Context, c Caller, level protocol.LogLevel) error {
	p, err := c.Require(ctx, protocol.MethodSetLogLevel, "logging")
	if err != nil {
		return err
	}
	// The change counts from now on, before the server has answered: a server that comes
	// meanwhile must be asked for this level and not for the one before.
	r.mu.Lock()
	r.levels++
	change := levelChange{r.levels, level}
	r.asked = append(r.asked, change)
	r.mu.Unlock()
	accepted := false
	defer func() { r.endChange(change, accepted) }()
	r.watch(c.Session(), p, false)
	if !p.Modern() {
		err = c.SetLogLevel(ctx, p, level)
	}
	accepted = err == nil
	return err
}

// endChange notes the answer to a change of the level.
func (r *Restorer) endChange(change levelChange, accepted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = slices.DeleteFunc(r.asked, func(c levelChange) bool {
		return c == change || accepted && c.number < change.number
	})
	// Answers may come in another order than the requests: an older change never replaces a newer one.
	if accepted && change.number > r.level.number {
		r.level = change
	}
}

// Subscribe asks this server, and every later one, to report changes of a resource, until
// Unsubscribe. An Unsubscribe meanwhile counts as one after it.
func (r *Restorer) Subscribe(ctx context.Context, c Caller, uri string) error {
	return r.subscribe(ctx, c, uri, nil)
}

// Unsubscribe ends what Subscribe began. Watchers of the resource stay.
func (r *Restorer) Unsubscribe(ctx context.Context, c Caller, uri string) error {
	return r.reports.unsubscribe(ctx, c, uri, func(sub *subscription) {
		sub.explicit = false
		sub.ended++
	})
}

// Watch does what Subscribe does, for one watcher until Unwatch. The watcher has room for one
// token, which it gets when it has to read the resource again.
func (r *Restorer) Watch(ctx context.Context, c Caller, uri string, watcher chan struct{}) error {
	return r.subscribe(ctx, c, uri, watcher)
}

// Unwatch ends what Watch began, also if ctx has ended.
func (r *Restorer) Unwatch(ctx context.Context, c Caller, uri string, watcher chan struct{}) {
	ctx, cancel := c.Leaving(ctx)
	defer cancel()
	_ = r.reports.unsubscribe(ctx, c, uri, func(sub *subscription) { delete(sub.watchers, watcher) }) // nobody can be told
}

func (r *Restorer) subscribe(ctx context.Context, c Caller, uri string, watcher chan struct{}) error {
	p, err := requireReports(ctx, c)
	if err != nil {
		return err
	}
	r.watch(c.Session(), p, false)
	return r.reports.subscribe(ctx, c, p, uri, watcher)
}

// Updated wakes the watchers of a resource and of those that contain it.
func (r *Restorer) Updated(uri string) { r.reports.updated(uri) }
