package client

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
)

// restoreSteps repeat on a new server what the session had asked the previous one for
// (ADR-0030). They run in this order, once per server. Each returns the errors of
// requests that failed. A feature that asks a server for something lasting adds a step.
var restoreSteps = []func(context.Context, *Session, *peer) []error{
	restoreLogLevel,
	restoreSubscriptions,
	restoreListening,
}

// A restorer knows what a session has asked for that must outlive the server.
type restorer struct {
	mu        sync.Mutex
	level     levelChange              // the newest level that a server has accepted
	asked     []levelChange            // newer levels that the server has not answered yet, oldest first
	levels    int                      // the number of the newest level
	resources map[string]*subscription // subscriptions by URI
	watching  bool                     // the goroutine of the restorer is running
	known     *peer                    // the newest server that the program knows, from Connect or a Restored
	first     bool                     // nothing was restored on that server yet

	version   int        // the version of the wanted subscriptions; grows with each change
	listening *listening // the newest subscriptions/listen; nil before the first
	replaced  *listening // the previous one, until the newest is acknowledged
	changed   chan struct{}
}

// A levelChange is what one SetLogLevel asks for, or the level of Options for number 0.
type levelChange struct {
	number int
	level  protocol.LogLevel
}

// begin starts to restore, if the client wants something from every server. First is the
// server that the program already knows, or nil.
func (r *restorer) begin(s *session, first *peer) {
	if s.events.wanted() || r.logLevel() != "" {
		r.watch(s, first, true)
	}
}

// watch starts the goroutine that restores. If fresh is not set, the present server
// needs nothing.
func (r *restorer) watch(s *session, first *peer, fresh bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watching {
		return
	}
	r.watching, r.known, r.first = true, first, fresh
	if first == nil {
		s.events.begin()
	}
	s.conn.Go("restore", func(ctx context.Context) { r.run(ctx, s) })
}

// run restores the session on each new server, until the session ends.
func (r *restorer) run(ctx context.Context, s *session) {
	view := s.view()
	if first := r.known; first != nil && r.first {
		if failures := r.ask(ctx, view, first); len(failures) > 0 && first.isCurrent(s.conn.Status()) {
			s.events.pushRestored(failures)
		}
	}
	for ctx.Err() == nil {
		status, p := s.conn.Status(), s.peer.Load()
		switch {
		case p != nil && p != r.known && p.isCurrent(status):
			if r.known != nil { // the loss of the known server may have been too short for this goroutine to notice
				s.events.pushLost(r.known.incarnation.Epoch(), status.LastFailure, time.Time{})
			}
			failures := r.ask(ctx, view, p)
			if p.isCurrent(s.conn.Status()) {
				s.events.pushRestored(failures)
				r.updatedAll()
			}
			continue
		case r.known != nil && !r.known.isCurrent(status) && status.State != conn.Closing:
			s.events.pushLost(r.known.incarnation.Epoch(), status.Reason, status.NextAttempt)
		}
		select {
		case <-status.Changed():
		case <-ctx.Done():
		}
	}
}

// isBehind reports whether a server is ready that the program does not know of yet, and
// returns the epoch of the server that the program knows if that one is gone, and else 0.
func (r *restorer) isBehind(status conn.Status, now *peer) (behind bool, gone uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known != nil && !r.known.isCurrent(status) {
		gone = r.known.incarnation.Epoch()
	}
	return r.watching && now != nil && now.isCurrent(status) && now != r.known, gone
}

// isCurrent reports whether the server is still the present one.
func (p *peer) isCurrent(status conn.Status) bool {
	return status.State == conn.Ready && status.Epoch == p.incarnation.Epoch()
}

// ask runs the steps for one server.
func (r *restorer) ask(ctx context.Context, s *Session, p *peer) (failures []error) {
	bound := s.With(CallOptions{Epoch: p.incarnation.Epoch()})
	for _, step := range restoreSteps {
		failures = append(failures, step(ctx, bound, p)...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.first = p, false
	return failures
}

// sawEpoch reports the loss of the known server, before anything from a newer server.
func (r *restorer) sawEpoch(s *session, epoch uint64) {
	r.mu.Lock()
	known := r.known
	r.mu.Unlock()
	if known != nil && known.incarnation.Epoch() < epoch {
		s.events.pushLost(known.incarnation.Epoch(), s.conn.Status().LastFailure, time.Time{})
	}
}

// logLevel returns the level that the program has asked for last, unless a server has
// refused it.
func (r *restorer) logLevel() protocol.LogLevel {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.asked); n > 0 {
		return r.asked[n-1].level
	}
	return r.level.level
}

func restoreLogLevel(ctx context.Context, s *Session, p *peer) []error {
	level := s.restore.logLevel()
	if level == "" || p.offers(&setLogLevel.Method) != nil { // a modern request carries the level itself
		return nil
	}
	if _, _, err := setLogLevel.call(ctx, s, &protocol.SetLogLevelParams{Level: level}); err != nil {
		return []error{fmt.Errorf("log level %s: %w", level, err)}
	}
	return nil
}

// SetLogLevel asks this server, and every later server of the session, for log
// messages of a level and above. They arrive as *LogMessage events. In the modern
// revisions every request carries the level, and a server sends log messages only
// while it serves a request.
func (s *Session) SetLogLevel(ctx context.Context, level protocol.LogLevel) error {
	if level.Severity() < 0 {
		return refusedUnsent(protocol.MethodSetLogLevel, fmt.Errorf("client: unknown log level %.100q", string(level)))
	}
	if err := s.await(ctx, protocol.MethodSetLogLevel); err != nil {
		return err
	}
	r, p := &s.restore, s.peer.Load()
	if now := s.conn.Status(); p == nil || now.State != conn.Ready || s.isGone(now) {
		return s.unavailable(protocol.MethodSetLogLevel)
	}
	if !p.server.Capabilities.Has("logging") {
		return refusedUnsent(protocol.MethodSetLogLevel, &CapabilityError{Capability: "logging"})
	}
	r.mu.Lock()
	r.levels++
	change := levelChange{r.levels, level}
	r.asked = append(r.asked, change)
	r.mu.Unlock()
	accepted := false
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked = slices.DeleteFunc(r.asked, func(c levelChange) bool {
			return c == change || accepted && c.number < change.number
		})
		if accepted && change.number > r.level.number {
			r.level = change
		}
	}()
	r.watch(s.session, p, false)
	var err error
	if !p.modern() {
		_, _, err = setLogLevel.call(ctx, s.boundTo(p), &protocol.SetLogLevelParams{Level: level})
	}
	accepted = err == nil
	return err
}
