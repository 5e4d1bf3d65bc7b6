package cluster_test

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/clustertest"
)

// TestLeasesAreRenewed checks that leases and claims are held as long as their node lives, and
// what that costs: one message every 5 s for each key.
//
// Guarantees: G-0076.1, G-0076.9
func TestLeasesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		_, l := a.claim(t, "srv.x")
		sent, _ := a.engine.Messages()
		advance(10 * time.Minute)
		if now, _ := a.engine.Messages(); now-sent < 2*120-2 || now-sent > 2*120+2 {
			t.Errorf("%d messages in 10 minutes, want 240", now-sent)
		}
		if !a.Holds("srv.x") || l.calls.Load() != 0 || b.Judge(a.Self()) != cluster.Alive {
			t.Error("a key was lost")
		}
		a.state(t, cluster.Ready)
	})
}

// TestUsesAskNobody checks that what is called for each request sends the engine nothing.
//
// Guarantees: G-0076.9
func TestUsesAskNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		a.claim(t, "srv.x")
		synctest.Wait()
		sent, received := a.engine.Messages()
		for range 1000 {
			a.Member("b")
			a.Members()
			a.Gone("b")
			a.Gone("c")
			a.Judge(b.Self())
			a.Holds("srv.x")
			a.Holder("srv.x")
			a.State()
			a.Report()
		}
		if s, r := a.engine.Messages(); s != sent || r != received {
			t.Errorf("%d messages were sent, %d received", s-sent, r-received)
		}
	})
}

// TestRenewalsAroundTheDeadline delays the renewals of a claim until just before and just after
// the end of its time. The holder counts from the sending, and gives it up before the engine
// does.
//
// Guarantees: G-0076.1, G-0076.2
func TestRenewalsAroundTheDeadline(t *testing.T) {
	for _, c := range []struct {
		name string
		away time.Duration // the renewals that are sent so long after the last one that was accepted get no answer
		held bool
	}{
		{"one is late", 6 * time.Second, true},
		{"an election", 14 * time.Second, true},
		{"the last one counts", 16 * time.Second, true},
		{"too late", 18 * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := clustertest.New(clustertest.Options{})
				a := join(t, s, "a")
				_, l := a.claim(t, "srv.x")
				began := time.Now()
				a.engine.Faults(func(op clustertest.Operation) clustertest.Fault {
					return clustertest.Fault{Lose: op.Name == "update" && time.Since(began) < c.away}
				})
				advance(17*time.Second - time.Nanosecond)
				if !a.Holds("srv.x") {
					t.Error("the claim was given up before 17 s")
				}
				advance(time.Nanosecond)
				if a.Holds("srv.x") != c.held || (l.calls.Load() == 0) != c.held {
					t.Errorf("after 17 s: held %v, reported %d times, want held %v", a.Holds("srv.x"), l.calls.Load(), c.held)
				}
				advance(time.Minute)
				if a.Holds("srv.x") != c.held {
					t.Errorf("a minute later: held %v", !c.held)
				}
				a.state(t, cluster.Ready)
			})
		})
	}
}

// TestLossComesBeforeTheNextHolder cuts a node off while another one tries to get its claim all
// the time, with clocks that run at different rates.
//
// Guarantees: G-0076.2
func TestLossComesBeforeTheNextHolder(t *testing.T) {
	for _, percent := range []int64{86, 95, 100, 105} {
		synctest.Test(t, func(t *testing.T) {
			s := clustertest.New(clustertest.Options{})
			a := joinWithClock(t, s, "a", &cluster.Clock{Percent: percent})
			b := joinWithClock(t, s, "b", &cluster.Clock{Percent: 200 - percent})
			_, l := a.claim(t, "srv.x")
			advance(7 * time.Second)
			a.engine.Cut()
			began := time.Now()
			for {
				_, err := b.Claim(t.Context(), "srv.x", nil, func(error) {})
				if holds := a.Holds("srv.x"); err == nil && (holds || l.calls.Load() != 1) {
					t.Fatalf("at %d %%: b has the claim, and a holds it: %v", percent, holds)
				}
				if err == nil {
					break
				}
				advance(100 * time.Millisecond)
			}
			if waited := time.Since(began); waited > cluster.LeaseTTL {
				t.Errorf("at %d %%: b has waited %v", percent, waited)
			}
			a.state(t, cluster.Isolated)
		})
	}
}

