package fleet

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// childVariable is in the environment of this program where it is a child, which runs until its input ends.
const childVariable = "FLEET_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		io.Copy(io.Discard, os.Stdin)
		return
	}
	goleak.VerifyTestMain(m)
}

// TestEachIsBounded checks that no more calls run at once than allowed, and that the error counts those that
// failed.
func TestEachIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		err := Each([]int{1, 2, 3, 4, 5, 6, 7}, 3, "failed", func(n int) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-time.NewTimer(time.Second).C
			if n > 5 {
				return errors.New("too many")
			}
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "2 of 7 failed, for instance: too many") || most.Load() != 3 {
			t.Errorf("%d ran at once: %v", most.Load(), err)
		}
	})
}

// TestLoadEnds checks that each caller calls at least once, ends by itself when it wants to, and otherwise with
// the load.
func TestLoadEnds(t *testing.T) {
	var calls [3]atomic.Int64
	l := StartLoad(len(calls), func(caller int) bool { return calls[caller].Add(1) < 5 || caller > 0 })
	l.End()
	for caller := range calls {
		if n := calls[caller].Load(); n == 0 || caller == 0 && n > 5 {
			t.Errorf("caller %d has called %d times", caller, n)
		}
	}
}

// TestStrikesKeepTheirTimes checks that a slow hit does not put off those after it, and that an error ends
// the strikes.
func TestStrikesKeepTheirTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, hits := time.Now(), []time.Duration(nil)
		broken := errors.New("broken")
		err := Strike(t.Context(), func(yield func(time.Duration, int) bool) {
			_ = yield(time.Second, 1) && yield(2*time.Second, 2) && yield(9*time.Second, 3) && yield(10*time.Second, 4)
		}, func(n int) error {
			hits = append(hits, time.Since(began))
			<-time.NewTimer(3 * time.Second).C
			if n == 3 {
				return broken
			}
			return nil
		})
		if want := []time.Duration{time.Second, 4 * time.Second, 9 * time.Second}; !errors.Is(err, broken) || !slices.Equal(hits, want) {
			t.Errorf("hits at %v, want %v: %v", hits, want, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Strike(ctx, func(yield func(time.Duration, int) bool) { yield(time.Hour, 1) }, func(int) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("an interrupt has not ended the strikes: %v", err)
		}
	})
}
