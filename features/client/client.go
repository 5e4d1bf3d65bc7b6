package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client/internal/restore"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/telemetry"
)

// A Client opens sessions. It is safe for concurrent use. Close ends all of them.
type Client struct {
	info    protocol.Implementation
	context protocol.RequestContext     // the part of _meta that every modern request contains
	meta    func() (requestMeta, error) // the same in encoded form
	options Options
	chain   Handler // the middleware around the innermost handler; nil without middleware
	traces  bool    // the context of a call may contain a trace context
	table   table
	outages restore.Outages

	outgoing   sync.Map                           // a *sync.Pool of *outgoing for each *method, to reuse the memory of ended calls
	shared     atomic.Pointer[sharedCapabilities] // with the client that Relay was last used for
	rawMethods sync.Map                           // a *method for each method with undecoded params, by name

	discover, initialize func() (json.RawMessage, error) // the params of these requests, encoded once
	silent               func() (json.RawMessage, error) // the capabilities for a client that has said nothing of itself, encoded once

	mu       sync.Mutex
	suffixes map[string]int64      // the last suffix for each name
	sessions map[*session]struct{} // the sessions that have not ended, and some that have
	names    map[string]*session   // the same sessions by name
	sweepAt  int                   // at how many entries add removes the ended ones
	closed   bool
	since    time.Time // when the Client was created, or closed
}

// A sharedCapabilities is what another client has said of itself, and what of that the sessions of this one have as well.
type sharedCapabilities struct{ said, both json.RawMessage }

// A table has all that client and server say to each other, by the names of the methods. New
// fills it in (see methods.go), so nothing that a method uses depends on the method.
type table struct {
	requests      map[string]anyMethod
	questions     map[string]question
	notifications map[string]notification
}

// add lists a session, unless another one has its name. It removes sessions that have
// ended.
func (c *Client) add(s *session) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if c.sessions == nil {
		c.sessions, c.names = make(map[*session]struct{}), make(map[string]*session)
	}
	if len(c.sessions) >= c.sweepAt {
		for s := range c.sessions {
			if s.isOver() {
				c.forget(s)
			}
		}
		c.sweepAt = max(16, 2*len(c.sessions))
	}
	name := s.conn.Name()
	if holder := c.names[name]; name != "" && holder != nil && !holder.isOver() {
		return &supervisor.DuplicateError{ID: name}
	}
	c.sessions[s], c.names[name] = struct{}{}, s
	return nil
}

// forget removes a session from the lists. The caller holds the lock.
func (c *Client) forget(s *session) {
	c.outages.Forget(s.endpoint, &s.outage)
	delete(c.sessions, s)
	if name := s.conn.Name(); c.names[name] == s {
		delete(c.names, name)
	}
}

func (c *Client) remove(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(s)
}

// named returns the session with that name, unless it has ended.
func (c *Client) named(name string) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.names[name]; s != nil && !s.isOver() {
		return s
	}
	return nil
}

func (c *Client) isTaken(name string) bool { return name != "" && c.named(name) != nil }

// all returns the sessions that have not ended, in the order of their names. They are
// those that the program has and, if starting is set, also those that Connect still
// waits for.
func (c *Client) all(starting bool) []*session {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.sessions))
	c.mu.Unlock()
	all = slices.DeleteFunc(all, func(s *session) bool { return s.isOver() || !s.given.Load() && !starting })
	slices.SortFunc(all, func(a, b *session) int { return strings.Compare(a.conn.Name(), b.conn.Name()) })
	return all
}

// Session returns the session with that name, if it exists and has not ended. Its
// calls have Options.Calls.
func (c *Client) Session(name string) (*Session, bool) {
	s := c.named(name)
	if s == nil || !s.given.Load() {
		return nil, false
	}
	return &Session{session: s, options: c.options.Calls}, true
}

// Sessions ranges over all sessions that have not ended, in the order of their names.
func (c *Client) Sessions() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		for _, s := range c.all(false) {
			if !yield(&Session{session: s, options: c.options.Calls}) {
				return
			}
		}
	}
}

// AwaitReady waits until every session that has not ended is ready, for all at the same
// time: it takes no longer than ctx. Its error joins one for each session that is not ready
// then, with its name; the others can be used.
func (c *Client) AwaitReady(ctx context.Context) error {
	var problems []error
	for session := range c.Sessions() { // one after the other: they all become ready meanwhile
		if err := session.AwaitReady(ctx); err != nil {
			problems = append(problems, fmt.Errorf("server %q: %w", session.Name(), err))
		}
	}
	return errors.Join(problems...)
}

// Samples ranges over the measurements of all sessions that have not ended, in the
// order of their names, for telemetry sinks.
func (c *Client) Samples() iter.Seq[telemetry.Sample] {
	return func(yield func(telemetry.Sample) bool) {
		for _, s := range c.all(false) {
			if !yield(s.conn.Control().Sample()) {
				return
			}
		}
	}
}

// Close refuses new sessions and closes all present ones at the same time, as
// Session.Close does. A Connect or Start that is under way fails. If it was registering
// its name, the Claim of the Registry's Store may still run when Close returns, with its
// context ended; Stop of Options.Supervisor waits for it.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if !c.closed {
		c.closed, c.since = true, time.Now()
	}
	c.mu.Unlock()
	var closing sync.WaitGroup
	all := c.all(true)
	failed := make([]error, len(all))
	for i, s := range all {
		closing.Go(func() { failed[i] = (&Session{session: s}).Close(ctx) })
	}
	closing.Wait()
	return errors.Join(failed...)
}

// Report describes the sessions of this Client: what runs at this moment, since when,
// and what went wrong before. Its String method prints a tree for people.
func (c *Client) Report() supervisor.Report {
	c.mu.Lock()
	report := supervisor.Report{At: time.Now(), Name: c.info.Name, State: supervisor.Running, Since: c.since}
	if c.closed {
		report.State = supervisor.Stopping
	}
	c.mu.Unlock()
	for _, s := range c.all(false) {
		for _, child := range s.supervisor.Report().Children {
			if s.own || child.ID == s.conn.Name() { // a session without a name has a child of its own supervisor
				report.Children = append(report.Children, child)
			}
		}
	}
	if report.State == supervisor.Stopping && len(report.Children) == 0 {
		report.State = supervisor.Stopped
	}
	return report
}

// RootsChanged tells every legacy server that Options.Roots now returns other roots.
// Modern servers ask again by themselves. RootsChanged waits until the transports
// have accepted the notifications, or ctx ends.
func (c *Client) RootsChanged(ctx context.Context) error {
	var failed []error
	for s := range c.Sessions() {
		if p := s.peer.Load(); p == nil || p.Modern() || s.conn.State() != conn.Ready {
			continue
		}
		r := &Request{Method: protocol.NotificationRootsListChanged, Params: new(protocol.NotificationParams), Session: s, Notification: true}
		if err := s.notifyThrough(ctx, r); err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrUnavailable) {
			failed = append(failed, fmt.Errorf("client: %s: %w", s.Name(), err))
		}
	}
	return errors.Join(failed...)
}
