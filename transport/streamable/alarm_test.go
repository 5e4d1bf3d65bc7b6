package streamable

import (
	"testing"
	"testing/synctest"
	"time"
)

// An alarm wakes for a signal, and at the last time that was set.
//
// Guarantees: G-0063.3
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all alarms
		a := all.take()
		a.signal()
		a.signal() // nobody is blocked by that
		if <-a.wake; a.isOver() {
			t.Error("its time is over, and none was set")
		}
		a.set(time.Second)
		a.set(time.Minute)
		begun := time.Now()
		if <-a.wake; time.Since(begun) != time.Minute || !a.isOver() {
			t.Errorf("it woke after %v, over: %t", time.Since(begun), a.isOver())
		}
		if a.set(time.Second); a.isOver() {
			t.Error("its time is over, and another was set")
		}
		a.signal()
		all.keep(a)
		if len(a.wake) > 0 {
			t.Error("it is kept with a signal for the next response")
		}
		pass := time.NewTimer(time.Hour)
		<-pass.C
		if a.isOver() {
			t.Error("a kept alarm has rung")
		}
	})
}

// An alarm that may be ringing could ring for the next response, so it is not reused.
//
// Guarantees: G-0063.3
func TestRingingAlarmIsNotReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all alarms
		a := all.take()
		a.set(time.Second)
		<-a.wake
		if all.keep(a); all.free.Get() != nil {
			t.Error("it is kept")
		}
	})
}
