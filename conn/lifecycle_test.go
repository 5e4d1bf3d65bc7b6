package conn

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/looplab/fsm"
)

var update = flag.Bool("update", false, "rewrite docs/design/STATE_TRANSITIONS.md")

var (
	states   = []State{Starting, Initializing, Ready, Backoff, Closing}
	triggers = []trigger{opened, handshaken, lost, retryDue, closed}
)

// TestEveryTriggerInEveryState holds the whole table against a second one,
// written by hand: a state that is missing refuses the trigger.
//
// Guarantees: G-0001.1, G-0001.2
func TestEveryTriggerInEveryState(t *testing.T) {
	want := map[State]map[trigger]State{
		Starting:     {opened: Initializing, lost: Backoff, closed: Closing},
		Initializing: {handshaken: Ready, lost: Backoff, closed: Closing},
		Ready:        {lost: Backoff, closed: Closing},
		Backoff:      {retryDue: Starting, closed: Closing},
		Closing:      {},
	}
	for _, from := range states {
		for _, given := range triggers {
			c := newCore(initiator, sharedMachines(), defaults(), plain{})
			c.current = from
			to, allowed := want[from][given]
			if !allowed {
				to = from
			}
			if got := c.admit(given, Reason{}); got != allowed || c.state() != to || len(c.out) > 0 != allowed {
				t.Errorf("%s in %s: admitted %v, now %s with %d effects; want %v, %s", given, from, got, c.state(), len(c.out), allowed, to)
			}
		}
	}
}

// TestMachinesMoveAsTheyAreAsked has machines of looplab/fsm make every move, and
// holds against them what the shared ones say, which are never moved.
//
// Guarantees: G-0001.1
func TestMachinesMoveAsTheyAreAsked(t *testing.T) {
	for _, from := range states {
		for _, given := range triggers {
			moved := newMachine(from)
			err := moved.Event(t.Context(), string(given))
			to, ok := sharedMachines().next(from, given)
			if ok != (err == nil) || to != State(moved.Current()) {
				t.Errorf("%s in %s: said %v, %s; the machine moves to %s, %v", given, from, ok, to, moved.Current(), err)
			}
			if sharedMachines()[from].Current() != string(from) {
				t.Errorf("the shared machine of %s was moved", from)
			}
		}
	}
}

// TestTableHasNoRowTwice guards against looplab/fsm, where a later row for the
// same trigger and source silently replaces an earlier one.
func TestTableHasNoRowTwice(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range lifecycle {
		if seen[row.Name] {
			t.Errorf("%s leads to two states", row.Name)
		}
		seen[row.Name] = true
		for _, from := range row.Src {
			key := row.Name + " in " + from
			if seen[key] {
				t.Errorf("%s has two rows", key)
			}
			seen[key] = true
		}
	}
}

// TestStateTransitionsPageIsFresh compares the page with the table. With
// -update it rewrites it.
//
// Guarantees: G-0001.1
func TestStateTransitionsPageIsFresh(t *testing.T) {
	const file = "../docs/design/STATE_TRANSITIONS.md"
	want := stateTransitionsPage(t)
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is stale; run make docs (-want +got):\n%s", file, diff)
	}
}

func stateTransitionsPage(t *testing.T) string {
	diagram, err := fsm.VisualizeForMermaidWithGraphType(newMachine(Starting), fsm.StateDiagram)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# The states of a connection

Generated from the table in conn/lifecycle.go; `+"`make docs`"+` rewrites it. What the states mean is
decided in [ADR-0001](../adr/0001-state-machine.md). An initiator begins in %s, an acceptor, which
is handed its link, in %s. %s is terminal.

`+"```mermaid\n%s```\n\n", Starting, Initializing, Closing, diagram)
	b.WriteString("Every trigger in every state. A dash: the trigger is refused and nothing changes.\n\n| State |")
	for _, given := range triggers {
		fmt.Fprintf(&b, " %s |", given)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(triggers)) + "\n")
	for _, from := range states {
		fmt.Fprintf(&b, "| %s |", from)
		for _, given := range triggers {
			fmt.Fprintf(&b, " %s |", destination(from, given))
		}
		b.WriteString("\n")
	}
	b.WriteString("\nWhat pulls each trigger:\n\n")
	for _, given := range triggers {
		fmt.Fprintf(&b, "- **%s**: %s\n", given, pulledBy[given])
	}
	b.WriteString(`
Every event in every state, and what the core does of it, in order. A dash: nothing. In *starting, queued*
the Conn waits for a place at its gate; elsewhere it has none ([ADR-0027](../adr/0027-bounded-starts.md)). In *ready* one call
of ours is pending and one request of the peer's is being served; in *backoff* the old link is closed, in
*closing* it is not yet. What is reported of an incarnation that is over changes nothing in any state; a
link that opens too late is closed.

`)
	b.WriteString(eventTable(t))
	return b.String()
}

func destination(from State, given trigger) string {
	for _, row := range lifecycle {
		if row.Name == string(given) && slices.Contains(row.Src, string(from)) {
			return row.Dst
		}
	}
	return "–"
}

var pulledBy = map[trigger]string{
	opened:     "the transport has opened a link (an acceptor is handed one).",
	handshaken: "the handshake strategy has returned without an error; an acceptor has none and is ready once attached.",
	lost:       "an initiator's link could not be opened or was lost, its handshake failed or took longer than `InitTimeout` since starting, its frames were malformed, or its peer did not read for 10 s or gave no sign of life.",
	retryDue:   "the delay has passed, or Wake was called, and the old link is closed.",
	closed:     "Stop, Close with nothing left to do, the end of Run's context, a reason that is final, and for an acceptor any loss.",
}
