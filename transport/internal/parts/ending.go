package parts

import (
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

// cancelPatience is how long a cancelled HTTP request may take to return before Close
// reports it as left behind.
const cancelPatience = 5 * time.Second

// An Ending is the end of a link of a client over HTTP. It has four steps: the link sends what is queued, stops
// its requests, waits for its goroutines, and reports the loss. One goroutine takes them
// in this order, with AwaitSent, Stop, AwaitIdle and Finish.
//
// The caller holds the link's mutex where a method says so. The zero Ending has not begun.
type Ending struct {
	begun   bool // the end has begun: nothing more is accepted
	stopped bool // no more goroutines are started
	running int  // how many goroutines run

	forced   wait.Signal // fires when the end no longer waits for queued messages
	sent     wait.Signal // fires when the end has begun and nothing is queued
	idle     wait.Signal // fires when the link has stopped and no goroutine runs
	finished wait.Signal // fires when the loss was reported
}

// Begin begins the end. It reports whether this is the first call: its reason counts. Any
// reason other than ErrClosed stops the link from sending what is queued. The caller holds
// the mutex, and calls Check.
func (e *Ending) Begin(reason error) (first bool) {
	if reason != transport.ErrClosed {
		e.stopped = true
		e.forced.Fire()
	}
	first = !e.begun
	e.begun = true
	return first
}

// HasBegun reports whether the link accepts nothing more. The caller holds the mutex.
func (e *Ending) HasBegun() bool { return e.begun }

// Stop lets nothing more start. The caller holds the mutex, and calls Check.
func (e *Ending) Stop() { e.stopped = true }

// IsStopped reports whether nothing more may start. The caller holds the mutex.
func (e *Ending) IsStopped() bool { return e.stopped }

// Start counts a goroutine that the end waits for. It returns false if nothing more may
// start. The caller holds the mutex.
func (e *Ending) Start() bool {
	if e.stopped {
		return false
	}
	e.running++
	return true
}

// Return counts a goroutine of Start as ended. The caller holds the mutex, and calls
// Check.
func (e *Ending) Return() { e.running-- }

// Running returns how many goroutines run. The caller holds the mutex.
func (e *Ending) Running() int { return e.running }

// Check notices that a step is complete. Empty says that nothing is queued or being sent.
// The caller holds the mutex.
func (e *Ending) Check(empty bool) {
	if e.begun && empty {
		e.sent.Fire()
	}
	if e.stopped && e.running == 0 {
		e.idle.Fire()
	}
}

// AwaitSent waits until everything queued was sent, or Close has no more time for it.
func (e *Ending) AwaitSent() {
	select {
	case <-e.sent.Wait():
	case <-e.forced.Wait():
	}
}

// AwaitReturn waits for that long until no goroutine runs, before the requests are cancelled.
func (e *Ending) AwaitReturn(patience time.Duration) { wait.Within(e.idle.Wait(), patience) }

// AwaitIdle waits until no goroutine runs, for a limited time after the requests were
// cancelled.
func (e *Ending) AwaitIdle() error {
	if !wait.Within(e.idle.Wait(), cancelPatience) {
		return errors.New("an HTTP request has not returned")
	}
	return nil
}

// Finish says that the loss was reported.
func (e *Ending) Finish() { e.finished.Fire() }

// AwaitFinish waits until the loss was reported. After 70 % of the grace, the link no
// longer sends what is queued; after all of it, AwaitFinish calls expire.
func (e *Ending) AwaitFinish(grace time.Duration, expire func()) {
	sending := grace / 10 * 7
	if !wait.Within(e.finished.Wait(), sending) {
		e.forced.Fire()
	}
	if !wait.Within(e.finished.Wait(), grace-sending) {
		expire()
	}
	<-e.finished.Wait()
}
