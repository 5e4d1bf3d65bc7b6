package clustertest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
)

// An Engine is the connection of one node to a Service. It implements cluster.Engine.
type Engine struct {
	service        *Service
	sent, received atomic.Uint64

	// The mutex of the Service guards the rest.
	up, down      lane
	cut           bool // nothing passes
	connected     bool // false some time after cut, see Options.Silence
	closed        bool
	denied        bool
	frozen        map[string]*store // what reads show; nil: the present state
	faults        func(Operation) Fault
	silence       *time.Timer
	changes       chan struct{} // closed when connected changes
	lost          chan struct{} // closed when the Engine notices that it is cut off, and when it is closed
	subscriptions []*subscription
	answers       []*answer
	watches       []*watch
}

func newEngine(s *Service) *Engine {
	return &Engine{
		service: s, connected: true, up: lane{mu: &s.mu}, down: lane{mu: &s.mu},
		changes: make(chan struct{}), lost: make(chan struct{}),
	}
}

// Connected implements cluster.Engine.
func (e *Engine) Connected() (bool, <-chan struct{}) {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	return e.connected, e.changes
}

// Messages implements cluster.Engine.
func (e *Engine) Messages() (sent, received uint64) { return e.sent.Load(), e.received.Load() }

// LocalAddress implements cluster.Engine.
func (e *Engine) LocalAddress() string { return "127.0.0.1" }

// Close implements cluster.Engine.
func (e *Engine) Close() error {
	s := e.service
	s.mu.Lock()
	if !e.closed {
		e.interrupt()
		e.notice()
		e.closed = true
		close(e.changes)
		s.remove(e)
		for _, w := range e.watches {
			w.wake()
		}
	}
	subscriptions, answers := slices.Clone(e.subscriptions), slices.Clone(e.answers)
	s.mu.Unlock()
	for _, sub := range subscriptions {
		sub.stop()
	}
	for _, a := range answers {
		a.stop()
	}
	return nil
}

// interrupt breaks the connection: what is on its way is lost.
func (e *Engine) interrupt() {
	e.cut = true
	e.up.clear()
	e.down.clear()
}

// notice makes the Engine aware of an interruption.
func (e *Engine) notice() {
	if e.silence != nil {
		e.silence.Stop()
		e.silence = nil
	}
	if !e.cut || !e.connected {
		return
	}
	e.connected = false
	close(e.changes)
	e.changes = make(chan struct{})
	close(e.lost)
}

// resume restores the connection. Everything that was subscribed or watched may have missed
// something.
func (e *Engine) resume() {
	e.cut = false
	e.connected = true
	close(e.changes)
	e.changes = make(chan struct{})
	e.lost = make(chan struct{})
	for _, sub := range e.subscriptions {
		sub.miss()
	}
	for _, w := range e.watches {
		e.refresh(w)
	}
}

// usable returns why the Engine sends nothing, or nil.
func (e *Engine) usable(ctx context.Context) error {
	switch {
	case e.closed:
		return fmt.Errorf("%w: it is closed", cluster.ErrUnavailable)
	case ctx.Err() != nil:
		return outOfTime(ctx)
	case !e.connected:
		return fmt.Errorf("%w: the connection is cut", cluster.ErrUnavailable)
	case e.denied:
		return fmt.Errorf("%w: %w", cluster.ErrUnavailable, cluster.ErrDenied)
	}
	return nil
}

func outOfTime(ctx context.Context) error {
	return fmt.Errorf("%w: %w", cluster.ErrUnavailable, context.Cause(ctx))
}

// A result is what the service returns to an operation.
type result[T any] struct {
	value T
	err   error
}

// call sends an operation to the service, which applies it, and waits for the result.
func call[T any](ctx context.Context, e *Engine, op Operation, apply func() (T, error)) (T, error) {
	answer := make(chan result[T], 1)
	lost, err := e.start(ctx, op, func(f Fault) {
		value, err := apply()
		if f.Double {
			apply() //nolint:errcheck // its answer comes second, and nobody waits for it
		}
		e.respond(f, func() {
			select {
			case answer <- result[T]{value, err}:
			default: // there was one already
			}
		})
	})
	if err != nil {
		var none T
		return none, err
	}
	return await(ctx, answer, lost)
}

func await[T any](ctx context.Context, answer <-chan result[T], lost <-chan struct{}) (T, error) {
	var none T
	err := fmt.Errorf("%w: the connection was lost", cluster.ErrUnavailable)
	select {
	case r := <-answer:
		return r.value, r.err
	case <-ctx.Done():
		err = outOfTime(ctx)
	case <-lost:
	}
	select {
	case r := <-answer: // it came at the same time
		return r.value, r.err
	default:
		return none, err
	}
}

// start sends an operation to the service, which then calls apply unless a fault decides
// otherwise. It returns a channel that is closed when the connection is lost.
func (e *Engine) start(ctx context.Context, op Operation, apply func(Fault)) (lost <-chan struct{}, err error) {
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	if err := e.usable(ctx); err != nil {
		return nil, err
	}
	e.sent.Add(1)
	lost = e.lost
	f := e.fault(op)
	if !e.cut && !f.Lose {
		e.up.send(f.Delay, func() {
			e.service.expire()
			apply(f)
		})
	}
	if f.Cut && f.Lose {
		e.cutOff()
	}
	return lost, nil
}

// respond lets the result of an operation arrive at the Engine that asked for it.
func (e *Engine) respond(f Fault, arrive func()) {
	if !e.cut && !f.LoseResult {
		e.down.send(f.DelayResult, func() {
			e.received.Add(1)
			arrive()
		})
	}
	if f.Cut {
		e.cutOff()
	}
}
