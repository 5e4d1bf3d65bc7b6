package life

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A server that is held does not end, however long that takes; one that a client has used does not for a while, and one that is looked at only
// goes on as if nobody had.
//
// Guarantees: G-0088.11
func TestUseOfAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := Rule{Idle: time.Minute}
		var u Use
		if next, over := u.Look(rule, false, time.Now()); over || !next.IsZero() {
			t.Errorf("one that was never started ends at %v", next)
		}
		u.Begin()
		began := time.Now()
		ends := func(about string, kept bool, want time.Duration) {
			t.Helper()
			if next, over := u.Look(rule, kept, time.Now()); over || !next.Equal(began.Add(want)) {
				t.Errorf("%s: it ends %v after its begin (over: %t), want %v", about, next.Sub(began), over, want)
			}
		}
		ends("as started", false, time.Minute)
		u.Hold()
		u.Hold()
		pass(10 * time.Second)
		u.Release(false)
		ends("held by another one", false, 70*time.Second)
		u.Release(false)
		ends("held, but by no client", false, time.Minute)
		ends("kept", true, 70*time.Second)
		u.Hold()
		pass(10 * time.Second)
		u.Release(true)
		ends("used by a client", false, 80*time.Second)
		u.Hold()
		pass(time.Hour)
		ends("held for an hour", false, time.Hour+20*time.Second+time.Minute)
		if u.FallAsleep(rule, false, time.Now(), "") {
			t.Error("one that is held falls asleep")
		}
		u.Release(false)
		if u.FallAsleep(rule, true, time.Now(), "") {
			t.Error("one that is kept falls asleep")
		}
	})
}

// Who finds it over ends it, and nobody else does meanwhile. It is asleep from then on, with what was wrong with it, until it is started or
// somebody says otherwise.
//
// Guarantees: G-0088.11
func TestFallingAsleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := Rule{Idle: time.Minute}
		var u Use
		u.Begin()
		if u.FallAsleep(rule, false, time.Now(), "too early") {
			t.Error("it falls asleep before its time")
		}
		pass(time.Minute)
		if next, over := u.Look(rule, false, time.Now()); !over || !next.Equal(time.Now()) {
			t.Errorf("after a minute it ends at %v: %t", next, over)
		}
		if next, over := u.Look(rule, false, time.Now()); over || !next.IsZero() {
			t.Errorf("while it is being ended, it ends again at %v: %t", next, over)
		}
		if failure, asleep := u.IsAsleep(); asleep || failure != "" {
			t.Errorf("it is asleep before it falls asleep, with %q", failure)
		}
		if !u.FallAsleep(rule, false, time.Now(), "was broken") {
			t.Error("it does not fall asleep")
		}
		if failure, asleep := u.IsAsleep(); !asleep || failure != "was broken" {
			t.Errorf("asleep: %t, with %q", asleep, failure)
		}
		if u.FallAsleep(rule, false, time.Now(), "twice") {
			t.Error("it falls asleep twice")
		}
		u.Ended(true)
		pass(time.Hour)
		if next, over := u.Look(rule, false, time.Now()); over || !next.IsZero() {
			t.Errorf("asleep, it ends at %v: %t", next, over)
		}
		u.Begin()
		if failure, asleep := u.IsAsleep(); asleep || failure != "" {
			t.Errorf("once started it is asleep: %t, with %q", asleep, failure)
		}
		for _, asleep := range []bool{true, false} {
			u.SetAsleep(asleep)
			if _, is := u.IsAsleep(); is != asleep {
				t.Errorf("asleep: %t, want %t", is, asleep)
			}
		}
	})
}

