// Package pause waits for a while, or for the end of a context.
package pause

import (
	"context"
	"time"
)

// For returns nil once d has passed, or the cause of ctx if that ends first. A d that
// is not positive has passed.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
