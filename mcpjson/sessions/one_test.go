//go:build unix

package sessions

import (
	"errors"
	"testing"

	"github.com/bowline-mcp/bowline/mcpjson"
)

// A server that was stopped stays so until somebody starts it, or the file says something else of it.
//
// Guarantees: G-0041.8
func TestOneServerIsStoppedAndStarted(t *testing.T) {
	s := newSet(t, Options{})
	const file, changed = `"a": $SELF{}, "b": $SELF{}`, `"a": $SELF{"env": {"SAID": "two"}}, "b": $SELF{}`
	failOn := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	isStopped := func() {
		t.Helper()
		if _, running := s.Session("a"); running {
			t.Fatal("it runs")
		}
	}
	failOn(apply(t, s, parse(t, file), Changes{Started: []string{"a", "b"}}))
	first, other := processOf(t, s, "a"), processOf(t, s, "b")
	failOn(s.Restart(t.Context(), "a"))
	second := processOf(t, s, "a")
	if second.Pid == first.Pid {
		t.Error("it was not restarted")
	}
	failOn(s.Start(t.Context(), "a"))
	if processOf(t, s, "a").Pid != second.Pid {
		t.Error("one that runs was started again")
	}
	failOn(s.Stop(t.Context(), "a"))
	isStopped()
	failOn(apply(t, s, parse(t, file), Changes{}))
	isStopped()
	failOn(s.Start(t.Context(), "a"))
	processOf(t, s, "a")
	failOn(s.Stop(t.Context(), "a"))
	failOn(apply(t, s, parse(t, changed), Changes{Started: []string{"a"}}))
	processOf(t, s, "a")
	failOn(s.Stop(t.Context(), "a"))
	failOn(apply(t, s, parse(t, `"b": $SELF{}`), Changes{}))
	failOn(apply(t, s, parse(t, changed), Changes{Started: []string{"a"}}))
	if processOf(t, s, "b").Pid != other.Pid {
		t.Error("the other server was touched")
	}
	for _, act := range []func() error{
		func() error { return s.Stop(t.Context(), "c") }, func() error { return s.Start(t.Context(), "c") }, func() error { return s.Restart(t.Context(), "c") },
	} {
		if err := act(); !errors.Is(err, mcpjson.ErrNotFound) {
			t.Errorf("a server that is not there: %v", err)
		}
	}
}
