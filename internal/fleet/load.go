package main

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A load is calls that are made all the time.
type load struct {
	enough  chan struct{}
	callers sync.WaitGroup
	made    atomic.Int64
	failed  atomic.Int64
}

// breath is what a caller of the others waits between calls: callers that wait
// for nothing would be all that the scheduler runs.
const breath = time.Millisecond

// callAll has each of the pairs called in turn, by a few callers, until it is
// enough, and once at least.
func (f *fleet) callAll(ctx context.Context, pairs []*pair) *load {
	l := &load{enough: make(chan struct{})}
	callers := 4 * runtime.GOMAXPROCS(0)
	for first := range callers {
		l.callers.Go(func() {
			for f.callInTurn(ctx, l, pairs, first, callers) {
			}
		})
	}
	return l
}

// callInTurn makes one round, and reports whether there is to be another.
func (f *fleet) callInTurn(ctx context.Context, l *load, pairs []*pair, first, step int) bool {
	for i := first; i < len(pairs); i += step {
		l.made.Add(1)
		if err := pairs[i].call(ctx, countIt); err != nil {
			l.failed.Add(1)
		}
		if pause(ctx, breath) != nil {
			return false
		}
	}
	select {
	case <-l.enough:
		return false
	default:
		return true
	}
}

func (l *load) end() (made, failed int64) {
	close(l.enough)
	l.callers.Wait()
	return l.made.Load(), l.failed.Load()
}
