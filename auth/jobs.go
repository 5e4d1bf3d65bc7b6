package auth

import (
	"context"
	"errors"
	"sync"
	"time"
)

// jobs runs refreshes and logins, one at a time. The zero value is ready to use.
type jobs struct {
	mu         sync.Mutex
	running    *job // the running work; nil if there is none
	closed     bool
	goroutines sync.WaitGroup
}

// A job is one refresh or login that is running.
type job struct {
	done      chan struct{}
	err       error // the result; set when done is closed
	waiting   int
	abandoned bool // all callers that waited have given up
	detached  bool // the work waits for a person, and continues when no request waits for it
	cancel    context.CancelCauseFunc
}

var (
	errAbandoned = errors.New("auth: the login was cancelled, because no request waits for it")
	errClosed    = errors.New("auth: the Authorizer is closed")
)

// run runs work on a new goroutine, and waits for it until ctx ends. If another work is
// running, run waits for that, and started is false. A job is cancelled when no caller waits
// for it, unless it has called detach. If a caller arrives while a job is being
// cancelled, it tries again.
func (j *jobs) run(ctx context.Context, work func(context.Context) error) (started bool, err error) {
	for {
		started, err = j.runOrJoin(ctx, work)
		if started || !errors.Is(err, errAbandoned) || ctx.Err() != nil {
			return started, err
		}
	}
}

// runOrJoin is one attempt of run. Its error is errAbandoned if the other work was
// cancelled.
func (j *jobs) runOrJoin(ctx context.Context, work func(context.Context) error) (started bool, err error) {
	j.mu.Lock()
	f := j.running
	if started = f == nil; started {
		if f, err = j.start(ctx, work); err != nil {
			j.mu.Unlock()
			return true, err
		}
	}
	f.waiting++
	abandoned := f.abandoned
	j.mu.Unlock()
	select {
	case <-f.done:
		if err = f.err; err != nil && abandoned {
			err = errAbandoned
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if f.waiting--; f.waiting == 0 && !f.detached {
		f.abandoned = true
		f.cancel(errAbandoned)
	}
	return started, err
}

// runInBackground runs work unless another one is running, and does not wait for it.
func (j *jobs) runInBackground(ctx context.Context, work func(context.Context) error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.running == nil {
		_, _ = j.start(ctx, work) // start fails only after close
	}
}

// start starts work. The caller holds the lock, and nothing else is running.
func (j *jobs) start(ctx context.Context, work func(context.Context) error) (*job, error) {
	if j.closed {
		return nil, errClosed
	}
	workCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	f := &job{done: make(chan struct{}), cancel: cancel}
	j.running = f
	j.goroutines.Add(1)
	go func() {
		defer j.goroutines.Done()
		err := recoverPanic(func() error { return work(workCtx) })
		cancel(nil)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.running, f.err = nil, err
		close(f.done)
	}()
	return f, nil
}

// exchangeTime is the time for an exchange and its saving, even if no request waits.
const exchangeTime = 30 * time.Second

// exchangeContext returns a context for work that must finish after it has begun.
func exchangeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), exchangeTime)
}

// recoverPanic converts a panic in the program's code to an error.
func recoverPanic(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = errors.New("auth: panic in code of Options")
		}
	}()
	return f()
}

// detach lets the running job, which calls it, continue when no caller waits for it.
func (j *jobs) detach() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running.detached = true
}

// waitsForPerson reports whether the running job has called detach.
func (j *jobs) waitsForPerson() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.running != nil && j.running.detached
}

// cancelDetached cancels a job that has called detach and that no caller waits for.
func (j *jobs) cancelDetached() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if f := j.running; f != nil && f.detached && f.waiting == 0 {
		f.abandoned = true
		f.cancel(errAbandoned)
	}
}

// close cancels the running work and waits for it. Nothing can start afterwards.
func (j *jobs) close() {
	j.mu.Lock()
	j.closed = true
	if j.running != nil {
		j.running.cancel(errClosed)
	}
	j.mu.Unlock()
	j.goroutines.Wait()
}
