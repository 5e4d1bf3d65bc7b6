package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A key spends no more than its requests of a minute at once, and they come back one after the other, whatever others spend; what is kept of
// them is a minute's.
//
// Guarantees: G-0100.1
func TestRates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Rates[string]
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		perMinute := rapid.IntRange(1, 5).Draw(t, "per minute")
		has := map[string]time.Duration{} // a model: the time for which each has requests, a minute at most
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) {
				d := time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second
				now = now.Add(d)
				for k := range has {
					has[k] = min(has[k]+d, time.Minute)
				}
			},
			"spend": func(t *rapid.T) {
				k := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key")
				if _, known := has[k]; !known {
					has[k] = time.Minute
				}
				interval := time.Minute / time.Duration(perMinute)
				want := max(interval-has[k], 0)
				if want == 0 {
					has[k] -= interval
				}
				if got := r.Spend(now, k, perMinute); got != want {
					t.Fatalf("%s waits for %s, want %s", k, got, want)
				}
			},
		})
	})
}

// A call that is refused because of its tool takes none of what its client may ask of all servers.
//
// Guarantees: G-0100.1
func TestACallThatIsRefusedIsNotSpent(t *testing.T) {
	var c Clients
	rule := &Rule{PerMinute: 3, ToolRates: map[string]int{"t": 1}}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, want := range []bool{true, false, false, false} {
		if got := c.spend(now, rule, Request{Client: "a", Server: "s", Tool: "t"}) == nil; got != want {
			t.Errorf("call %d: it passes: %t", i, got)
		}
	}
	for i, want := range []bool{true, true, false} {
		if got := c.spend(now, rule, Request{Client: "a", Server: "s", Tool: "other"}) == nil; got != want {
			t.Errorf("another tool, call %d: it passes: %t", i, got)
		}
	}
}

// Clients that left take no memory, and those that come when it is full share what is left.
//
// Guarantees: G-0100.4
func TestRatesAreBounded(t *testing.T) {
	var r Rates[string]
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 4 * mostRated {
		r.Spend(now, fmt.Sprint(i), 1)
	}
	if len(r.full) > mostRated+1 {
		t.Errorf("%d are kept", len(r.full))
	}
	if r.Spend(now, "late", 1) == 0 {
		t.Error("who came when it was full has a rate of its own")
	}
	kept := len(r.full)
	if r.giveBack("late", 1); len(r.full) != kept {
		t.Error("who came when it was full gets a place by what is given back")
	}
	if now = now.Add(2 * time.Minute); r.Spend(now, "late", 1) != 0 || len(r.full) != 1 {
		t.Errorf("after they left, %d are kept", len(r.full))
	}
}

// Guarantees: G-0100.2
func TestPlaces(t *testing.T) {
	var p Places
	for i, c := range []struct {
		key  string
		most int
		want bool
	}{{"a", 2, true}, {"a", 2, true}, {"a", 2, false}, {"b", 1, true}} {
		if p.Enter(c.key, c.most) != c.want {
			t.Fatalf("%d: %v", i, c)
		}
	}
	p.Leave("a")
	if !p.Enter("a", 2) || p.Enter("a", 2) {
		t.Fatal("a place that was given back is free once")
	}
	p.Leave("a")
	p.Leave("a")
	p.Leave("b")
	if len(p.held) != 0 {
		t.Errorf("clients that hold nothing are kept: %v", p.held)
	}
}

// An asker lets clients ask for places, each on a goroutine of its own.
type asker struct {
	Turns
	answers chan answer
}

type answer struct {
	client string
	err    error
}

func newAsker() *asker { return &asker{answers: make(chan answer, 1000)} }

// ask asks, and returns when the client has its answer or waits.
func (a *asker) ask(ctx context.Context, client string, places int) {
	go func() { a.answers <- answer{client, a.Enter(ctx, client, places)} }()
	synctest.Wait()
}

// got returns the answers that have come since it was called last.
func (a *asker) got() (all []answer) {
	synctest.Wait()
	for range len(a.answers) {
		all = append(all, <-a.answers)
	}
	return all
}

// is fails a test if something is left of those who have gone.
func (a *asker) is(t *testing.T, running int) {
	t.Helper()
	if a.running != running || a.Waiting() != 0 || len(a.of) != 0 || len(a.next) != 0 {
		t.Errorf("%d run, and %d wait: %v, %v; want %d and nobody", a.running, a.Waiting(), a.of, a.next, running)
	}
}

// Of the requests of one client, the one that has waited longest is next.
//
// Guarantees: G-0100.3
func TestTurnsOfAClientAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		var order []int
		for i := range 4 {
			go func() {
				if err := turns.Enter(t.Context(), "a", 1); err != nil {
					t.Error(err)
				}
				order = append(order, i)
			}()
			synctest.Wait()
		}
		for range 4 {
			turns.Leave()
			synctest.Wait()
		}
		if !slices.Equal(order, []int{0, 1, 2, 3}) {
			t.Errorf("the order was %v", order)
		}
	})
}

