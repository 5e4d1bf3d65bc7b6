package actor

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite docs/design/TURNS.md")

// TestPageOfTurnsIsFresh compares the page with the table. With -update it rewrites it.
func TestPageOfTurnsIsFresh(t *testing.T) {
	testenv.Page(t, "../../docs/design/TURNS.md", page(), *update)
}

func page() string {
	var b strings.Builder
	b.WriteString("# Who has the loop\n\nGenerated from the table in internal/actor/table.go; `make docs` rewrites it. " +
		"[ADR-0048](../adr/0048-turns-of-the-loop.md)\nexplains why goroutines are lent to a loop. A test goes through every order of these changes.\n\n")
	for state := range states {
		fmt.Fprintf(&b, "- **%s**: %s\n", state, meaning[state])
	}
	b.WriteString("\nThis table shows the next state for every change in every state, and what the goroutine that makes the change must do\nthen. " +
		"A dash means that the change would be a mistake of the program, and panics.\n\n| State |")
	for how := range changes {
		fmt.Fprintf(&b, " %s |", how)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", int(changes)) + "\n")
	for from := range states {
		fmt.Fprintf(&b, "| %s |", from)
		for how := range changes {
			b.WriteString(" " + cell(from, table[from][how]) + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\nWhat makes each change:\n\n")
	for how := range changes {
		fmt.Fprintf(&b, "- **%s**: %s\n", how, causedBy[how])
	}
	return b.String()
}

func cell(from State, found row) string {
	switch found.then {
	case impossible:
		return "–"
	case refused:
		return "refused"
	case has:
		return found.to.String() + ": it has the loop"
	case starts:
		return found.to.String() + ": starts the own goroutine"
	case wakes:
		return found.to.String() + ": wakes the own goroutine"
	}
	if from == found.to {
		return "same"
	}
	return found.to.String()
}

var meaning = [states]string{
	Closed:  "nobody has the loop, and no event is accepted, because it has not begun or has ended.",
	Parked:  "nobody has it, and it has no goroutine.",
	Resting: "nobody has it; its own goroutine waits.",
	Lent:    "a lent goroutine has it, and it has no other.",
	Beside:  "a lent goroutine has it, while its own waits.",
	Own:     "its own goroutine has it.",
	Last:    "its own goroutine has it for the last time. Nobody else gets it; the results of jobs are still accepted.",
	Waiting: "its own goroutine waits for the last events.",
}

var causedBy = [changes]string{
	Post:   "a goroutine brings an event that cannot run the loop, perhaps because its caller holds a lock.",
	Lend:   "a goroutine brings an event and lends itself: of Call, Notify, Close or Control.Open, of a worker, of a link that allows it.",
	Tick:   "a timer does the same. It rather wakes the own goroutine, which may have to end.",
	Done:   "a goroutine has done a job of the loop, such as opening a link, and brings the result. It becomes the own one if there is none.",
	open:   "the Conn starts. The loop begins on the caller's goroutine.",
	rest:   "no event waits, and the goroutine goes away.",
	wait:   "no event waits, but the last came a short time ago: the own goroutine waits for the next.",
	resume: "a lent goroutine has done enough, or the loop is about to end, or has panicked.",
	adopt:  "the loop ends on a goroutine that may wait for that: Close, or that of an acceptor's link.",
	last:   "the own goroutine ends the loop after a panic or an interruption.",
	end:    "the own goroutine ends the loop, and handles the events that are left.",
}
