package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
)

// lines returns the lines of a printed report.
func lines(r supervisor.Report) []string { return strings.Split(r.String(), "\n") }

// ends returns a Run that returns at once.
func ends(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

var attemptAt = regexp.MustCompile(`attempt (\d+) at [\d:]+`)

// at returns how a report prints a time after the beginning of the test.
func at(began time.Time, after time.Duration) string {
	return began.Add(after).Format(time.TimeOnly)
}

// A report has the whole tree with the state of each child, and prints it.
//
// Guarantees: G-0002.17
func TestReportPrintsTheTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		root := supervisor.New(supervisor.Options{Name: "app", Strategy: supervisor.RestForOne})
		start(t, root, supervisor.ChildSpec{ID: "config", Run: idle})
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", Intensity: -1})
		failing, p := newScript(), &peer{}
		start(t, pool, supervisor.ChildSpec{ID: "failing", Run: failing.run, Restart: supervisor.Transient})
		other := supervisor.New(supervisor.Options{})
		connect(t, pool, conn.New(p.transport(t, other), conn.Options{Tuning: conn.Tuning{Name: "weather"}}))
		down := dialer(func(context.Context) (transport.Link, error) { return nil, errDown })
		connect(t, pool, conn.New(down, conn.Options{Tuning: conn.Tuning{Name: "search", BackoffMin: time.Minute, BackoffMax: time.Minute}}))
		done := newScript()
		start(t, root, supervisor.ChildSpec{ID: "migration", Run: done.run, Restart: supervisor.Temporary})
		release := make(chan struct{})
		stuckChild := start(t, root, supervisor.ChildSpec{ID: "stuck", Run: ignoresStop(release)})
		advance(time.Second)
		done.end(returns(nil))
		go stuckChild.Stop(t.Context())
		advance(10 * time.Second)
		got := lines(root.Report())
		got[5] = attemptAt.ReplaceAllString(got[5], "attempt $1 in time") // the time is random
		want := []string{
			"supervisor app at " + began.Add(11*time.Second).Format(time.DateTime) + ": rest_for_one, running since " + at(began, 0) +
				", 4 children: 2 running, 1 stopped, 1 stopping; 0 of 3 restarts used in the last 5s",
			"├─ config: permanent worker, running since " + at(began, 0),
			"├─ pool: permanent one_for_one supervisor, running since " + at(began, 0) +
				"; 3 children: 1 backoff, 1 ready, 1 running; 0 of 0 restarts used in the last 5s",
			"│  ├─ failing: transient worker, running since " + at(began, 0),
			"│  ├─ weather: transient connection, ready since " + at(began, 0) + " over link 1",
			"│  └─ search: transient connection, backoff since " + at(began, 0) + ", attempt 2 in time, last failure: open failed: the peer is down",
			"├─ migration: temporary worker, finished at " + at(began, time.Second),
			"└─ stuck: permanent worker, stuck: told to stop at " + at(began, time.Second) + " and still running",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("tree (-want +got):\n%s", diff)
		}
		close(release)
		failing.end(returns(errBroken))
		pool2 := lines(root.Report())[2]
		if want := "restarted 1 time; failed 1 time, last at " + at(began, 11*time.Second) + `: supervisor pool: gave up: child "failing" needed more than 0 restarts within 5s: broken`; !strings.HasSuffix(pool2, want) {
			t.Errorf("the line is %q, want it to end with %q", pool2, want)
		}
		stop(t, root)
		stop(t, other)
	})
}

