package conn

import (
	"context"
	"slices"

	"github.com/bowline-mcp/bowline/internal/actor"
)

// A task is work that the loop has begun on another goroutine. The last thing that
// goroutine does is to post an event that names the task.
type task struct {
	name   string
	cancel context.CancelCauseFunc
	serves *Incoming // the request that it serves; nil if the task is not a handler

	next, previous *task
	runs           bool
}

// title returns the name of the task, with the target of a handler's request.
func (t *task) title() string {
	if t.serves != nil {
		return t.serves.title()
	}
	return t.name
}

// tasks is a list of the running tasks. Each request that is being served is one.
type tasks struct {
	first *task
	n     int
}

func (t *tasks) add(added *task) {
	added.runs, added.next = true, t.first
	if t.first != nil {
		t.first.previous = added
	}
	t.first = added
	t.n++
}

// remove removes a task if it is in the list.
func (t *tasks) remove(ended *task) {
	switch {
	case !ended.runs:
		return
	case ended.previous != nil:
		ended.previous.next = ended.next
	default:
		t.first = ended.next
	}
	if ended.next != nil {
		ended.next.previous = ended.previous
	}
	ended.runs, ended.next, ended.previous = false, nil, nil
	t.n--
}

// all ranges over the tasks. Do not add or remove tasks during the range.
func (t *tasks) all(yield func(*task) bool) {
	for running := t.first; running != nil; running = running.next {
		if !yield(running) {
			return
		}
	}
}

// cancel ends the contexts of all that runs.
func (t *tasks) cancel(why error) {
	for running := range t.all {
		running.cancel(why)
	}
}

func (t *tasks) names() []string {
	var names []string
	for running := range t.all {
		names = append(names, running.title())
	}
	slices.Sort(names)
	return names
}

// A job is what a task does. The event that report returns ends the task.
type job struct {
	task
	work   func() error
	report func(error) event
}

// do runs a job as a task: on the loop's own goroutine when that becomes idle, on the
// goroutine of the opener, or on a new one.
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

// bring runs a job and posts its result to the loop. If it returns a token, this goroutine
// has the loop.
func (l *loop) bring(j *job, how actor.Change) (held actor.Held) {
	ev := j.report(guard(j.work))
	ev.task = &j.task
	posted, held := l.mailbox.lend(&ev, how)
	if link := ev.unboundLink(); !posted && link != nil {
		closeUnwanted(link)
	}
	return held
}
