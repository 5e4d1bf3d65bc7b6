package conn

import (
	"context"
	"sync"

	"github.com/bowline-mcp/bowline/internal/actor"
)

// A job is what a task does. The event that report returns ends the task.
type job struct {
	task
	work   func() error
	report func(error) event
}

// do runs a job as a task: on the loop's own goroutine when that becomes idle, on the goroutine
// of the opener, or on a new one. It is in the list of tasks before it runs, so the loop cannot
// end without waiting for it.
func (l *loop) do(name string, cancel context.CancelCauseFunc, work func() error, report func(error) event) {
	j := &job{task{name: name, cancel: cancel}, work, report}
	l.tasks.add(&j.task)
	switch {
	case l.doesJobs && l.job == nil:
		l.job = j
	case l.opening.offer(j):
	default:
		go l.runJob(j)
	}
}

// runJob runs a job on a new goroutine, which then becomes the loop's own if there is none.
func (l *loop) runJob(j *job) {
	if held := l.complete(j); held.OK() {
		l.run(held)
	}
}

// complete runs a job and posts its result to the loop. If it returns a token, this goroutine
// has the loop, and is the loop's own.
func (l *loop) complete(j *job) actor.Held {
	held := l.bring(j, actor.Done)
	if held.Beside() { // another goroutine is the loop's own
		l.turn(held, 0)
		return actor.Held{}
	}
	return held
}

// bring runs a job and posts its result to the loop. If it returns a token, this goroutine has
// the loop. If no loop takes the result, it closes a link that the job has opened: nobody else
// knows of it.
func (l *loop) bring(j *job, how actor.Change) (held actor.Held) {
	ev := j.report(guard(j.work))
	ev.task = &j.task
	posted, held := l.mailbox.lend(&ev, how)
	if link := ev.unboundLink(); !posted && link != nil {
		closeUnwanted(link)
	}
	return held
}

// An openingCaller is the caller of Open, who opens the first link and runs its handshake
// on his own goroutine (ADR-0054). Nil: there is none.
type openingCaller struct {
	mu   sync.Mutex
	gone bool // the caller accepts no further job
	job  *job // the next job for the caller; nil if there is none
}

// offer leaves a job to the caller of Open. It reports false if the caller accepts none.
func (o *openingCaller) offer(j *job) bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone || o.job != nil {
		return false
	}
	o.job = j
	return true
}

// take returns the job that was left to the caller. After it has returned nil, offer
// refuses every job.
func (o *openingCaller) take() *job { return o.takeLast(false) }

// takeLast is take. If last is set, offer refuses every further job.
func (o *openingCaller) takeLast(last bool) *job {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	j := o.job
	o.job, o.gone = nil, o.gone || last || j == nil
	return j
}
