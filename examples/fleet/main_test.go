package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The test runs the real example. README.md shows the same lines.
func TestExample(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	if err := run(ctx, &out); err != nil {
		t.Error(err)
	}
	const want = `22 children run in 2 regions, and 20 sessions have names
west-07 answers: west-07
west-03 is down; its call was not executed: true
(the tree)
west-03 answers: west-03
the auditor of east has failed too often, so east was restarted
east-07 answers on link 2
west-07 answers on link 1
18 sessions have ended, and 2 finish their calls
a running call is answered: done
a running call is answered: done
the tree is stopped, and 0 sessions have names
`
	story, tree := part(out.String())
	if story != want {
		t.Errorf("printed\n%s\nwant\n%s", story, want)
	}
	for line, count := range map[string]int{
		`supervisor fleet at .*: one_for_one, running since .*, 2 children: 2 running; `:                     1,
		`[├└]─ east: permanent one_for_one supervisor, running since .*; 11 children: 10 ready, 1 running; `: 1,
		`[├└]─ west: permanent one_for_one supervisor, running since .*; 11 children: 1 backoff, 9 ready, `:  1,
		`[├└]─ auditor: permanent worker, running since `:                                                    2,
		`[├└]─ (east|west)-\d\d: transient connection, ready since .* over link 1`:                           19,
		`[├└]─ west-03: transient connection, backoff since .*, attempt 2 at .*, last failure: peer ended`:   1,
	} {
		if got := len(regexp.MustCompile(line).FindAllString(tree, -1)); got != count {
			t.Errorf("%d lines are like %q, want %d:\n%s", got, line, count, tree)
		}
	}
}

// part separates the report from the other lines, because it contains times, and its
// sessions are in the order in which they connected.
func part(printed string) (story, tree string) {
	for line := range strings.Lines(printed) {
		switch {
		case strings.HasPrefix(line, "supervisor "):
			story, tree = story+"(the tree)\n", line
		case strings.ContainsAny(line, "├└"):
			tree += line
		default:
			story += line
		}
	}
	return story, tree
}
