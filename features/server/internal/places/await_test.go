package places_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server/internal/places"
)

// Handlers have the grace, however short the deadline is, and a deadline that is later. Only those that are still running when
// that is over are named: not one that has ended since the grace.
func TestAwaitNamesWhoIsStillRunning(t *testing.T) {
	const grace = 10 * time.Second
	for name, c := range map[string]struct {
		deadline time.Duration // 0: none
		ends     time.Duration // when the second handler ends; the first never does
		alone    bool          // there is no first
		took     time.Duration
		want     []string
	}{
		"within the grace, after the deadline": {time.Second, 5 * time.Second, true, 5 * time.Second, nil},
		"after both":                           {time.Second, time.Hour, true, grace, []string{"second"}},
		"before the deadline":                  {time.Minute, 20 * time.Second, true, 20 * time.Second, nil},
		"one of two before the deadline":       {time.Minute, 20 * time.Second, false, time.Minute, []string{"first"}},
		"without a deadline":                   {0, 20 * time.Second, true, grace, []string{"second"}},
		"both run":                             {time.Minute, time.Hour, false, time.Minute, []string{"first", "second"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := t.Context(), func() {}
			if c.deadline > 0 {
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
			}
			defer cancel()
			var running sync.WaitGroup
			var mu sync.Mutex
			left, done := []string{"second"}, make(chan struct{})
			if !c.alone {
				left = append(left, "first")
				running.Go(func() { <-done })
			}
			second := time.NewTimer(c.ends)
			running.Go(func() {
				<-second.C
				mu.Lock()
				defer mu.Unlock()
				left = slices.DeleteFunc(left, func(of string) bool { return of == "second" })
			})
			began := time.Now()
			got := places.Await(ctx, grace, &running, func() []string {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(left)
			})
			if took := time.Since(began); !slices.Equal(got, c.want) || took != c.took {
				t.Errorf("%s: got %q after %v, want %q after %v", name, got, took, c.want, c.took)
			}
			close(done)
			running.Wait()
		})
	}
}