// A report says of a child that is being stopped whether it will run again, and of no other one.
//
// Guarantees: G-0002.17
func TestReportSaysWhatWillRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{Strategy: supervisor.OneForAll})
		release, failing := make(chan struct{}), newScript()
		start(t, s, supervisor.ChildSpec{ID: "first", Run: idle})
		slow := start(t, s, supervisor.ChildSpec{ID: "slow", Shutdown: 5 * time.Second, Run: func(ctx context.Context) error {
			<-ctx.Done()
			<-release
			return nil
		}})
		start(t, s, supervisor.ChildSpec{ID: "failing", Run: failing.run})
		want := func(when string, slowState supervisor.State, slowRestarts bool, line string) {
			t.Helper()
			synctest.Wait()
			r := s.Report()
			for _, c := range r.Children {
				if restarts := c.ID == "slow" && slowRestarts; c.WillRestart != restarts {
					t.Errorf("%s: %s is %s, and will restart: %t, want %t", when, c.ID, c.State, c.WillRestart, restarts)
				}
			}
			if state := states(r.Children)["slow"]; state != slowState || !strings.Contains(r.String(), line) {
				t.Errorf("%s: slow is %s, want %s and %q in\n%s", when, state, slowState, line, r)
			}
		}
		want("at first", supervisor.Running, false, "slow: permanent worker, running")
		failing.end(returns(errBroken))
		want("after a failure", supervisor.Stopping, true, "slow: permanent worker, stopping")
		advance(6 * time.Second)
		want("when it is stuck", supervisor.Stopping, true, "and still running; restarts once it has returned")
		close(release)
		want("when all run again", supervisor.Running, false, "slow: permanent worker, running")
		release = make(chan struct{})
		go slow.Stop(t.Context())
		want("when it is stopped for good", supervisor.Stopping, false, "slow: permanent worker, stopping")
		close(release)
		stop(t, s)
	})
}

// Of many children, a report prints those with problems first, and counts the rest.
//
// Guarantees: G-0002.17
func TestReportOfManyChildrenPrintsProblemsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		for i := range 1000 {
			start(t, s, supervisor.ChildSpec{ID: fmt.Sprint("worker ", i), Run: idle})
		}
		failing := newScript()
		start(t, s, supervisor.ChildSpec{ID: "failing", Run: failing.run, Restart: supervisor.Temporary})
		failing.end(panics("boom"))
		got := lines(s.Report())
		if len(got) != 22 || !strings.Contains(got[1], "failing: temporary worker, failed for good at") || !strings.HasSuffix(got[1], ": panic: boom") || got[21] != "└─ and 981 more: 981 running" {
			t.Errorf("want 22 lines, the failed child first; report:\n%s", strings.Join(got, "\n"))
		}
		if r := s.Report(); len(r.Children) != 1001 || r.Children[0].ID != "worker 0" || r.Children[1000].ID != "failing" {
			t.Errorf("%d children are reported, want 1001 in order", len(r.Children))
		}
		stop(t, s)
	})
}

// printed returns the ids of the children that a report prints, in order, and its last line about the others.
func printed(r supervisor.Report) (ids []string) {
	for _, line := range lines(r)[1:] {
		line = strings.TrimLeft(line, "│├└─ ")
		if id, _, _ := strings.Cut(line, ":"); !strings.HasPrefix(line, "and ") {
			line = id
		}
		ids = append(ids, line)
	}
	return ids
}

func numbered(what string, count int) (ids []string) {
	for i := range count {
		ids = append(ids, fmt.Sprint(what, " ", i))
	}
	return ids
}

