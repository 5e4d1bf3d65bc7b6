package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	drainDeadline = 30 * time.Second

	// inFlight is how long the calls are held after the drain has begun.
	inFlight = 200 * time.Millisecond
)

// drain ends every session in good order, the supervisor, and the server, all
// before the end of ctx.
func (f *fleet) drain(ctx context.Context) error {
	_, err := each(f.pairs, len(f.pairs), func(p *pair) error {
		if p.session == nil {
			return nil
		}
		return p.session.Close(ctx)
	})
	return errors.Join(err, f.supervisor.Stop(ctx), f.server.Close(ctx))
}

// drainAll drains with a call in flight in every session, all of which are to be
// answered.
func (f *fleet) drainAll(ctx context.Context) error {
	f.print("\n6. drain within %v, with a call in flight in every session", drainDeadline)
	held, failure := f.holdCalls(ctx, f.connected())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainDeadline)
	defer cancel()
	release := time.AfterFunc(inFlight, func() { close(f.tools.released) })
	defer release.Stop()
	began := time.Now()
	err := f.drain(ctx)
	took := time.Since(began)
	answered, calls := 0, held.outcomes()
	for _, how := range calls {
		if how == nil {
			answered++
		}
	}
	f.serving.Wait()
	f.print("   drained in %v, of which the calls were held for %v: %s of %s were answered",
		round(took), inFlight, count(answered), count(len(calls)))
	if answered != len(calls) {
		failure = errors.Join(failure, fmt.Errorf("drain: %d calls were in flight, and %d were answered", len(calls), answered))
	}
	if err != nil {
		failure = errors.Join(failure, fmt.Errorf("drain: %w", err))
	}
	return failure
}

// connected are the pairs that have a session: all of them, unless the start has
// failed.
func (f *fleet) connected() (connected []*pair) {
	for _, p := range f.pairs {
		if p.session != nil {
			connected = append(connected, p)
		}
	}
	return connected
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