// TestPausedProcessChecksFirst lets the time of a claim pass while none of the timers of its
// node can fire, as SIGSTOP does. The first use sees it.
//
// Guarantees: G-0076.2
func TestPausedProcessChecksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		_, l := a.claim(t, "srv.x")
		synctest.Wait() // nothing of the node runs while it is paused
		a.clock.Jump(17*time.Second - 1)
		if !a.Holds("srv.x") {
			t.Error("the claim was given up before its time")
		}
		a.clock.Jump(1)
		if a.Holds("srv.x") {
			t.Error("the claim is held after a pause of 17 s")
		}
		a.state(t, cluster.Isolated)
		advance(5 * time.Second)
		if a.Holds("srv.x") || l.calls.Load() != 1 {
			t.Errorf("the loss was reported %d times", l.calls.Load())
		}
		a.state(t, cluster.Ready)
	})
}

// TestAnswersComeAfterThePause checks that a renewal whose answer arrives after a pause does not
// bring a claim back whose time has passed.
//
// Guarantees: G-0076.2
func TestAnswersComeAfterThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		_, l := a.claim(t, "srv.x")
		a.lag(0, time.Second, "update")
		advance(5500 * time.Millisecond) // the renewals have arrived, their answers have not
		a.clock.Jump(12 * time.Second)
		advance(30 * time.Second)
		if a.Holds("srv.x") || l.calls.Load() != 1 {
			t.Errorf("held %v, reported %d times", a.Holds("srv.x"), l.calls.Load())
		}
	})
}

// TestEngineAway checks the states of a node that cannot reach the engine, and that it returns
// to its lease with the next term.
//
// Guarantees: G-0076.7
func TestEngineAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		was := a.Self()
		_, l := a.claim(t, "srv.x")
		began := time.Now()
		var states []cluster.State
		var after []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, changed := a.State()
			for len(states) < 3 {
				<-changed
				var is cluster.State
				is, changed = a.State()
				states, after = append(states, is), append(after, time.Since(began))
			}
		}()
		synctest.Wait()
		a.engine.Cut()
		advance(15 * time.Second)
		if !a.Holds("srv.x") || b.Judge(was) != cluster.Alive {
			t.Error("a does not hold its keys after 15 s")
		}
		if _, found := a.Member("b"); !found {
			t.Error("a does not know b any more")
		}
		advance(45 * time.Second)
		if a.Holds("srv.x") || l.calls.Load() != 1 {
			t.Error("a holds its keys after a minute")
		}
		if _, found := b.Member("a"); found || b.Judge(was) != cluster.Dead || a.Judge(b.Self()) != cluster.Unsure {
			t.Error("a node counts for what it is not")
		}
		a.engine.Heal()
		<-done
		want := []cluster.State{cluster.Degraded, cluster.Isolated, cluster.Ready}
		for i := range want {
			if states[i] != want[i] {
				t.Errorf("states %v at %v, want %v", states, after, want)
				break
			}
		}
		if after[0] != 0 || after[1] != 17*time.Second || after[2] != time.Minute {
			t.Errorf("states %v at %v", states, after)
		}
		synctest.Wait()
		if is := a.Self(); is.Epoch != was.Epoch || is.Term <= was.Term || b.Judge(is) != cluster.Alive {
			t.Errorf("a was %v and is %v", was, is)
		}
		if b.Judge(was) != cluster.Dead {
			t.Error("what a owned before may not be taken, although its lease has ended meanwhile")
		}
	})
}

// TestLogOfAnOutage checks that the log says of each lease once that it was not renewed, and once that it is lost. That a node which is
// closed renews nothing any more is no news.
func TestLogOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := clustertest.New(clustertest.Options{}), options("a")
		var mu sync.Mutex
		said := map[string]int{}
		o.Log = slog.New(onRecord(func(r slog.Record) {
			mu.Lock()
			defer mu.Unlock()
			r.Attrs(func(a slog.Attr) bool {
				if a.Key == "key" {
					said[r.Message+": "+a.Value.String()]++
				}
				return true
			})
		}))
		a := joinWith(t, s, o, &cluster.Clock{})
		a.claim(t, "srv.x")
		a.engine.Cut()
		advance(time.Minute)
		const failed, lost = "cluster: a lease was not renewed: ", "cluster: a lease is lost: "
		want := map[string]int{failed + "node.a": 1, failed + "srv.x": 1, lost + "node.a": 1, lost + "srv.x": 1}
		if !maps.Equal(said, want) {
			t.Errorf("the log says %v, want %v", said, want)
		}
		a.engine.Heal()
		advance(10 * time.Second)
		a.state(t, cluster.Ready)
		a.engine.Faults(func(op clustertest.Operation) clustertest.Fault { return clustertest.Fault{Lose: op.Name == "update"} })
		advance(5500 * time.Millisecond) // a renewal is under way
		closeNode(t, a.Node)
		if !maps.Equal(said, want) {
			t.Errorf("of a node that is closed the log says %v, want no more than %v", said, want)
		}
	})
}

