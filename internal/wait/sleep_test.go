package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

func TestSleep(t *testing.T) {
	enough := errors.New("enough")
	for _, c := range []struct {
		name     string
		d, limit time.Duration
		took     time.Duration
		err      error
	}{
		{"the time passes", 3 * time.Second, time.Minute, 3 * time.Second, nil},
		{"no time", -time.Second, time.Minute, 0, nil},
		{"the context ends", time.Hour, time.Minute, time.Minute, enough},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeoutCause(t.Context(), c.limit, enough)
				defer cancel()
				began := time.Now()
				err := wait.Sleep(ctx, c.d)
				if took := time.Since(began); took != c.took || !errors.Is(err, c.err) {
					t.Errorf("%v after %v, not %v after %v", err, took, c.err, c.took)
				}
			})
		})
	}
}
