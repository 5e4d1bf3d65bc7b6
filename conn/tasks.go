package conn

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// A task is work the loop has begun on another goroutine. It posts an event that
// names it, and ends.
type task struct {
	name   string
	cancel context.CancelCauseFunc
	ended  atomic.Bool
}

// tasks is what runs. The loop alone touches it, but for end.
type tasks struct {
	running map[*task]struct{}
	over    atomic.Pointer[chan struct{}] // capacity one: a token after a task has ended; nil while nobody awaits it
}

func (t *tasks) add(name string, cancel context.CancelCauseFunc) *task {
	added := &task{name: name, cancel: cancel}
	t.enter(added)
	return added
}

func (t *tasks) enter(added *task) {
	if t.running == nil {
		t.running = make(map[*task]struct{})
	}
	t.running[added] = struct{}{}
}

// end is the last deed of a task's goroutine.
func (t *tasks) end(over *task) {
	over.ended.Store(true)
	awaited := t.over.Load()
	if awaited == nil {
		return
	}
	select {
	case *awaited <- struct{}{}:
	default: // there is a token already
	}
}

// await waits for all of them when no loop does any more, for at most the grace.
func (t *tasks) await(grace time.Duration) {
	patience := time.NewTimer(grace)
	defer patience.Stop()
	over := make(chan struct{}, 1)
	t.over.Store(&over)
	for {
		maps.DeleteFunc(t.running, func(task *task, _ struct{}) bool { return task.ended.Load() })
		if len(t.running) == 0 {
			return
		}
		select {
		case <-over:
		case <-patience.C:
			return
		}
	}
}

func (t *tasks) remove(over *task) { delete(t.running, over) }

// rest gives up what only work needs, when none is in sight.
func (t *tasks) rest() {
	if len(t.running) == 0 {
		t.running = nil
	}
}

// cancel ends the contexts of all that runs.
func (t *tasks) cancel(why error) {
	for running := range t.running {
		running.cancel(why)
	}
}

func (t *tasks) count() int { return len(t.running) }

func (t *tasks) names() []string {
	var names []string
	for running := range t.running {
		names = append(names, running.name)
	}
	slices.Sort(names)
	return names
}

// carryOut is the goroutine of a task that can fail.
func (l *loop) carryOut(t *task, work func() error, tell func(error)) {
	defer l.tasks.end(t)
	attend(work, tell)
}
