package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestViewIsBounded checks what a view remembers of nodes and epochs that come and go.
func TestViewIsBounded(t *testing.T) {
	v := newView(owner{Node: "self", Epoch: "e"})
	revision := uint64(0)
	for i := range 3 * maxGone {
		name := fmt.Sprint("n", i)
		v.show(name, &owner{name, "e", 1}, revision+1)
		v.hide(0, name, revision+2)
		revision += 2
	}
	if len(v.nodes) != maxGone {
		t.Errorf("%d nodes are remembered, want %d", len(v.nodes), maxGone)
	}
	for i := 2 * maxGone; i < 3*maxGone; i++ {
		if v.judge(0, true, owner{fmt.Sprint("n", i), "e", 1}) != dead {
			t.Fatalf("the end of node %d is forgotten", i)
		}
	}
	for i := range 3 * maxEnded {
		v.show("a", &owner{"a", fmt.Sprint("e", i), 1}, revision+1)
		revision++
	}
	if s := v.nodes["a"]; len(s.ended) != maxEnded || v.judge(0, true, owner{"a", fmt.Sprint("e", 3*maxEnded-2), 1}) != dead {
		t.Errorf("%d epochs are remembered", len(v.nodes["a"].ended))
	}
	for i := range 3 * maxAsked {
		v.judge(time.Second, true, owner{"b", fmt.Sprint("e", i), 1})
	}
	if len(v.asked) != maxAsked {
		t.Errorf("the view looks for %d owners, want %d", len(v.asked), maxAsked)
	}
	if v.judge(time.Second+3*leaseTTL, true, owner{"c", "e", 1}); len(v.asked) != maxAsked {
		t.Errorf("the view looks for %d owners a minute later, want %d", len(v.asked), maxAsked)
	}
	v.judge(time.Second+3*leaseTTL+1, true, owner{"c", "e", 1})
	if len(v.asked) != 1 {
		t.Errorf("the view looks for %d owners after that", len(v.asked))
	}
}

// TestTheFirstEndIsForgottenFirst checks that the ends count for what a view forgets, and not what was shown before.
func TestTheFirstEndIsForgottenFirst(t *testing.T) {
	v := newView(owner{Node: "self", Epoch: "e"})
	name := func(i int) string { return fmt.Sprint("n", i) }
	for i := range maxGone + 1 {
		v.show(name(i), &owner{name(i), "e", 1}, uint64(i+1))
	}
	for i := maxGone; i >= 0; i-- {
		v.hide(0, name(i), 2*maxGone)
	}
	if v.nodes[name(maxGone)] != nil || v.nodes[name(0)] == nil {
		t.Error("it is not the node that has ended first that is forgotten")
	}
}

// TestEndsAreRememberedOnce checks that neither an end that is shown again, nor one of a lease
// that cannot be read, pushes out others.
func TestEndsAreRememberedOnce(t *testing.T) {
	v := newView(owner{Node: "self", Epoch: "e"})
	v.show("a", &owner{"a", "e1", 1}, 1)
	v.hide(0, "a", 2)
	for revision := uint64(3); revision < 60; revision += 3 {
		v.show("a", &owner{"a", "e1", 1}, revision) // an older state is shown again
		v.hide(0, "a", revision+1)
		v.show("a", nil, revision+2)
	}
	v.hide(0, "a", 60)
	if n := len(v.nodes["a"].ended); n != 1 || v.judge(0, true, owner{"a", "e1", 1}) != dead {
		t.Errorf("%d ends are remembered", n)
	}
}

