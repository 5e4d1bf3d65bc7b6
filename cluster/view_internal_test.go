package cluster

import (
	"fmt"
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
	last := owner{fmt.Sprint("n", 3*maxGone-1), "e", 1}
	if v.judge(0, true, last) != dead {
		t.Error("the newest end is forgotten")
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
	v.judge(time.Hour, true, owner{"c", "e", 1})
	if len(v.asked) != 1 {
		t.Errorf("the view looks for %d owners an hour later", len(v.asked))
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
