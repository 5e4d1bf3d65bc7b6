package streamable

import (
	"testing"
	"testing/synctest"
	"time"
)

// An alarm rings for a signal, and at the time that was set last.
//
// Guarantees: G-0063.3
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all alarms
		a := all.take()
		a.signal()
		a.signal() // signal does not block
		if <-a.wake; a.isOver() {
			t.Error("isOver is true without a time, want false")
		}
		a.set(time.Second)
		a.set(time.Minute)
		begun := time.Now()
		if <-a.wake; time.Since(begun) != time.Minute || !a.isOver() {
			t.Errorf("it rang after %v, isOver: %t", time.Since(begun), a.isOver())
		}
		if a.set(time.Second); a.isOver() {
			t.Error("isOver is true after a new time was set, want false")
		}
		a.signal()
		all.keep(a)
		if len(a.wake) > 0 {
			t.Error("the alarm is kept with a signal, want none for the next response")
		}
		pass := time.NewTimer(time.Hour)
		<-pass.C
		if a.isOver() {
			t.Error("a kept alarm rang, want silence")
		}
	})
}

// An alarm that may be ringing is not reused, because it could ring for the next
// response.
//
// Guarantees: G-0063.3
func TestRingingAlarmIsNotReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all alarms
		a := all.take()
		a.set(time.Second)
		<-a.wake
		if all.keep(a); all.free.Get() != nil {
			t.Error("the alarm is kept, want it dropped")
		}
	})
}
