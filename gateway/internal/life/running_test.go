package life

import (
	"context"
	"sync"
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
		u.Begin()
		u.Ended(true)
		pass(time.Second)
		u.Hold()
		u.Release(true)
		pass(time.Minute)
		u.Look(rule, false, time.Now())
		u.Ended(false)
		if next, over := u.Look(rule, false, time.Now()); over || !next.IsZero() {
			t.Errorf("one that a client has used, and that did not run when it was to end, ends at %v: %t", next, over)
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

// A book notes when a Keeper has looked. It is safe for concurrent use.
type book struct {
	mu    sync.Mutex
	looks []time.Time
	next  time.Time // what the next look returns, once
}

func (b *book) look(now time.Time) (next time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.looks = append(b.looks, now)
	next, b.next = b.next, next
	return next
}

func (b *book) lookAgain(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next = at
}

// taken returns the looks since it was called last, when nothing goes on any more.
func (b *book) taken() (looks []time.Time) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	looks, b.looks = b.looks, nil
	return looks
}

// A Keeper looks when it is told to, however often that is, and when look has said; never by itself, and not after Close.
//
// Guarantees: G-0088.11
func TestKeeperLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		k := NewKeeper(b.look)
		pass(time.Hour)
		if looks := b.taken(); len(looks) != 0 {
			t.Errorf("it has looked at %v before it was told to", looks)
		}
		began := time.Now()
		b.lookAgain(began.Add(time.Minute))
		k.Check()
		pass(2 * time.Minute)
		if looks := b.taken(); len(looks) < 2 || len(looks) > 3 || !looks[0].Equal(began) || !looks[len(looks)-1].Equal(began.Add(time.Minute)) {
			t.Errorf("it has looked at %v, want at once and after a minute", looks)
		}
		pass(time.Hour)
		if looks := b.taken(); len(looks) != 0 {
			t.Errorf("it has looked at %v without a reason", looks)
		}
		for range 10 {
			k.Check()
		}
		if looks := b.taken(); len(looks) < 1 || len(looks) > 10 {
			t.Errorf("told ten times, it has looked %d times", len(looks))
		}
		k.Close()
		k.Check()
		for range 20 { // or has never looked before
			k := NewKeeper(b.look)
			k.Close()
			k.Check()
		}
		if looks := b.taken(); len(looks) != 0 {
			t.Error("it looks after Close")
		}
	})
}

// Close waits until what is being ended has ended, and says so to it. The Keeper looks again after each end.
//
// Guarantees: G-0088.11
func TestKeeperWaitsForWhatItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b book
		var ends sync.Once
		ended := make(chan error, 2)
		var k *Keeper
		k = NewKeeper(func(now time.Time) (next time.Time) {
			ends.Do(func() {
				for _, waits := range []bool{false, true} {
					k.Go(func(ctx context.Context) {
						if waits {
							<-ctx.Done()
						}
						pass(time.Second)
						ended <- ctx.Err()
					})
				}
			})
			return b.look(now)
		})
		k.Check()
		b.taken()
		pass(2 * time.Second)
		if looks, err := b.taken(), <-ended; len(looks) != 1 || err != nil {
			t.Errorf("after the end of a server it has looked %d times, want once; its context: %v", len(looks), err)
		}
		began := time.Now()
		k.Close()
		if took := time.Since(began); took != time.Second || len(ended) != 1 || <-ended == nil {
			t.Errorf("Close has returned after %v, and the server has not ended, or does not know of Close", took)
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
