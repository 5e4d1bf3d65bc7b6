package streamable

import (
	"context"
	"slices"
	"sync"
)

// A budget is an amount of something that is waited for in order. Its zero
// value has nothing.
type budget struct {
	mu      sync.Mutex
	free    int
	waiting []*claim
}

type claim struct {
	n       int
	granted chan struct{}
}

// take waits for n, and reports false when the context ends first, or the
// waiting is stopped.
func (b *budget) take(ctx context.Context, stop <-chan struct{}, n int) bool {
	c := b.claim(n)
	return c == nil || b.wait(ctx, stop, c)
}

// wait waits for what was claimed, as take does.
func (b *budget) wait(ctx context.Context, stop <-chan struct{}, c *claim) bool {
	select {
	case <-c.granted:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	b.withdraw(c)
	return false
}

// claim returns nil when there is enough, and nobody before.
func (b *budget) claim(n int) *claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 && b.free >= n {
		b.free -= n
		return nil
	}
	c := &claim{n, make(chan struct{})}
	b.waiting = append(b.waiting, c)
	return c
}

func (b *budget) withdraw(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, c); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	} else {
		b.free += c.n
	}
	b.serve()
}

func (b *budget) give(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	b.serve()
}

// serve grants what can be granted, oldest first.
func (b *budget) serve() {
	served := 0
	for _, c := range b.waiting {
		if b.free < c.n {
			break
		}
		b.free -= c.n
		close(c.granted)
		served++
	}
	if b.waiting = slices.Delete(b.waiting, 0, served); len(b.waiting) == 0 {
		b.waiting = nil
	}
}
