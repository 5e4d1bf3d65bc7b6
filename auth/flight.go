package auth

import (
	"context"
	"errors"
	"sync"
)

// A flights runs refreshes and logins, one at a time. The zero value is ready to use.
type flights struct {
	mu      sync.Mutex
	running *flight // the running work; nil if there is none
	closed  bool
	ended   sync.WaitGroup
}

// A flight is one refresh or login that is running.
type flight struct {
	done    chan struct{}
	err     error // the result; set when done is closed
	waiting int
	left    bool // all callers that waited have left
	asks    bool // the work asks a person, who has time to answer even if the requests end
	cancel  context.CancelCauseFunc
}

var (
	errAbandoned = errors.New("auth: nobody waits for the login any more")
	errClosed    = errors.New("auth: the Authorizer is closed")
)

// run runs work on a new goroutine, and waits for it until ctx ends. If another work is
// running, run waits for that, and mine is false. A work is cancelled when nobody waits
// for it any more, unless it has called outlive. If a caller arrives while a work is
// being cancelled, it tries again.
func (s *flights) run(ctx context.Context, work func(context.Context) error) (mine bool, err error) {
	for {
		mine, err = s.runOrJoin(ctx, work)
		if mine || !errors.Is(err, errAbandoned) || ctx.Err() != nil {
			return mine, err
		}
	}
}

// runOrJoin is one attempt of run. Its error is errAbandoned if the other work was
// cancelled.
func (s *flights) runOrJoin(ctx context.Context, work func(context.Context) error) (mine bool, err error) {
	s.mu.Lock()
	f := s.running
	if mine = f == nil; mine {
		if f, err = s.start(ctx, work); err != nil {
			s.mu.Unlock()
			return true, err
		}
	}
	f.waiting++
	left := f.left
	s.mu.Unlock()
	select {
	case <-f.done:
		if err = f.err; err != nil && left {
			err = errAbandoned
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.waiting--; f.waiting == 0 && !f.asks {
		f.left = true
		f.cancel(errAbandoned)
	}
	return mine, err
}

// runBehind runs work unless another one is running, and does not wait for it.
func (s *flights) runBehind(ctx context.Context, work func(context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running == nil {
		_, _ = s.start(ctx, work) // start fails only if flights is closed
	}
}

// start starts work. The caller holds the lock, and nothing else is running.
func (s *flights) start(ctx context.Context, work func(context.Context) error) (*flight, error) {
	if s.closed {
		return nil, errClosed
	}
	detached, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	f := &flight{done: make(chan struct{}), cancel: cancel}
	s.running = f
	s.ended.Add(1)
	go func() {
		defer s.ended.Done()
		err := guarded(func() error { return work(detached) })
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running, f.err = nil, err
		close(f.done)
	}()
	return f, nil
}

// guarded converts a panic in the program's code to an error.
func guarded(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = errors.New("auth: panic in code of Options")
		}
	}()
	return f()
}

// outlive lets the running work, which calls it, continue when nobody waits for it any
// more.
func (s *flights) outlive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running.asks = true
}

// abandon cancels a work that has called outlive and that nobody waits for.
func (s *flights) abandon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.running; f != nil && f.asks && f.waiting == 0 {
		f.left = true
		f.cancel(errAbandoned)
	}
}

// close cancels the running work and waits for it. Nothing can start afterwards.
func (s *flights) close() {
	s.mu.Lock()
	s.closed = true
	if s.running != nil {
		s.running.cancel(errClosed)
	}
	s.mu.Unlock()
	s.ended.Wait()
}
