package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// start connects every pair, so many at a time: a Connect keeps its caller until
// the session is ready.
func (f *fleet) start(ctx context.Context) error {
	f.print("\n1. start, %d at a time", f.options.starting)
	began := time.Now()
	failed, example := each(f.pairs, f.options.starting, func(p *pair) error { return p.connect(ctx) })
	if failed > 0 {
		return fmt.Errorf("start: %d of %d sessions were not ready, for instance: %w", failed, len(f.pairs), example)
	}
	f.print("   all ready in %s", rate(len(f.pairs), time.Since(began)))
	return nil
}

// callEach makes one call in every session.
func (f *fleet) callEach(ctx context.Context) error {
	f.print("\n2. one call each, %d at a time", f.options.starting)
	began := time.Now()
	failed, example := each(f.pairs, f.options.starting, func(p *pair) error { return p.call(ctx, countIt) })
	if failed > 0 {
		return fmt.Errorf("call: %d of %d calls were not answered, for instance: %w", failed, len(f.pairs), example)
	}
	f.print("   all answered in %s", rate(len(f.pairs), time.Since(began)))
	return nil
}

// each does something with each of all, so many at once, and returns how often
// it failed, and one of the errors.
func each[T any](all []T, atOnce int, do func(T) error) (failed int, example error) {
	next := make(chan T)
	var mu sync.Mutex
	var doing sync.WaitGroup
	for range min(atOnce, len(all)) {
		doing.Go(func() {
			for one := range next {
				if err := do(one); err != nil {
					mu.Lock()
					failed, example = failed+1, err
					mu.Unlock()
				}
			}
		})
	}
	for _, one := range all {
		next <- one
	}
	close(next)
	doing.Wait()
	return failed, example
}
