//go:build unix

package sessions

import (
	"errors"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
)

// Copies of a session have a process each. They go on when only the session of their server ends, and end with their server, by an Apply
// that changes it, and by Close.
//
// Guarantees: G-0041.10
func TestCopies(t *testing.T) {
	s := newSet(t, Options{})
	const file, changed = `"a": $SELF{}, "b": $SELF{}`, `"a": $SELF{"env": {"SAID": "two"}}, "b": $SELF{}`
	yes := func() bool { return true }
	start := func(as string) *client.Session {
		t.Helper()
		if err := s.StartCopy(t.Context(), "a", as, yes); err != nil {
			t.Fatal(err)
		}
		session, running := s.Copy("a", as)
		if !running {
			t.Fatalf("%s does not run", as)
		}
		return session
	}
	are := func(want ...bool) {
		t.Helper()
		for i, as := range []string{"a 1", "a 2"} {
			if _, running := s.Copy("a", as); running != want[i] {
				t.Errorf("%s runs: %t", as, running)
			}
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(apply(t, s, parse(t, file), Changes{Started: []string{"a", "b"}}))
	first := start("a 1")
	start("a 2")
	if start("a 1").Conn() != first.Conn() {
		t.Error("one that runs was started again")
	}
	do(s.StopIf(t.Context(), "a", yes))
	do(apply(t, s, parse(t, file), Changes{}))
	are(true, true)
	do(s.Start(t.Context(), "a"))
	are(true, true)
	do(s.StopCopyIf(t.Context(), "a", "a 1", func() bool { return false }))
	are(true, true)
	do(s.StopCopyIf(t.Context(), "a", "a 2", yes))
	are(true, false)
	start("a 2")
	do(s.Restart(t.Context(), "a"))
	are(false, false)
	start("a 1")
	do(s.Stop(t.Context(), "a"))
	are(false, false)
	do(s.StartCopy(t.Context(), "a", "a 1", func() bool { return false }))
	are(false, false)
	do(s.Start(t.Context(), "a"))
	start("a 1")
	do(apply(t, s, parse(t, changed), Changes{Restarted: []string{"a"}}))
	are(false, false)
	start("a 1")
	do(s.StopIf(t.Context(), "a", yes)) // the session ends, and other settings come while only the copy runs
	do(apply(t, s, parse(t, file), Changes{Started: []string{"a"}}))
	are(false, false)
	start("a 1")
	do(apply(t, s, parse(t, `"b": $SELF{}`), Changes{Stopped: []string{"a"}}))
	are(false, false)
	if err := s.StartCopy(t.Context(), "a", "a 1", yes); err == nil {
		t.Error("a copy of no server")
	}
	do(apply(t, s, parse(t, file), Changes{Started: []string{"a"}}))
	start("a 1")
	do(s.Close(t.Context()))
	are(false, false)
	if err := s.StartCopy(t.Context(), "a", "a 1", yes); !errors.Is(err, client.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
