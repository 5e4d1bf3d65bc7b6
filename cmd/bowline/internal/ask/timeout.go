package ask

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
)

// A Timeout ends a run after --timeout. The time while the user is asked does not
// count. The default of --timeout is for an answer, and not for a task, which may take hours.
type Timeout struct {
	Given bool // the user has set --timeout, or the file has set it

	mu        sync.Mutex
	remaining time.Duration
	started   time.Time   // when the timer was started last
	Timer     *time.Timer // nil: there is no limit
	forTask   bool        // the run waits for a task if there is one
}

// AwaitTask says that the run waits for a task, if the call becomes one.
func (p *Timeout) AwaitTask() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forTask = true
}

// NoteTask is a telemetry hook. It lifts the default timeout when the run begins to wait for a
// task.
func (p *Timeout) NoteTask(_ context.Context, request telemetry.RequestStarted) context.Context {
	if !WaitsForTask(request.Method) {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forTask && !p.Given && p.Timer != nil {
		p.Timer.Stop()
		p.Timer = nil
	}
	return nil
}

// WaitsForTask reports whether a client sends a request of this method while it waits for a task.
func WaitsForTask(method string) bool {
	return method == protocol.MethodGetTask || method == protocol.MethodGetTaskResult
}

// Bound returns a context that ends at the timeout, unless the timeout is zero.
func (p *Timeout) Bound(parent context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	p.mu.Lock()
	defer p.mu.Unlock()
	if timeout > 0 {
		p.remaining, p.started = timeout, time.Now()
		p.Timer = time.AfterFunc(timeout, func() { cancel(TimedOut(timeout)) })
	}
	return ctx, func() {
		p.pause()
		cancel(nil)
	}
}

func (p *Timeout) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Timer != nil && p.Timer.Stop() {
		p.remaining -= time.Since(p.started)
	}
}

// Resume lets the time run again, after a question.
func (p *Timeout) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Timer != nil {
		p.started = time.Now()
		p.Timer.Reset(p.remaining)
	}
}

// TimedOut is the error of a run that took longer than --timeout.
type TimedOut time.Duration

func (p TimedOut) Error() string {
	return fmt.Sprintf("no answer within --timeout %v", time.Duration(p))
}