// TestWhatIsShown checks what a view concludes from values and ends in any order.
//
// Guarantees: G-0076.4
func TestWhatIsShown(t *testing.T) {
	e1, e2 := owner{"a", "e1", 1}, owner{"a", "e2", 1}
	type verdicts [2]verdict // on e1 and e2
	for name, c := range map[string]struct {
		show func(v *view)
		want verdicts
	}{
		"an end, and an older list":       {func(v *view) { v.show("a", &e1, 10); v.hide(0, "a", 11); v.hide(0, "a", 0) }, verdicts{dead, unsure}},
		"an end, and an older value":      {func(v *view) { v.show("a", &e1, 10); v.hide(0, "a", 11); v.show("a", &e1, 10) }, verdicts{dead, unsure}},
		"an end, and an unreadable value": {func(v *view) { v.show("a", &e1, 10); v.hide(0, "a", 11); v.show("a", nil, 12) }, verdicts{dead, unsure}},

		"nothing":                             {func(*view) {}, verdicts{unsure, unsure}},
		"a value":                             {func(v *view) { v.show("a", &e1, 10) }, verdicts{alive, unsure}},
		"an end":                              {func(v *view) { v.show("a", &e1, 10); v.hide(0, "a", 11) }, verdicts{dead, unsure}},
		"an end without a value":              {func(v *view) { v.hide(0, "a", 11) }, verdicts{unsure, unsure}},
		"an end that is not later":            {func(v *view) { v.show("a", &e1, 10); v.hide(0, "a", 10) }, verdicts{unsure, unsure}},
		"an earlier end, after a renewal":     {func(v *view) { v.show("a", &e1, 10); v.show("a", &e1, 12); v.hide(0, "a", 11) }, verdicts{unsure, unsure}},
		"an end after one without a revision": {func(v *view) { v.show("a", &e1, 10); v.hide(0, "a", 0); v.hide(0, "a", 11) }, verdicts{dead, unsure}},
		"a value after one without":           {func(v *view) { v.show("a", &e1, 10); v.hide(0, "a", 0); v.show("a", &e1, 10) }, verdicts{alive, unsure}},
		"another epoch":                       {func(v *view) { v.show("a", &e1, 10); v.show("a", &e2, 11) }, verdicts{dead, alive}},
		"another epoch in an older state":     {func(v *view) { v.show("a", &e2, 10); v.show("a", &e1, 9) }, verdicts{alive, unsure}},
		"another epoch at the same revision":  {func(v *view) { v.show("a", &e2, 10); v.show("a", &e1, 10) }, verdicts{alive, unsure}},
		"one that cannot be read":             {func(v *view) { v.show("a", &e1, 10); v.show("a", nil, 11) }, verdicts{unsure, unsure}},
		"one that could not be read":          {func(v *view) { v.show("a", nil, 10); v.show("a", &e1, 11) }, verdicts{alive, unsure}},
		"a denial":                            {func(v *view) { v.show("a", &e1, 10); v.deny(e1) }, verdicts{dead, unsure}},
		"a denial, and an older value":        {func(v *view) { v.show("a", &e1, 10); v.deny(e1); v.show("a", &e1, 10) }, verdicts{dead, unsure}},
		"a denial, and a renewal":             {func(v *view) { v.show("a", &e1, 10); v.deny(e1); v.show("a", &e1, 11) }, verdicts{alive, unsure}},
		"a denial of another epoch":           {func(v *view) { v.show("a", &e1, 10); v.deny(e2) }, verdicts{alive, unsure}},
		"a denial of one that is missing":     {func(v *view) { v.show("a", &e1, 10); v.hide(0, "a", 0); v.deny(e1) }, verdicts{dead, unsure}},
		"a denial of one that was not seen":   {func(v *view) { v.deny(e1) }, verdicts{unsure, unsure}},
		"a denial of one that has ended":      {func(v *view) { v.show("a", &e1, 10); v.hide(0, "a", 11); v.deny(e1) }, verdicts{dead, unsure}},
	} {
		v := newView(owner{Node: "self", Epoch: "e"})
		c.show(&v)
		if got := (verdicts{v.judge(0, true, e1), v.judge(0, true, e2)}); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if got := (verdicts{v.judge(0, false, e1), v.judge(0, false, e2)}); got != (verdicts{}) {
			t.Errorf("%s: %v without an own lease", name, got)
		}
		gone := c.want[0] == dead && c.want[1] != alive && name != "an end, and an unreadable value"
		if s := v.nodes["a"]; s != nil && s.present() != slices.Contains([]string{
			"a value", "an end that is not later", "an earlier end, after a renewal", "a value after one without", "another epoch",
			"another epoch in an older state", "another epoch at the same revision", "one that could not be read", "a denial, and a renewal", "a denial of another epoch",
		}, name) {
			t.Errorf("%s: present %v", name, s.present())
		}
		if v.gone(0, true, "a") != gone || v.gone(0, false, "a") || v.gone(0, true, "self") {
			t.Errorf("%s: gone %v, want %v", name, !gone, gone)
		}
	}
}

// TestHowLongAViewLooks checks when a view that does not see an owner calls it dead, and what
// begins that time anew.
//
// Guarantees: G-0076.4
func TestHowLongAViewLooks(t *testing.T) {
	o, other := owner{"a", "e1", 1}, owner{"a", "e2", 1}
	revision := uint64(100)
	v := newView(owner{Node: "self", Epoch: "e"})
	confirm := func(sent instant, shownFirst bool) {
		if revision++; shownFirst {
			v.showOwn(revision)
			v.renewed(sent, revision)
		} else {
			v.renewed(sent, revision)
			v.showOwn(revision)
		}
	}
	want := func(why string, want verdict) {
		t.Helper()
		if got := v.judge(time.Minute, true, o); got != want {
			t.Errorf("%s: %v, want %v", why, got, want)
		}
	}
	want("first asked at a minute", unsure)
	v.show("b", &owner{"b", "x", 1}, 50)
	confirm(time.Minute+leaseTTL-1, true)
	want("a renewal that was sent too early", unsure)
	v.renewed(time.Minute+leaseTTL, revision+1)
	want("a renewal that was not shown", unsure)
	v.showOwn(revision)
	want("an older renewal was shown", unsure)
	confirm(time.Minute+leaseTTL, false)
	want("a renewal that was shown", dead)

	v.show("a", &o, 10)
	want("it is seen", alive)
	v.show("a", &other, 9)
	want("an older state is shown", unsure)
	v.hide(2*time.Minute, "a", 0)
	v.show("a", &o, 10)
	v.hide(2*time.Minute, "a", 0)
	confirm(2*time.Minute+leaseTTL-1, true)
	want("it is missing", unsure)
	v.hide(3*time.Minute, "a", 10)
	confirm(2*time.Minute+leaseTTL, true)
	want("it is missing for long enough, and was not shown meanwhile", dead)
	if !v.gone(3*time.Minute, true, "a") {
		t.Error("the name is not gone")
	}
}

