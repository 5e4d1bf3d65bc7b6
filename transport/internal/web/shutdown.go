package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

// A Shutdown says what a handler shuts down.
type Shutdown struct {
	Name      string                          // the name of the handler's package, for errors
	Acceptors []transport.Acceptor            // the acceptors to close; nil elements are skipped
	Close     func(grace time.Duration) error // closes the handler
	Server    *http.Server                    // the server to shut down; nil if the program does that itself
	Grace     time.Duration                   // the time for everything together
}

// CloseAll closes links at the same time, each within the grace. Its error names what was left behind.
func CloseAll[L transport.Link](links []L, grace time.Duration) error {
	left := make([]error, len(links))
	var closing sync.WaitGroup
	for i, l := range links {
		closing.Go(func() { left[i] = l.Close(grace) })
	}
	closing.Wait()
	return errors.Join(left...)
}

// GraceOf returns how long a Shutdown may take: until the deadline of ctx, or 10 s if it has none.
func GraceOf(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return max(time.Until(deadline), 0)
	}
	return 10 * time.Second
}

// Run closes the acceptors, the handler and the server within the grace, in this order.
// It cuts off what has not ended in time, or when ctx ends, and its error says what.
func (s Shutdown) Run(ctx context.Context) error {
	begun := time.Now()
	after := func(percent time.Duration) time.Time { return begun.Add(s.Grace * percent / 100) }
	var left []error
	if err := closeAll(ctx, s.Acceptors, after(80), after(90)); err != nil {
		left = append(left, fmt.Errorf("%s: shut down: %w", s.Name, err))
	}
	closed := inBackground(func() error { return s.Close(s.Grace / 20) })
	if err := closed.await("an HTTP request", after(95)); err != nil {
		left = append(left, fmt.Errorf("%s: shut down: %w", s.Name, err))
	}
	if s.Server == nil {
		return errors.Join(left...)
	}
	ctx, cancel := context.WithDeadline(ctx, begun.Add(s.Grace))
	defer cancel()
	if err := s.Server.Shutdown(ctx); err != nil {
		left = append(left, fmt.Errorf("%s: shut down: HTTP connections are cut off: %w", s.Name, err), s.Server.Close())
	}
	return errors.Join(left...)
}

// closeAll closes acceptors. Their work must finish by the first time, and they must
// return by the second.
func closeAll(ctx context.Context, acceptors []transport.Acceptor, finish, giveUp time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, finish)
	defer cancel()
	failed := make([]error, len(acceptors))
	var closing sync.WaitGroup
	for n, a := range acceptors {
		if IsNil(a) {
			continue
		}
		closed := inBackground(func() error { return a.Close(ctx) })
		closing.Go(func() {
			if err := closed.await("it", giveUp); err != nil {
				failed[n] = fmt.Errorf("close an Acceptor of type %T: %w", a, err)
			}
		})
	}
	closing.Wait()
	return errors.Join(failed...)
}

// A background is a function that runs on another goroutine, and for which the program
// waits for a limited time.
type background struct {
	done chan struct{} // closed when the result is set
	err  error
}

func inBackground(f func() error) *background {
	b := &background{done: make(chan struct{})}
	go func() {
		defer close(b.done)
		b.err = f()
	}()
	return b
}

// await waits until a time and returns the function's error. If the function is still
// running then, the error names it.
func (b *background) await(what string, until time.Time) error {
	if !wait.Within(b.done, time.Until(until)) {
		return fmt.Errorf("%s has not ended: %w", what, context.DeadlineExceeded)
	}
	return b.err
}
