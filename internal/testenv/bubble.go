package testenv

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Bubble is synctest.Test for a test that takes far less than a minute. If it takes longer, the process ends with a message that names
// the test, and with the stacks of all goroutines. In a bubble no other guard works while a lock is held: its time stands still then.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	bubble(t, hangLimit, f)
}

func bubble(t *testing.T, limit time.Duration, f func(t *testing.T)) {
	t.Helper()
	guard := time.AfterFunc(limit, func() {
		panic(fmt.Sprintf("%s: its bubble hangs for %v: is a lock held, or does something wait for what is outside?", t.Name(), limit))
	})
	defer guard.Stop()
	synctest.Test(t, f)
}
