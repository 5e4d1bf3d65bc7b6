// Package wait has what goroutines wait for: a signal that fires once, the next change of something, a closed channel, and time.
package wait

import (
	"context"
	"time"
)

// Sleep returns nil once d has passed, or the cause of ctx if that ends first. A d that
// is not positive has passed.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Within waits until a channel is closed. It returns false when that takes longer
// than the timeout.
func Within(done <-chan struct{}, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
