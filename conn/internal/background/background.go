// Package background runs functions that outlive the links of a connection, and ends with it. Each
// runs on a goroutine of its own. The Group that has started them waits for them.
package background

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// A Group holds the functions that have been started and have not returned. Their context ends
// with the Group, and not before. Its methods may be called from any goroutine, and those that
// end it or wait for it also on a nil Group, which has none.
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	running []*task
	ended   bool // no further function is started
}

// New returns a Group without functions.
func New() *Group {
	g := new(Group)
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	return g
}

// A task is a function that runs.
type task struct {
	name string
	done chan struct{}
}

// Add starts a function under a name. It reports false, and does not run it, if the Group has ended.
// A function that panics ends the program: its caller has to guard it.
func (g *Group) Add(name string, run func(context.Context)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	t := &task{name, make(chan struct{})}
	g.running = append(g.running, t)
	go func() {
		defer close(t.done)
		defer g.remove(t)
		run(g.ctx)
	}()
	return true
}

func (g *Group) remove(t *task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running = slices.DeleteFunc(g.running, func(other *task) bool { return other == t })
}

// End ends the context of all functions, with the cause. No further one is started. A second End
// changes nothing.
func (g *Group) End(why error) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.cancel(why)
}

// Await waits for the functions whose context has ended, for at most the grace,
// and returns the names of those that still run.
func (g *Group) Await(grace time.Duration) (running []string) {
	deadline := time.Now().Add(grace)
	for _, t := range g.ending() {
		if !wait.Within(t.done, time.Until(deadline)) && !wait.IsClosed(t.done) {
			running = append(running, t.name)
		}
	}
	slices.Sort(running)
	return running
}

// Ending reports whether functions whose context has ended still run.
func (g *Group) Ending() bool { return len(g.ending()) > 0 }

// ending lists the functions whose context has ended and that still run.
func (g *Group) ending() []*task {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		return nil
	}
	return slices.Clone(g.running)
}
