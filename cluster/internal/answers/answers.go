// Package answers runs the function that an Engine's Answer was given.
package answers

import (
	"context"
	"sync"
)

// How many functions run at once, and how many requests wait.
const (
	maxRunning = 64
	maxWaiting = 1024
)

// A Pool calls a function with each request, on a goroutine of its own.
type Pool struct {
	serve   func(ctx context.Context, body []byte) []byte
	ctx     context.Context // of each call; ended by Stop
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	busy    int
	waiting []request
}

// A request has its way back with it.
type request struct {
	body    []byte
	respond func(response []byte)
}

// New returns a Pool. The caller stops it.
func New(serve func(ctx context.Context, body []byte) []byte) *Pool {
	p := &Pool{serve: serve}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Push calls the function with body and then respond with what it has returned. It does not block:
// up to 64 functions run at once, and up to 1,024 requests wait; the next ones are lost, and so is
// everything after Stop.
func (p *Pool) Push(body []byte, respond func(response []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
	case p.busy < maxRunning:
		p.busy++
		p.running.Go(func() { p.run(request{body, respond}) })
	case len(p.waiting) < maxWaiting:
		p.waiting = append(p.waiting, request{body, respond})
	}
}

// run serves a request, and then what waits.
func (p *Pool) run(r request) {
	for more := true; more; r, more = p.next() {
		r.respond(p.serve(p.ctx, r.body))
	}
}

func (p *Pool) next() (r request, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiting) == 0 {
		p.busy--
		return r, false
	}
	r, p.waiting = p.waiting[0], p.waiting[1:]
	return r, true
}

// Stop ends the context of each function and waits for them. It may be called again.
func (p *Pool) Stop() {
	p.mu.Lock()
	p.stopped = true
	p.waiting = nil
	p.mu.Unlock()
	p.cancel()
	p.running.Wait()
}