// However many requests of one client wait, another one's is next but one.
//
// Guarantees: G-0100.3
func TestClientsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker()
		for _, client := range []string{"a", "a", "a", "a", "b", "c", "b"} {
			a.ask(t.Context(), client, 1)
		}
		if a.Waiting() != 6 {
			t.Errorf("%d wait", a.Waiting())
		}
		order := ""
		for range 7 {
			for _, answer := range a.got() {
				if order += answer.client; answer.err != nil {
					t.Error(answer)
				}
			}
			a.Leave()
		}
		if order != "aabcaba" {
			t.Errorf("the order was %s", order)
		}
		a.is(t, 0)
	})
}

// More places, when the file gives them, are used at the next request; fewer, as soon as those who have one leave.
//
// Guarantees: G-0100.3
func TestPlacesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker()
		for range 3 {
			a.ask(t.Context(), "a", 1)
		}
		a.ask(t.Context(), "b", 3)
		if ran := len(a.got()); ran != 3 {
			t.Errorf("%d run in three places", ran)
		}
		a.ask(t.Context(), "c", 1)
		a.Leave()
		a.Leave()
		if a.running != 1 || a.Waiting() != 2 {
			t.Errorf("%d run, %d wait; there is one place now", a.running, a.Waiting())
		}
		a.Leave()
		if a.running != 1 || len(a.got()) != 1 {
			t.Error("the last place is not given to who waits")
		}
		a.Leave()
		a.got()
		a.is(t, 1)
	})
}

// Who waits gives up when its client does or after a minute, and too many do not wait at all. Nothing of them is left.
//
// Guarantees: G-0100.3, G-0100.4
func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker()
		a.ask(t.Context(), "a", 1)
		ctx, cancel := context.WithCancel(t.Context())
		a.ask(ctx, "b", 1)
		cancel()
		for range mostWaitingOfOne + 1 {
			a.ask(t.Context(), "a", 1)
		}
		all := a.got()
		if len(all) != 3 || all[0].err != nil || !errors.Is(all[1].err, context.Canceled) || !errors.Is(all[2].err, ErrCrowded) {
			t.Fatalf("%v", all)
		}
		<-time.NewTimer(longestTurn - 1).C
		if len(a.got()) != 0 {
			t.Error("one gave up before a minute was over")
		}
		<-time.NewTimer(1).C
		all = a.got()
		if len(all) != mostWaitingOfOne || !errors.Is(all[0].err, ErrLate) {
			t.Errorf("%d have given up: %v", len(all), all)
		}
		a.is(t, 1)
	})
}

// So many requests of one client wait, and so many of all: one more does not, whosever it is, until one has left.
//
// Guarantees: G-0100.4
func TestHowManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker()
		ctx, cancel := context.WithCancel(t.Context())
		a.ask(ctx, "first", 1)
		a.got()
		for i := range mostWaiting {
			a.ask(ctx, fmt.Sprint(i/mostWaitingOfOne), 1)
		}
		if all := a.got(); len(all) != 0 || a.Waiting() != mostWaiting {
			t.Fatalf("%d wait, and %d do not: %v", a.Waiting(), len(all), all)
		}
		for _, client := range []string{"0", "another"} {
			a.ask(ctx, client, 1)
			if all := a.got(); len(all) != 1 || !errors.Is(all[0].err, ErrCrowded) {
				t.Errorf("one more of %s: %v", client, all)
			}
		}
		a.Leave()
		a.ask(ctx, "another", 1)
		if all := a.got(); len(all) != 1 || all[0].err != nil {
			t.Errorf("when one has left: %v", all)
		}
		cancel()
		for n := 0; n < mostWaiting; {
			got := len(a.got())
			if got == 0 {
				t.Fatalf("%d of those who waited have given up", n)
			}
			n += got
		}
		a.is(t, 1)
	})
}

// A request whose turn comes at the moment at which it gives up has its place, or leaves it to others.
//
// Guarantees: G-0100.3
func TestATurnComesAtTheLastMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker()
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			a.ask(t.Context(), "a", 1)
			a.ask(ctx, "b", 1)
			cancel()
			a.Leave()
			for _, answer := range a.got() {
				if answer.client == "b" && answer.err == nil {
					a.Leave()
				}
			}
			a.is(t, 0)
		}
	})
}

// Whatever requests come, leave and give up: no more run than there are places, and nobody waits while one is free.
//
// Guarantees: G-0100.3
func TestTurnsAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			a, running, places := newAsker(), 0, rapid.IntRange(1, 3).Draw(rt, "places")
			var cancels []context.CancelFunc
			for range rapid.IntRange(1, 30).Draw(rt, "steps") {
				switch step := rapid.IntRange(0, 2).Draw(rt, "step"); {
				case step == 0 && running > 0:
					running--
					a.Leave()
				case step == 1 && len(cancels) > 0:
					cancels[rapid.IntRange(0, len(cancels)-1).Draw(rt, "who gives up")]()
				default:
					ctx, cancel := context.WithCancel(t.Context())
					cancels = append(cancels, cancel)
					a.ask(ctx, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "client"), places)
				}
				for _, answer := range a.got() {
					if answer.err == nil {
						running++
					}
				}
				if running != a.running || running > places || a.Waiting() > 0 && running < places {
					rt.Fatalf("%d of %d run, %d are counted, and %d wait", running, places, a.running, a.Waiting())
				}
			}
			for _, cancel := range cancels {
				cancel()
			}
		})
	})
}