// TestShortInterruption checks that nothing is lost while the engine is away for less than the
// leases last, also if answers are lost, and that renewals go on at once when it is back.
func TestShortInterruption(t *testing.T) {
	for _, silence := range []time.Duration{0, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := clustertest.New(clustertest.Options{Silence: silence})
			a := join(t, s, "a")
			was := a.Self()
			_, l := a.claim(t, "srv.x")
			for range 20 {
				a.engine.Faults(func(op clustertest.Operation) clustertest.Fault {
					return clustertest.Fault{LoseResult: op.Name == "update", Cut: op.Name == "update"}
				})
				advance(6 * time.Second) // a renewal is accepted, its answer is lost
				a.engine.Faults(nil)
				advance(5 * time.Second)
				a.state(t, cluster.Degraded)
				a.engine.Heal()
				synctest.Wait()
				a.state(t, cluster.Ready)
			}
			if !a.Holds("srv.x") || l.calls.Load() != 0 || a.Self() != was {
				t.Error("a key was lost")
			}
		})
	}
}

// TestSlowEngine checks that leases are held while each answer takes longer than the time
// between two attempts.
func TestSlowEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		_, l := a.claim(t, "srv.x")
		a.lag(1200*time.Millisecond, 1200*time.Millisecond)
		advance(10 * time.Minute)
		if !a.Holds("srv.x") || l.calls.Load() != 0 {
			t.Error("a key was lost")
		}
	})
}

// TestClocks checks that neither the time of day nor the rate of a clock matters for leases.
//
// Guarantees: G-0076.2
func TestClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := joinWithClock(t, s, "a", &cluster.Clock{Percent: 95, Wall: time.Hour})
		b := joinWithClock(t, s, "b", &cluster.Clock{Percent: 105, Wall: -time.Hour})
		_, la := a.claim(t, "srv.x")
		_, lb := b.claim(t, "srv.y")
		advance(time.Hour)
		if !a.Holds("srv.x") || !b.Holds("srv.y") || la.calls.Load()+lb.calls.Load() != 0 {
			t.Error("a key was lost")
		}
		if a.Judge(b.Self()) != cluster.Alive || b.Judge(a.Self()) != cluster.Alive {
			t.Error("a node that lives does not count as alive")
		}
		reports, err := a.Reports(t.Context())
		if err != nil || len(reports) != 2 || reports[1].ClockDifference != -2*time.Hour || reports[0].ClockDifference != 0 {
			t.Errorf("reports %+v, %v", reports, err)
		}
	})
}

// TestEngineIsWiped checks that after a wipe nodes have leases again soon, that claims are lost,
// and that nobody who was there before claims anything until all holders have noticed: also
// not a node that was cut off from the engine meanwhile.
//
// Guarantees: G-0076.2
func TestEngineIsWiped(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := clustertest.New(clustertest.Options{})
			a, b := join(t, s, "a"), join(t, s, "b")
			_, l := a.claim(t, "srv.x")
			advance(time.Minute) // the revisions of the next life are lower for a while
			if away {
				b.engine.Cut()
				advance(time.Minute)
			}
			a.engine.Faults(func(op clustertest.Operation) clustertest.Fault {
				return clustertest.Fault{Lose: op.Name == "update" || op.Name == "change" || op.Name == "create"} // a notices nothing
			})
			s.Wipe()
			b.engine.Heal()
			got := claimSoon(t, b, "srv.x")
			for began := time.Now(); len(got) == 0; {
				advance(100 * time.Millisecond)
				if b.Holds("srv.x") && a.Holds("srv.x") {
					t.Fatalf("two nodes hold the key %v after the wipe", time.Since(began))
				}
				if time.Since(began) > 30*time.Second {
					t.Fatal("the key cannot be claimed")
				}
			}
			a.engine.Faults(nil)
			advance(10 * time.Second)
			a.state(t, cluster.Ready)
			b.state(t, cluster.Ready)
			if l.calls.Load() != 1 || !b.Holds("srv.x") {
				t.Error("the claim was not lost, or not made again")
			}
			if a.Judge(b.Self()) != cluster.Alive || b.Judge(a.Self()) != cluster.Alive {
				t.Error("a node does not count as alive after the wipe")
			}
		})
	}
}

// claimSoon claims a key as soon as that is possible. The channel tells when it was.
func claimSoon(t *testing.T, n testNode, key string) <-chan time.Time {
	got := make(chan time.Time, 1)
	go func() {
		for {
			if _, err := n.Claim(t.Context(), key, nil, func(error) {}); err == nil {
				got <- time.Now()
				return
			}
			pause := time.NewTimer(100 * time.Millisecond)
			<-pause.C
		}
	}()
	return got
}

