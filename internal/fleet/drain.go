package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/supervisor"
)

const (
	drainDeadline = 30 * time.Second

	// inFlight is how long the calls are held after the drain has begun.
	inFlight = 200 * time.Millisecond
)

// drain ends everything under a supervisor in good order, before the end of ctx.
func drain(ctx context.Context, from *supervisor.Supervisor, sessions []*client.Session) error {
	err := from.Close(ctx)
	failed, example := each(sessions, 1, inGoodOrder)
	if failed > 0 {
		example = fmt.Errorf("drain: %d of %d sessions did not end in good order, for instance: %w", failed, len(sessions), example)
	}
	return errors.Join(example, err)
}

// inGoodOrder is why a session has ended, if it was not that it was drained.
func inGoodOrder(s *client.Session) error {
	if status := s.Conn().Status(); status.State != conn.Closing || status.Reason.Kind != conn.Drained {
		return fmt.Errorf("%s, %w", status.State, status.Reason)
	}
	return nil
}

// drainAll drains with a call in flight in every session, all of which are to be
// answered.
func (f *fleet) drainAll(ctx context.Context) error {
	f.print("\n6. drain within %v, with a call in flight in every session", drainDeadline)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainDeadline)
	defer cancel()
	held, failure := f.holdCalls(ctx, f.ready())
	release := time.AfterFunc(inFlight, func() { close(f.tools.released) })
	defer release.Stop()
	began := time.Now()
	err := errors.Join(drain(ctx, f.supervisor, f.sessions()), f.server.Close(ctx))
	took := time.Since(began)
	answered, calls := 0, held.outcomes()
	for _, how := range calls {
		if how == nil {
			answered++
		}
	}
	f.print("   drained in %v, of which the calls were held for %v: %s of %s were answered",
		round(took), inFlight, count(answered), count(len(calls)))
	if answered != len(calls) {
		err = errors.Join(err, fmt.Errorf("drain: %d calls were in flight, and %d were answered", len(calls), answered))
	}
	return errors.Join(failure, err)
}

// ready are the pairs that can be called: all of them, unless a phase has failed.
func (f *fleet) ready() []*pair {
	return slices.DeleteFunc(slices.Clone(f.pairs), func(p *pair) bool {
		return p.session == nil || p.session.Conn().State() != conn.Ready
	})
}

// sessions are those of all pairs, unless the start has failed.
func (f *fleet) sessions() (sessions []*client.Session) {
	for _, p := range f.pairs {
		if p.session != nil {
			sessions = append(sessions, p.session)
		}
	}
	return sessions
}

// held are calls in flight.
type held struct {
	callers sync.WaitGroup
	ended   []error // by caller; written by each before it is over
}

// holdCalls makes a call in each of the pairs, and returns once the server holds
// all of them.
func (f *fleet) holdCalls(ctx context.Context, pairs []*pair) (*held, error) {
	h := &held{ended: make([]error, len(pairs))}
	for i, p := range pairs {
		h.callers.Go(func() { h.ended[i] = p.call(context.WithoutCancel(ctx), holdOn) })
	}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for f.tools.holding.Load() < int64(len(pairs)) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return h, fmt.Errorf("%d of %d calls are in flight: %w", f.tools.holding.Load(), len(pairs), context.Cause(ctx))
		}
	}
	return h, nil
}

// outcomes waits until all are over, and returns how each was.
func (h *held) outcomes() []error {
	h.callers.Wait()
	return h.ended
}