// TestOwnName checks the verdicts on processes that have, or had, the name of this node.
func TestOwnName(t *testing.T) {
	v := newView(owner{Node: "self", Epoch: "e"})
	for _, holding := range []bool{true, false} {
		if v.judge(0, holding, owner{"self", "e", 7}) != alive {
			t.Errorf("with a lease, %v: this process does not count as alive", holding)
		}
		if before := v.judge(0, holding, owner{"self", "d", 1}); (before == dead) != holding || before == alive {
			t.Errorf("with a lease, %v: %v on the process before", holding, before)
		}
	}
}

// TestTermsOfOneEpoch checks which terms of a process have ended.
func TestTermsOfOneEpoch(t *testing.T) {
	v := newView(owner{Node: "self", Epoch: "e"})
	v.show("a", &owner{"a", "e", 2}, 10)
	want := func(term uint64, want verdict) {
		t.Helper()
		if got := v.judge(0, true, owner{"a", "e", term}); got != want {
			t.Errorf("term %d: %v, want %v", term, got, want)
		}
	}
	want(1, alive) // the same process: what it owned before it may be in doubt, but it lives
	want(2, alive)
	want(3, alive)
	v.hide(0, "a", 11)
	want(1, dead)
	want(2, dead)
	want(3, unsure) // made since, and not shown yet
	v.show("a", &owner{"a", "e", 2}, 10)
	want(2, dead) // an older state is shown again
	v.show("a", &owner{"a", "e", 3}, 12)
	want(2, dead)
	want(3, alive)
}

// TestChallenges checks how long a challenge is accepted, and that a request is accepted once.
//
// Guarantees: G-0076.6
func TestChallenges(t *testing.T) {
	made := 0
	random := func() string { made++; return fmt.Sprint("c", made) }
	var c challenges
	late := challenges{}
	if old := late.present(time.Hour, random); late.present(time.Hour+challengeFresh-1, random) != old || late.present(time.Hour+challengeKept+1, random) == old || len(late.made) != 1 {
		t.Error("a challenge lasts too long, or not long enough")
	}
	made = 0
	first := c.present(0, random)
	if c.present(challengeFresh-1, random) != first || c.present(challengeFresh, random) == first {
		t.Error("a new challenge comes too early or too late")
	}
	for _, is := range []struct {
		at       instant
		text, id string
		want     bool
	}{
		{challengeFresh, first, "1", true},
		{challengeFresh, first, "1", false},
		{challengeFresh, first, "", false},
		{challengeFresh, "c9", "2", false},
		{challengeFresh, "", "2", false},
		{challengeFresh, "c2", "2", true},
		{challengeKept, first, "3", true},
		{challengeKept + 1, first, "4", false},
		{challengeKept + 1, "c2", "2", false},
		{challengeKept + 1, "c2", "5", true},
	} {
		if got := c.accept(is.at, is.text, is.id); got != is.want {
			t.Errorf("%v at %v: %v", is, is.at, got)
		}
	}
	kept := challenges{}
	text := kept.present(0, random)
	if !kept.accept(0, text, "1") || kept.present(challengeKept, random) == text || kept.accept(challengeKept, text, "1") || !kept.accept(challengeKept, text, "2") {
		t.Error("a request is done twice at the end of its challenge, or not at all")
	}
	accepted := 0
	for i := range 2 * maxSeen {
		if c.accept(challengeKept+1, "c2", fmt.Sprint("x", i)) {
			accepted++
		}
	}
	if accepted != maxSeen-4 || len(c.seen) != maxSeen {
		t.Errorf("%d requests were accepted, %d are remembered", accepted, len(c.seen))
	}
	at := 3 * challengeKept
	if !c.accept(at, c.present(at, random), "new") || len(c.seen) != 1 || len(c.made) != 1 {
		t.Errorf("%d requests and %d challenges are remembered", len(c.seen), len(c.made))
	}
}
