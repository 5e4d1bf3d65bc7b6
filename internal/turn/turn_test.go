package turn

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
)

func clientNumber(n int) share.Client { return share.Client{Network: fmt.Sprintf("10.0.0.%d", n)} }

// Guarantees: G-0085.2
func TestACheapPieceIsSoonDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, order := New[share.Client](2), make(chan string, 100)
		begin, greedy := make(chan struct{}), 40
		for n := range greedy {
			for range 2 {
				go s.Do(t.Context(), clientNumber(n), 16*Small, nil, func() {
					<-begin
					order <- "expensive"
				})
			}
		}
		synctest.Wait()
		go s.Do(t.Context(), share.Client{Identity: "good"}, Small+1, nil, func() { order <- "cheap" })
		synctest.Wait()
		close(begin)
		synctest.Wait()
		for n := range 2 * greedy {
			if what := <-order; what == "cheap" {
				if n > 1 {
					t.Errorf("the cheap piece was done after %d expensive ones, want 1", n)
				}
				return
			}
		}
		t.Error("the cheap piece was done after all others")
	})
}

// Guarantees: G-0085.3
func TestWhatIsSmallDoesNotWait(t *testing.T) {
	s := New[share.Client](1)
	c := clientNumber(1)
	err := s.Do(t.Context(), c, Small+1, nil, func() {
		done := false
		if err := s.Do(t.Context(), c, Small, nil, func() { done = true }); err != nil || !done {
			t.Errorf("a small piece beside a large one: done %t, error %v", done, err)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// A piece of work that must begin before some time is not done later, and leaves nothing.
//
// Guarantees: G-0084.5
func TestWaitingEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end, since := New[share.Client](2), make(chan struct{}), time.Now()
		go s.Do(t.Context(), clientNumber(1), Small+1, nil, func() { <-end })
		synctest.Wait()
		err := s.DoBefore(t.Context(), since.Add(time.Minute), clientNumber(2), Small+1, func() { t.Error("the work was done too late") })
		if waited := time.Since(since); !errors.Is(err, ErrLate) || waited != time.Minute {
			t.Errorf("got %v after %v, want %v after 1m", err, waited, ErrLate)
		}
		close(end)
		synctest.Wait()
		if err := s.DoBefore(t.Context(), since, clientNumber(2), Small+1, func() {}); err != nil || len(s.clients) > 0 {
			t.Errorf("work that need not wait: %v, %d clients are still known; want neither", err, len(s.clients))
		}
	})
}

// Guarantees: G-0085.4
func TestWaitingEndsWithTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := New[share.Client](2), make(chan struct{})
		go s.Do(t.Context(), clientNumber(1), Small+1, nil, func() { <-end })
		synctest.Wait()
		left := errors.New("the client has left")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, left)
		defer cancel()
		if err := s.Do(ctx, clientNumber(2), Small+1, nil, func() { t.Error("the work was done for nobody") }); !errors.Is(err, left) {
			t.Errorf("got %v, want %v", err, left)
		}
		close(end)
		synctest.Wait()
		if len(s.clients) > 0 {
			t.Errorf("%d clients are still known", len(s.clients))
		}
	})
}

// Guarantees: G-0085.4
func TestAPieceThatPanicsHoldsNothing(t *testing.T) {
	s := New[share.Client](1)
	func() {
		defer func() { _ = recover() }()
		_ = s.Do(t.Context(), clientNumber(1), Small+1, nil, func() { panic("broken") })
	}()
	if err := s.Do(t.Context(), clientNumber(1), Small+1, nil, func() {}); err != nil || len(s.clients) > 0 {
		t.Errorf("error %v, and %d clients are known", err, len(s.clients))
	}
}

// A call to which no other is an obstacle pays no allocation and at most 100 ns.
func BenchmarkDo(b *testing.B) {
	s, ctx := New[share.Client](2), context.Background()
	c := share.Client{Network: "127.0.0.1"}
	for _, cost := range []int{Small, Small + 1} {
		b.Run(fmt.Sprint(cost), func(b *testing.B) {
			b.ReportAllocs()
			done := 0
			for b.Loop() {
				_ = s.Do(ctx, c, cost, nil, func() { done++ })
			}
			if done != b.N {
				b.Errorf("%d of %d pieces were done", done, b.N)
			}
		})
	}
}

// Guarantees: G-0085.5
func TestUncontendedWorkAllocatesNothing(t *testing.T) {
	s, ctx := New[share.Client](2), context.Background()
	c, done := clientNumber(1), 0
	allocations := testing.AllocsPerRun(100, func() { _ = s.Do(ctx, c, Small+1, nil, func() { done++ }) })
	if allocations > 0 {
		t.Errorf("%v allocations, want none", allocations)
	}
}

// Clients that come once, with a cheap piece, do not keep an expensive one waiting for ever.
//
// Guarantees: G-0085.7
func TestNewcomersDoNotStarveAnybody(t *testing.T) {
	s := New[share.Client](2)
	s.enter(clientNumber(0), Small+1)
	expensive := s.enter(clientNumber(1), 64*Small)
	last := clientNumber(0)
	for n := range 2 * 64 { // one waits while the one before it is done
		next := share.Client{Identity: fmt.Sprint(n)}
		s.enter(next, Small+1)
		s.leave(last)
		if hasBegun(expensive) {
			return
		}
		last = next
	}
	t.Error("the expensive piece still waits, want it to begin when 64 times its cost was done for others")
}
