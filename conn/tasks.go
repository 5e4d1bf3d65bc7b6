package conn

import (
	"context"
	"slices"
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