// TestLeasesAreDeleted checks that a node whose lease somebody has deleted, with all others, claims nothing that another node still believes in.
func TestLeasesAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		b.claim(t, "srv.x")
		b.engine.Freeze() // it hears nothing
		advance(time.Second)
		bucket := leases(t, a.engine)
		for key, err := range bucket.Keys(t.Context(), "") {
			got, getErr := bucket.Get(t.Context(), key)
			if err := errors.Join(err, getErr, bucket.Delete(t.Context(), key, got.Revision)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		release, err := a.Claim(t.Context(), "srv.x", nil, func(error) {})
		if err != nil || b.Holds("srv.x") {
			t.Fatalf("another node holds what was claimed: %t, %v", b.Holds("srv.x"), err)
		}
		if err := release(t.Context()); err != nil {
			t.Error(err)
		}
		b.engine.Thaw()
		advance(time.Minute)
	})
}

// TestRestartOfTheEngine checks that a restart which keeps its files ends no lease.
func TestRestartOfTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		was := a.Self()
		_, l := a.claim(t, "srv.x")
		s.Restart()
		advance(time.Minute)
		if !a.Holds("srv.x") || l.calls.Load() != 0 || a.Self() != was {
			t.Error("a restart has ended a lease")
		}
	})
}

// TestDeniedAndFull checks that a node whose permissions are removed, or whose engine has no
// room, holds its keys for their time, and is back after that.
func TestDeniedAndFull(t *testing.T) {
	for name, set := range map[string]func(*clustertest.Service, *clustertest.Engine, bool){
		"denied": func(_ *clustertest.Service, e *clustertest.Engine, on bool) { e.Deny(on) },
		"full":   func(s *clustertest.Service, _ *clustertest.Engine, on bool) { s.Full(on) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := clustertest.New(clustertest.Options{})
				a := join(t, s, "a")
				_, l := a.claim(t, "srv.x")
				set(s, a.engine, true)
				advance(16 * time.Second)
				a.state(t, cluster.Degraded)
				if !a.Holds("srv.x") {
					t.Error("the claim was given up early")
				}
				advance(10 * time.Second)
				a.state(t, cluster.Isolated)
				if a.Holds("srv.x") || l.calls.Load() != 1 {
					t.Error("the claim is still held")
				}
				set(s, a.engine, false)
				advance(5 * time.Second)
				a.state(t, cluster.Ready)
			})
		})
	}
}

// TestAnotherProcessTakesTheName checks that a process whose lease somebody else has got, as
// after an hour off the network, does not fight for it, and has it again when it is free.
//
// Guarantees: G-0076.5
func TestAnotherProcessTakesTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a, b := join(t, s, "a"), join(t, s, "b")
		was := a.Self()
		a.engine.Cut()
		advance(time.Hour)
		again := join(t, s, "a")
		a.engine.Heal()
		advance(time.Minute)
		a.state(t, cluster.Isolated)
		again.state(t, cluster.Ready)
		if a.Self() != was || b.Judge(was) != cluster.Dead || b.Judge(again.Self()) != cluster.Alive {
			t.Error("the wrong process counts as alive")
		}
		var pong any
		if err := b.Ask(t.Context(), "a", "ping", nil, &pong); err != nil {
			t.Errorf("the process that has the name does not answer: %v", err)
		}
		closeNode(t, again.Node)
		advance(5 * time.Second)
		a.state(t, cluster.Ready)
		if b.Judge(a.Self()) != cluster.Alive {
			t.Error("the first process does not count as alive")
		}
	})
}

// TestOnRenewal checks that each accepted renewal tells the new deadline, counted from its
// sending.
func TestOnRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.New(clustertest.Options{})
		a := join(t, s, "a")
		release, _ := a.claim(t, "srv.x")
		began := time.Now()
		var deadlines []time.Duration
		a.OnRenewal("srv.x", func(at time.Time) { deadlines = append(deadlines, at.Sub(began)) })
		a.OnRenewal("srv.y", func(time.Time) { t.Error("a key that is not held is renewed") })
		a.lag(0, 300*time.Millisecond)
		advance(11 * time.Second)
		want := []time.Duration{17 * time.Second, 22 * time.Second, 27 * time.Second}
		if len(deadlines) != len(want) || deadlines[0] != want[0] || deadlines[1] != want[1] || deadlines[2] != want[2] {
			t.Errorf("deadlines %v, want %v", deadlines, want)
		}
		if err := release(t.Context()); err != nil {
			t.Error(err)
		}
		advance(time.Minute)
		if len(deadlines) != len(want) {
			t.Error("a key that was released is renewed")
		}
	})
}
