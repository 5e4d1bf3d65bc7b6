package life

import (
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/mcpjson"
)

// What an entry says comes before what the file says for all, and "off" is something that it can say.
//
// Guarantees: G-0088.11
func TestRuleOf(t *testing.T) {
	const off = -1
	for _, c := range []struct {
		own, all mcpjson.Life
		want     Rule
	}{
		{mcpjson.Life{}, mcpjson.Life{}, Rule{}},
		{mcpjson.Life{Start: "demand"}, mcpjson.Life{}, Rule{true, demandIdle, 0}},
		{mcpjson.Life{}, mcpjson.Life{Start: "demand", IdleStop: time.Hour}, Rule{true, time.Hour, 0}},
		{mcpjson.Life{Start: "demand", IdleStop: off}, mcpjson.Life{IdleStop: time.Hour}, Rule{true, 0, 0}},
		{mcpjson.Life{Start: "eager", MaxLife: off}, mcpjson.Life{Start: "demand", MaxLife: time.Hour}, Rule{}},
		{mcpjson.Life{IdleStop: time.Minute}, mcpjson.Life{IdleStop: time.Hour, MaxLife: time.Hour}, Rule{false, time.Minute, time.Hour}},
	} {
		if got := RuleOf(c.own, c.all); got != c.want {
			t.Errorf("%+v in %+v: %+v, want %+v", c.own, c.all, got, c.want)
		}
	}
}

// A server ends as early as its rule says and no earlier, and one that is in use never does.
//
// Guarantees: G-0088.11
func TestEnds(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	started, used := now.Add(-2*time.Hour), now.Add(-time.Minute)
	for _, c := range []struct {
		rule  Rule
		inUse bool
		want  time.Duration // from now; 0: never
	}{
		{Rule{}, false, 0},
		{Rule{Idle: 5 * time.Minute}, false, 4 * time.Minute},
		{Rule{Idle: 5 * time.Minute}, true, 5 * time.Minute},
		{Rule{Idle: 10 * time.Second}, false, -50 * time.Second},
		{Rule{Longest: 3 * time.Hour}, false, time.Hour},
		{Rule{Longest: 3 * time.Hour}, true, time.Hour},
		{Rule{Longest: time.Hour}, false, -time.Hour},
		{Rule{Longest: time.Hour}, true, recheck},
		{Rule{Idle: 5 * time.Minute, Longest: time.Hour}, true, recheck},
		{Rule{Idle: 5 * time.Minute, Longest: 3 * time.Hour}, false, 4 * time.Minute},
	} {
		got := c.rule.Ends(started, used, c.inUse, now)
		if got.IsZero() != (c.want == 0) || c.want != 0 && !got.Equal(now.Add(c.want)) {
			t.Errorf("%+v in use: %t: %v, want %v from now", c.rule, c.inUse, got.Sub(now), c.want)
		}
	}
}

// Never is later than any time.
//
// Guarantees: G-0088.11
func TestEarlier(t *testing.T) {
	never, one := time.Time{}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range [][3]time.Time{{never, never, never}, {one, never, one}, {never, one, one}, {one, one.Add(1), one}, {one.Add(1), one, one}} {
		if got := Earlier(c[0], c[1]); got != c[2] {
			t.Errorf("of %v and %v: %v", c[0], c[1], got)
		}
	}
}

// One that does not run is not to be ended again and again, until it is started.
//
// Guarantees: G-0088.11
func TestWhatDoesNotRunIsNotEnded(t *testing.T) {
	var u Use
	u.Begin()
	rule, later := Rule{Idle: time.Minute}, time.Now().Add(time.Hour)
	if _, over := u.Look(rule, false, later); !over {
		t.Fatal("nobody uses it, and it goes on")
	}
	u.Ended(false)
	if next, over := u.Look(rule, false, later); over || !next.IsZero() {
		t.Errorf("it ends again at %v: %t", next, over)
	}
	u.Begin()
	if next, over := u.Look(rule, false, time.Now()); over || next.IsZero() {
		t.Errorf("once started, it ends at %v: %t", next, over)
	}
}