// One that was started again while it was being ended is looked at again, also if what was ended did not run.
//
// Guarantees: G-0088.11
func TestStartedWhileItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rule := Rule{Idle: time.Minute}
		for _, ran := range []bool{false, true} {
			var u Use
			u.Begin()
			pass(time.Minute)
			if _, over := u.Look(rule, false, time.Now()); !over {
				t.Fatal("it is not over")
			}
			pass(time.Second)
			u.Begin()
			u.Ended(ran)
			if next, over := u.Look(rule, false, time.Now()); over || !next.Equal(time.Now().Add(time.Minute)) {
				t.Errorf("ran %t: it ends at %v: %t, want in a minute", ran, next, over)
			}
		}
		var u Use
		u.Begin()
		pass(time.Minute)
		u.Look(rule, false, time.Now())
		u.Ended(true)
		if _, over := u.Look(rule, false, time.Now()); !over {
			t.Error("one that ran, and that nobody has started again, is not looked at again")
		}
	})
}

// A server that is ended and started again at once is one that was only too old.
func TestRenews(t *testing.T) {
	for rule, want := range map[Rule]bool{{Longest: time.Hour}: true, {Longest: time.Hour, Idle: time.Minute}: false, {OnDemand: true, Longest: time.Hour}: false} {
		if rule.Renews() != want {
			t.Errorf("%+v renews: %t", rule, !want)
		}
	}
}

// A Keeper looks when it is told to, however often that is, and when look has said; never by itself, and not after Close.
//
// Guarantees: G-0088.11
func TestKeeperLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks []time.Duration
		began, next := time.Now(), time.Time{}
		k := NewKeeper(func(now time.Time) time.Time {
			looks = append(looks, now.Sub(began))
			at := next
			next = time.Time{}
			return at
		})
		pass(time.Hour)
		if synctest.Wait(); len(looks) != 0 {
			t.Errorf("it has looked at %v before it was told to", looks)
		}
		next = time.Now().Add(time.Minute)
		k.Check()
		pass(2 * time.Minute)
		synctest.Wait()
		if n := len(looks); n < 2 || n > 3 || looks[n-1] != time.Hour+time.Minute || looks[0] != time.Hour {
			t.Errorf("it has looked at %v, want at once and after a minute", looks)
		}
		before := len(looks)
		pass(time.Hour)
		if synctest.Wait(); len(looks) != before {
			t.Errorf("it has looked at %v without a reason", looks[before:])
		}
		for range 10 {
			k.Check()
		}
		if synctest.Wait(); len(looks) < before+1 || len(looks) > before+2 {
			t.Errorf("told ten times at once, it has looked %d times", len(looks)-before)
		}
		k.Close()
		before = len(looks)
		k.Check()
		if synctest.Wait(); len(looks) != before {
			t.Error("it looks after Close")
		}
	})
}

// Close waits until what is being ended has ended, and says so to it; that look is called after each end.
//
// Guarantees: G-0088.11
func TestKeeperWaitsForWhatItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started, looks, ended := false, 0, false
		var k *Keeper
		k = NewKeeper(func(time.Time) (next time.Time) {
			if looks++; started {
				return next
			}
			started = true
			k.Go(func(ctx context.Context) {
				timer := time.NewTimer(time.Second)
				defer timer.Stop()
				<-timer.C
				if ctx.Err() != nil {
					t.Error("its context has ended before Close")
				}
			})
			return next
		})
		k.Check()
		synctest.Wait()
		before := looks
		pass(2 * time.Second)
		if synctest.Wait(); looks != before+1 {
			t.Errorf("after the end of a server it has looked %d times, want once", looks-before)
		}
		started = true
		k.Go(func(ctx context.Context) {
			<-ctx.Done()
			timer := time.NewTimer(time.Second)
			defer timer.Stop()
			<-timer.C
			ended = true
		})
		began := time.Now()
		k.Close()
		if !ended || time.Since(began) != time.Second {
			t.Errorf("Close has returned after %v; the server has ended: %t", time.Since(began), ended)
		}
	})
	NewKeeper(nil).Close() // it has no goroutine
}

// pass lets time pass in a bubble of testing/synctest.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
