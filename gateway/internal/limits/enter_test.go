package limits

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A rule limits nothing of which it says nothing.
func TestNoLimits(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		none bool
	}{
		{Rule{}, true}, {Rule{ToolRates: map[string]int{}}, true}, {Rule{PerMinute: 1}, false}, {Rule{InFlight: 1}, false}, {Rule{Concurrency: 1}, false},
		{Rule{ToolRates: map[string]int{"t": 1}}, false},
	} {
		if c.rule.IsNone() != c.none {
			t.Errorf("%+v limits nothing: %t", c.rule, !c.none)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var c Clients
		var at Server
		for range 1000 {
			leave, refused := c.Enter(t.Context(), &at, &Rule{}, Request{"ada", "s", "t"})
			if refused != nil {
				t.Fatalf("without a limit it is refused: %+v", refused)
			}
			leave()
		}
		if at.Refused.Load() != 0 || len(c.requests.full)+len(c.calls.full)+len(c.underWay.held) != 0 {
			t.Errorf("without a limit something is kept: %+v", &c)
		}
	})
}

// A client makes so many requests in a minute to all servers together, whatever they are, and a refusal says when the next one may be made.
//
// Guarantees: G-0100.1
func TestRequestsInAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clients
		var one, other Server
		rule := &Rule{PerMinute: 2}
		for _, r := range []Request{{"ada", "one", "t"}, {"ada", "one", ""}} {
			leave, refused := c.Enter(t.Context(), &one, rule, r)
			if refused != nil {
				t.Fatalf("%+v: %+v", r, refused)
			}
			leave()
		}
		_, refused := c.Enter(t.Context(), &other, rule, Request{"ada", "other", ""})
		if refused == nil || refused.After != 30*time.Second || refused.Why != "a client may make 2 requests in a minute" || other.Refused.Load() != 1 || one.Refused.Load() != 0 {
			t.Errorf("the third: %+v; refused at one %d, at the other %d", refused, one.Refused.Load(), other.Refused.Load())
		}
		if _, refused := c.Enter(t.Context(), &one, rule, Request{"bob", "one", ""}); refused != nil {
			t.Errorf("another client: %+v", refused)
		}
	})
}

// A tool has a rate of its own or that of every tool, each client and each server for itself; what calls no tool has none.
//
// Guarantees: G-0100.1
func TestCallsOfATool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clients
		var at Server
		rule := &Rule{ToolRates: map[string]int{"slow": 1, "*": 2, "none": 0}}
		enter := func(r Request) (refused *Refusal) {
			leave, refused := c.Enter(t.Context(), &at, rule, r)
			if refused == nil {
				leave()
			}
			return refused
		}
		for r, most := range map[Request]int{
			{"ada", "s", "slow"}: 1, {"bob", "s", "slow"}: 1, {"ada", "other", "slow"}: 1, {"ada", "s", "any"}: 2, {"ada", "s", "more"}: 2, {"ada", "s", "none"}: 2,
		} {
			for i := range most + 1 {
				refused := enter(r)
				if (refused == nil) != (i < most) {
					t.Errorf("%+v, call %d: %+v, want %d calls", r, i+1, refused, most)
				}
				if refused != nil && (!strings.HasPrefix(refused.Why, "a client may call this tool ") || refused.After != time.Minute/time.Duration(most)) {
					t.Errorf("%+v: %+v", r, refused)
				}
			}
		}
		for range 10 {
			if refused := enter(Request{"ada", "s", ""}); refused != nil {
				t.Errorf("what calls no tool: %+v", refused)
			}
		}
		if n := at.Refused.Load(); n != 6 {
			t.Errorf("%d were refused, want 6", n)
		}
	})
}

// A client has so many requests under way, at all servers together. A place is free again when its request leaves, also if the rule is another one then, and
// if the request has waited for the server in vain.
//
// Guarantees: G-0100.2
func TestRequestsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Clients
		var at, busy Server
		rule := &Rule{InFlight: 2}
		ada := Request{"ada", "s", ""}
		first, _ := c.Enter(t.Context(), &at, rule, ada)
		second, _ := c.Enter(t.Context(), &at, rule, ada)
		_, refused := c.Enter(t.Context(), &busy, rule, Request{"ada", "busy", ""})
		if refused == nil || refused.After != 0 || refused.Why != "at most 2 requests of one client may be under way, and as many are" {
			t.Errorf("the third: %+v", refused)
		}
		if leave, refused := c.Enter(t.Context(), &at, &Rule{}, ada); refused != nil {
			t.Errorf("without a limit: %+v", refused)
		} else if leave(); c.underWay.held["ada"] != 2 {
			t.Errorf("what was not counted has given a place back: %v", c.underWay.held)
		}
		*rule = Rule{}
		first()
		second()
		if len(c.underWay.held) != 0 {
			t.Errorf("places are kept: %v", c.underWay.held)
		}

		rule = &Rule{InFlight: 2, Concurrency: 1}
		leave, _ := c.Enter(t.Context(), &busy, rule, ada)
		_, refused = c.Enter(t.Context(), &busy, rule, ada) // it waits for a minute
		if refused == nil || refused.Why != "at most 1 requests may be under way at it: it was busy for a minute" || refused.After != 0 {
			t.Errorf("at a busy server: %+v", refused)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, refused = c.Enter(ctx, &busy, rule, ada); refused == nil || !strings.Contains(refused.Why, context.Canceled.Error()) {
			t.Errorf("after the end of its context: %+v", refused)
		}
		if c.underWay.held["ada"] != 1 || busy.Waiting() != 0 || busy.running != 1 {
			t.Errorf("%v under way, %d wait, %d run, want one, which runs", c.underWay.held, busy.Waiting(), busy.running)
		}
		leave()
		if len(c.underWay.held) != 0 || busy.running != 0 {
			t.Errorf("%v under way, %d run, want none", c.underWay.held, busy.running)
		}
	})
}
