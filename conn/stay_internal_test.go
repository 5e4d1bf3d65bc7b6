package conn

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// turning has a loop have its turns, as Run does, and says what Run would return.
func turning(l *loop) (ended chan error) {
	ended = make(chan error, 1)
	l.stay = new(stay)
	detach := l.attach(context.Background(), func() { l.wake() }, nil)
	l.ends = func(err error) {
		detach()
		ended <- err
	}
	go l.runWhileBusy()
	return ended
}

// Guarantees: G-0001.16
func TestRestingLoopKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(opener{}, Options{})
		l := newLoop(c)
		ended := turning(l)
		synctest.Wait()
		if _, err := c.Call(t.Context(), Request{Method: "m", Timeout: lingering / 2}); err == nil {
			t.Error("a dead link has brought an answer")
		}
		for _, wait := range []time.Duration{2 * lingering, 10 * c.options.TombstoneSweep} {
			pass(wait)
			for name, kept := range map[string]bool{
				"events":   l.spare != nil || l.batch != nil || c.mailbox.events != nil,
				"effects":  l.core.out != nil,
				"requests": l.core.pending.byID != nil || l.core.pending.free != nil || l.core.incoming.serving != nil,
				"tasks":    l.tasks.running != nil,
				"a stay":   l.stay.linger != nil || l.stay.woken != nil || l.stay.timer != nil,
				"a timer":  l.timer != nil && l.core.tombstones.len() == 0,
			} {
				if kept {
					t.Errorf("after %v: %s", wait, name)
				}
			}
			c.Wake() // so that it is busy again, and has seen what was read here
		}
		c.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Whoever awaits tasks goes on when the last is over.
func TestTasksAreAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all tasks
		began := time.Now()
		for n := range 3 {
			one := all.add("one", func(error) {})
			time.AfterFunc(time.Duration(n)*time.Second, func() { all.end(one) })
		}
		if all.await(time.Hour); time.Since(began) != 2*time.Second || all.count() != 0 {
			t.Errorf("after %v there are %d", time.Since(began), all.count())
		}
		all.add("another", func(error) {})
		if all.await(time.Hour); all.count() != 1 {
			t.Errorf("there are %d", all.count())
		}
	})
}
