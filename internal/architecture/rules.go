package architecture

import (
	"cmp"
	"fmt"
	"slices"
)

// A rule is one thing the tree must obey, and the reason for it.
type rule struct {
	name  string
	why   string
	check func(*Tree, reporter)
}

// A reporter takes one finding: where, and what was found there.
type reporter func(at, format string, args ...any)

var rules = []rule{
	{"place", "every package stands somewhere, or nothing watches its imports", checkPlaces},
	{"arrow", "a layer that knows what is above it cannot be used or tested without it", checkArrows},
	{"cycle", "packages that import each other are one package", checkCycles},
	{"agnostic", "this package serves any JSON-RPC peer; what is MCP's alone is handed to it from features", checkAgnostic},
	{"telemetry", "everything imports telemetry, so telemetry imports the standard library only", checkTelemetry},
	{"pure", "equal events at equal times give equal effects, so that every failure replays", checkPure},
	{"core", "conn's core is the part that is searched exhaustively, so it is declared pure", checkCore},
	{"after", "time.After holds its timer until it fires, whoever has stopped waiting; use one owned timer", checkAfter},
	{"sleep", "a test that sleeps is slow when it passes and wrong when the machine is busy; use testing/synctest", checkSleep},
	{"init", "importing a package must do nothing; give the work a name and let the program call it", checkInit},
	{"name", "a package is named for what it provides, not for being handy", checkNames},
	{"skip", "a skipped test holds nothing, and nobody sees that it was skipped", checkSkips},
	{"dot", "with a dot import a reader cannot tell where a name comes from", checkDotImports},
	{"state", "package-level state is shared by every user of the process; make it a field", checkState},
	{"unfinished", "unfinished work belongs in the issue tracker", checkUnfinished},
	{"leaks", "every package's tests fail when a goroutine is left behind; TestMain calls goleak", checkLeaks},
}

// A Violation is one place where the tree breaks a rule.
type Violation struct {
	Rule string
	At   string // file:line, or a package
	What string
	Why  string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s [%s: %s]", v.At, v.What, v.Rule, v.Why)
}

// Check applies every rule and returns the violations ordered by rule, then by
// place.
func (t *Tree) Check() []Violation {
	var found []Violation
	for _, r := range rules {
		from := len(found)
		r.check(t, func(at, format string, args ...any) {
			found = append(found, Violation{r.name, at, fmt.Sprintf(format, args...), r.why})
		})
		slices.SortStableFunc(found[from:], func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	}
	return found
}