// Children with problems are printed before those that run, have finished, were stopped, or failed for good.
// Each child that is not printed is counted.
//
// Guarantees: G-0002.17
func TestReportPrintsAllProblems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, release := supervisor.New(supervisor.Options{}), make(chan struct{})
		for i := range 25 {
			start(t, s, supervisor.ChildSpec{ID: fmt.Sprint("done ", i), Run: ends(nil), Restart: supervisor.Temporary})
		}
		for i := range 25 {
			start(t, s, supervisor.ChildSpec{ID: fmt.Sprint("failed ", i), Run: ends(errBroken), Restart: supervisor.Temporary})
			start(t, s, supervisor.ChildSpec{ID: fmt.Sprint("works ", i), Run: idle})
		}
		down := dialer(func(context.Context) (transport.Link, error) { return nil, errDown })
		connect(t, s, conn.New(down, conn.Options{Tuning: conn.Tuning{Name: "search", BackoffMin: time.Minute, BackoffMax: time.Minute}}))
		stuckChild := start(t, s, supervisor.ChildSpec{ID: "stuck", Run: ignoresStop(release)})
		go stuckChild.Stop(t.Context())
		pool, _ := nested(t, s, supervisor.Options{Name: "pool"})
		start(t, pool, supervisor.ChildSpec{ID: "failed below", Run: ends(errBroken), Restart: supervisor.Temporary})
		advance(10 * time.Second)
		want := append([]string{"search", "stuck", "pool", "failed below"}, numbered("failed", 17)...)
		report := s.Report()
		if diff := cmp.Diff(append(want, "and 58 more: 8 failed, 25 running, 25 stopped"), printed(report)); diff != "" {
			t.Errorf("printed (-want +got):\n%s", diff)
		}
		if rest := lines(report); !strings.HasPrefix(rest[len(rest)-2], "├─ ") {
			t.Errorf("the line above the others is %q, which ends the tree", rest[len(rest)-2])
		}
		for i := range report.Children { // a supervisor that has given up is in trouble, and a Conn that waits is not if it was stopped
			switch c := &report.Children[i]; c.ID {
			case "pool":
				c.Supervisor.GaveUp, c.Supervisor.Children = errBroken, nil
			case "search":
				c.State = supervisor.Stopped
			}
		}
		want = append([]string{"stuck", "pool"}, numbered("failed", 18)...)
		if diff := cmp.Diff(append(want, "and 58 more: 7 failed, 25 running, 26 stopped"), printed(report)); diff != "" {
			t.Errorf("printed (-want +got):\n%s", diff)
		}
		close(release)
		synctest.Wait()
		stop(t, s)
	})
}

// Children that are over are printed after all others.
//
// Guarantees: G-0002.17
func TestReportPrintsStoppedChildrenLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		for i := range 20 {
			start(t, s, supervisor.ChildSpec{ID: fmt.Sprint("done ", i), Run: ends(nil), Restart: supervisor.Temporary})
		}
		start(t, s, supervisor.ChildSpec{ID: "works", Run: idle})
		go s.Start(t.Context(), supervisor.ChildSpec{ID: "begins", Init: idle, Run: idle})
		synctest.Wait()
		want := append([]string{"begins", "works"}, numbered("done", 18)...)
		if diff := cmp.Diff(append(want, "and 2 more: 2 stopped"), printed(s.Report())); diff != "" {
			t.Errorf("printed (-want +got):\n%s", diff)
		}
		stop(t, s)
	})
}

// The channel of Report.Changed is closed when something changes anywhere below.
//
// Guarantees: G-0002.17
func TestReportIsOutdatedByAnyChangeBelow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := supervisor.New(supervisor.Options{})
		middle, _ := nested(t, root, supervisor.Options{Name: "middle"})
		pool, _ := nested(t, middle, supervisor.Options{Name: "pool"})
		child := newScript()
		changes := map[string]func(){
			"start":   func() { start(t, pool, supervisor.ChildSpec{ID: "a", Run: child.run}) },
			"restart": func() { child.end(returns(errBroken)) },
		}
		for _, name := range []string{"start", "restart"} {
			r, same := root.Report(), root.Report()
			synctest.Wait()
			if wait.IsClosed(r.Changed()) {
				t.Errorf("%s: the report is outdated before the change", name)
			}
			changes[name]()
			if !wait.IsClosed(r.Changed()) || !wait.IsClosed(same.Changed()) {
				t.Errorf("%s: the report is not outdated after the change", name)
			}
		}
		if got := root.Report().Children[0].Supervisor.Children[0].Supervisor.Children[0]; got.ID != "a" || got.Restarts != 1 {
			t.Errorf("got %v, want a with one restart", got)
		}
		stop(t, root)
		r := root.Report()
		if r.State != supervisor.Stopped || r.Children[0].State != supervisor.Stopped {
			t.Errorf("want the root and its child stopped, report:\n%v", r)
		}
	})
}

