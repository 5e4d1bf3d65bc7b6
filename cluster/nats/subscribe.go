package nats

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
)

const (
	maxWaiting = 1024 + 1    // messages for a function that was given to Subscribe, with the one that it has
	stopWithin = time.Second // how long to wait until the server knows that somebody has stopped

	// flushWithin is how long to wait until the server knows a subscription. Then it is asked
	// again, if the caller wants that.
	flushWithin = 5 * time.Second
)

// Publish implements cluster.Engine.
func (e *engine) Publish(subject string, body []byte) error {
	if err := rules.Message(subject, body); err != nil {
		return err
	}
	e.mu.Lock()
	closed, connected := e.closed, e.connected
	e.mu.Unlock()
	var err error
	switch {
	case closed:
		err = errClosed
	case !connected:
		err = errLost
	default:
		e.sent.Add(1)
		err = explain(context.Background(), e.conn.Publish(e.messages+subject, body))
	}
	if err != nil {
		return fmt.Errorf("publish to %s: %w", subject, err)
	}
	return nil
}

// A stopper ends a subscription once.
type stopper struct {
	once sync.Once
	end  func()
}

func (s *stopper) stop() { s.once.Do(s.end) }

// subscribe adds a subscription of a subject of the server. It returns a function that ends it, as Close does,
// and then calls end. If miss is not nil, it is called when messages may be lost.
func (e *engine) subscribe(ctx context.Context, subject string, receive func(*natsgo.Msg), limit int, miss, end func()) (stop func(), err error) {
	op, err := e.begin(ctx, subjectOf(subject))
	if err != nil {
		return nil, err
	}
	defer op.end()
	e.sent.Add(1)
	sub, err := e.conn.Subscribe(subject, receive)
	if err != nil {
		return nil, op.explain(err)
	}
	if miss != nil {
		e.mu.Lock()
		e.misses[sub] = miss
		e.mu.Unlock()
	}
	s := &stopper{}
	s.end = func() {
		e.unsubscribe(s, sub)
		end()
	}
	if err = sub.SetPendingLimits(limit, -1); err == nil {
		err = e.confirm(op, subject)
	}
	if err == nil {
		err = e.keep(s)
	}
	if err != nil {
		s.stop()
		return nil, op.explain(err)
	}
	return s.stop, nil
}

// confirm waits until the server knows a subscription, and returns why it has refused that.
func (e *engine) confirm(op *operation, subject string) error {
	flush, cancel := context.WithTimeout(op, flushWithin) // nats.go refuses a context without a deadline
	defer cancel()
	if err := e.conn.FlushWithContext(flush); err != nil {
		return err
	}
	e.received.Add(1)
	return e.permitted(subject)
}

// keep lets Close end a subscription. It fails if Close has ended the others already.
func (e *engine) keep(s *stopper) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errClosed
	}
	e.stops[s] = true
	return nil
}

// unsubscribe ends a subscription at the server, and waits until the server knows that: the next request gets ErrNoResponder then.
func (e *engine) unsubscribe(s *stopper, sub *natsgo.Subscription) {
	sub.Unsubscribe() //nolint:errcheck // without a connection the server has forgotten it
	e.mu.Lock()
	delete(e.stops, s)
	delete(e.misses, sub)
	inform := e.connected && !e.closed
	e.mu.Unlock()
	if inform {
		e.conn.FlushTimeout(stopWithin) //nolint:errcheck // the server learns it later
	}
}

// permitted returns why the server has refused a subscription that was just flushed.
func (e *engine) permitted(subject string) error {
	if err := e.conn.LastError(); err != nil && strings.Contains(err.Error(), "Subscription to "+subjectOf(subject)) {
		return denied(err)
	}
	return nil
}

// A subscription calls its function, one call at a time.
type subscription struct {
	missed  chan struct{} // capacity one: a token when messages may be lost
	stopped chan struct{}
	ended   chan struct{} // closed when no more is reported as missed

	mu      sync.Mutex // held while deliver runs
	closed  bool
	deliver func(cluster.Message)
}

// Subscribe implements cluster.Engine.
func (e *engine) Subscribe(ctx context.Context, subject string, f func(cluster.Message)) (func(), error) {
	if err := rules.Subject(subject); err != nil {
		return nil, err
	}
	s := &subscription{missed: make(chan struct{}, 1), stopped: make(chan struct{}), ended: make(chan struct{}), deliver: f}
	receive := func(m *natsgo.Msg) {
		e.received.Add(1)
		s.call(cluster.Message{Body: m.Data})
	}
	go s.reportMissed()
	stop, err := e.subscribe(ctx, e.messages+subject, receive, maxWaiting, s.miss, s.end)
	if err != nil {
		s.end()
		return nil, fmt.Errorf("subscribe %s: %w", subject, err)
	}
	return stop, nil
}

func (s *subscription) call(m cluster.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.deliver(m)
	}
}

// miss says that messages may be lost.
func (s *subscription) miss() {
	select {
	case s.missed <- struct{}{}:
	default: // it will be said
	}
}

func (s *subscription) reportMissed() {
	defer close(s.ended)
	for {
		select {
		case <-s.missed:
			s.call(cluster.Message{Missed: true})
		case <-s.stopped:
			return
		}
	}
}

// end waits for the function, which is then not called any more.
func (s *subscription) end() {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		close(s.stopped)
	}
	<-s.ended
}
