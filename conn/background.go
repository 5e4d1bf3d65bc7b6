package conn

import (
	"context"
	"slices"
	"sync"
	"time"
)

// background holds the functions that Go has begun. Most Conns have none.
type background struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	running []*backgroundTask
	closed  bool // Go accepts no further functions
}

type backgroundTask struct {
	name string
	done chan struct{}
}

func (b *background) add(name string, run func(context.Context)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	t := &backgroundTask{name, make(chan struct{})}
	b.running = append(b.running, t)
	go func() {
		defer close(t.done)
		defer b.remove(t)
		run(b.ctx)
	}()
	return true
}

func (b *background) remove(t *backgroundTask) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = slices.DeleteFunc(b.running, func(other *backgroundTask) bool { return other == t })
}

// end ends the context of all functions.
func (b *background) end(why Reason) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.cancel(why)
}

// await waits for the functions whose context has ended, for at most the grace,
// and returns the names of those that still run.
func (b *background) await(grace time.Duration) (running []string) {
	ending := b.ending()
	if len(ending) == 0 {
		return nil
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	expired := false
	for _, t := range ending {
		if !expired {
			select {
			case <-t.done:
			case <-timer.C:
				expired = true
			}
		}
		select {
		case <-t.done:
		default:
			running = append(running, t.name)
		}
	}
	slices.Sort(running)
	return running
}

// ending lists the functions whose context has ended and that still run.
func (b *background) ending() []*backgroundTask {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		return nil
	}
	return slices.Clone(b.running)
}