// A report has the state of a supervisor, and since when it has been in it.
//
// Guarantees: G-0002.17
func TestReportHasTheTimeOfTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		root := supervisor.New(supervisor.Options{})
		pool, child := nested(t, root, supervisor.Options{Name: "pool"})
		start(t, pool, newFinisher("slow", new(eventLog), 5*time.Second).spec())
		want := func(after time.Duration, state supervisor.State, since time.Duration) {
			t.Helper()
			advance(after - time.Since(began))
			r := pool.Report()
			if r.State != state || !r.Since.Equal(began.Add(since)) {
				t.Errorf("got %s since %s, want %s since %s", r.State, r.Since, state, began.Add(since))
			}
			if !strings.Contains(lines(r)[0], fmt.Sprintf("one_for_one, %s since %s", state, at(began, since))) {
				t.Errorf("the first line lacks %s since %s, report:\n%s", state, at(began, since), r)
			}
		}
		want(10*time.Second, supervisor.Running, 0)
		go pool.Close(t.Context()) // takes 4.5 s
		want(11*time.Second, supervisor.Draining, 10*time.Second)
		want(20*time.Second, supervisor.Running, 14500*time.Millisecond) // its parent has restarted it
		start(t, pool, supervisor.ChildSpec{Run: newMember("stops within a second", new(eventLog)).run})
		advance(10 * time.Second)
		go child.Stop(t.Context())
		want(30500*time.Millisecond, supervisor.Stopping, 30*time.Second)
		want(40*time.Second, supervisor.Stopped, 31*time.Second)
		stop(t, root)
	})
}

// forged is a name that would print as another line, in red and backwards.
const forged = "a\n├─ b: permanent worker, running\r\x1b[31m\u2028\u202e\xff"

// wantPlain checks that a text has this many lines, prints as it is, and quotes the forged name.
func wantPlain(t *testing.T, what, text string, count int) {
	t.Helper()
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	found := strings.Split(text, "\n")
	if len(found) != count || !utf8.ValidString(text) || strings.ContainsFunc(strings.Join(found, ""), unprintable) || !strings.Contains(text, `"a\n├─ b`) {
		t.Errorf("%s: want %d lines that print plainly, got\n%q", what, count, text)
	}
}

// Names of supervisors and children, and their errors, cannot forge lines of reports, events and errors.
//
// Guarantees: G-0002.17
func TestNamesCannotForgeLogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []supervisor.Event
		s := supervisor.New(supervisor.Options{Name: forged, Intensity: -1, OnEvent: func(e supervisor.Event) { events = append(events, e) }})
		failing, release := newScript(), make(chan struct{})
		start(t, s, supervisor.ChildSpec{ID: "stuck" + forged, Run: ignoresStop(release), Shutdown: time.Second})
		start(t, s, supervisor.ChildSpec{ID: forged, Run: failing.run})
		_, refused := s.Start(t.Context(), supervisor.ChildSpec{ID: forged, Run: idle})
		wantPlain(t, "refused", refused.Error(), 1)
		wantPlain(t, "report", s.Report().String(), 3)
		failing.end(returns(errors.New("\x1b[31mbroken")))
		result := s.Wait(t.Context())
		var stuck *supervisor.StuckError
		if !errors.As(result, &stuck) {
			t.Fatalf("Wait returned %v, want a StuckError", result)
		}
		wantPlain(t, "stuck", stuck.Error(), 1)
		wantPlain(t, "report of the end", s.Report().String(), 3)
		for _, e := range events {
			wantPlain(t, "event", e.String(), 1)
		}
		close(release)
		synctest.Wait()
	})
}

// A name is quoted only if it has characters that do not print.
func TestTextIsQuotedWhereItDoesNotPrint(t *testing.T) {
	for name, want := range map[string]string{
		"weather/berlin": `weather/berlin`, `say "a" \ b`: `say "a" \ b`, "Москва 日本語 e\u0301": "Москва 日本語 e\u0301",
		"a\tb": `"a\tb"`, "a\u202eb": `"a\u202eb"`, "a\u2028b": `"a\u2028b"`, "a\xffb": `"a\xffb"`, "a\u00a0b": `"a\u00a0b"`,
	} {
		e := supervisor.Event{Kind: supervisor.ChildStarted, Supervisor: name, Child: name}
		if got := e.String(); got != "supervisor "+want+": "+want+": child started" {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
}
