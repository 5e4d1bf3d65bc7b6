package conn

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Go runs f beside the Conn, on a goroutine of its own, through every loss and
// every Run, until f returns. The context ends when the Conn closes for good,
// with the Reason for that. The Run in which that happens waits for f, for at
// most Options.StopGrace, and names what is left in its *StuckError. A panic of
// f, or runtime.Goexit, is told to Hooks.Panic. Both know f by that name.
//
// Go reports false, and f is not run, when the Conn is closing or closed. A Conn
// that is never run ends nothing.
func (c *Conn) Go(name string, f func(context.Context)) bool {
	return c.beside().add(name, func(ctx context.Context) {
		attend(func() error { f(ctx); return nil }, func(err error) { c.reportPanic(name, err) })
	})
}

// companions are what runs beside a Conn. Most have none.
type companions struct {
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	names []string      // of those that run
	over  bool          // no more are taken
	alone chan struct{} // closed when none runs any more; nil while nobody awaits that
}

// beside is what runs beside the Conn. Where that closes at the same time, either
// of both sees the other.
func (c *Conn) beside() *companions {
	if c.companions.Load() == nil {
		none := new(companions)
		none.ctx, none.cancel = context.WithCancelCause(context.Background())
		c.companions.CompareAndSwap(nil, none)
		if now := c.Status(); now.State == Closing {
			c.companions.Load().end(now.Reason)
		}
	}
	return c.companions.Load()
}

func (c *companions) add(name string, run func(context.Context)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return false
	}
	c.names = append(c.names, name)
	go func() {
		defer c.leave(name)
		run(c.ctx)
	}()
	return true
}

func (c *companions) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.names, name)
	c.names = slices.Delete(c.names, i, i+1)
	if len(c.names) == 0 && c.alone != nil {
		close(c.alone)
	}
}

// end ends their contexts.
func (c *companions) end(why error) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.cancel(why)
}

// settle waits for those whose contexts have ended, for at most the grace, and
// names those that are left.
func (c *companions) settle(grace time.Duration) (left []string) {
	if c == nil {
		return nil
	}
	alone := c.departure()
	if alone == nil {
		return nil
	}
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-alone:
	case <-patience.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.names))
}

// departure is closed when none runs any more; nil when nobody is to leave.
func (c *companions) departure() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over && len(c.names) > 0 {
		c.alone = make(chan struct{})
	}
	return c.alone
}
