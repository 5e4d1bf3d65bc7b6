package conn

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Go runs f in the background, on a goroutine of its own, through every loss and
// every Run, until f returns. Its context ends with the Reason when the Conn
// closes for good. The Run in which that happens waits for f for at most
// Options.StopGrace, and names in its *StuckError what has not returned then.
// Hooks.Panic is told of a panic of f, under the same name.
//
// Go reports false, and does not run f, when the Conn is closing or closed. The
// context does not end while the Conn is never run.
func (c *Conn) Go(name string, f func(context.Context)) bool {
	return c.inBackground().add(name, func(ctx context.Context) {
		c.reportPanic(name, guard(func() error { f(ctx); return nil }))
	})
}

// background is what Go has begun. Most Conns have none.
type background struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	running []*backgroundTask
	closed  bool // no more are taken
}

type backgroundTask struct {
	name string
	done chan struct{}
}

// inBackground makes that of a Conn. Where the Conn closes at the same time,
// either of both sees the other.
func (c *Conn) inBackground() *background {
	if c.background.Load() == nil {
		none := new(background)
		none.ctx, none.cancel = context.WithCancelCause(context.Background())
		c.background.CompareAndSwap(nil, none)
		if now := c.Status(); now.State == Closing {
			c.background.Load().end(now.Reason)
		}
	}
	return c.background.Load()
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

// end ends their context.
func (b *background) end(why error) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.cancel(why)
}

// await waits for those whose context has ended, for at most the grace, and
// names those that still run.
func (b *background) await(grace time.Duration) (running []string) {
	patience := time.NewTimer(grace)
	defer patience.Stop()
	expired := false
	for _, t := range b.ending() {
		if !expired {
			select {
			case <-t.done:
			case <-patience.C:
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

// ending lists those whose context has ended.
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
