package testenv

import (
	"testing"
	"time"
)

// Receive returns what comes from a channel. If nothing comes within a minute, the test fails and says
// what it has waited for; otherwise the time of its package would pass, which says nothing.
func Receive[T any](t testing.TB, from <-chan T, what string) (value T) {
	t.Helper()
	guard := time.NewTimer(hangLimit)
	defer guard.Stop()
	select {
	case value = <-from:
	case <-guard.C:
		t.Fatalf("not within %v: %s", hangLimit, what)
	}
	return value
}
