package auth

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A panic of the function that Locked calls does not keep the lock.
func TestAPanicDoesNotKeepTheLockOfAMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, k := NewMemory(), Key{Resource: offlineURL}
		_ = recoverPanic(func() error {
			return m.Locked(t.Context(), k, func(*Entry) (*Entry, error) { panic("a mistake") })
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := m.Locked(ctx, k, func(*Entry) (*Entry, error) { return new(Entry), nil }); err != nil {
			t.Errorf("the next one gets %v", err)
		}
		if e, err := m.Load(ctx, k); e == nil || err != nil || len(m.locks.held) != 0 {
			t.Errorf("got %v, %v, and %d locks are left", e, err, len(m.locks.held))
		}
	})
}
