package supervisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
)

// roundTrip returns what a program reads from a value's JSON.
func roundTrip(t *testing.T, value any) any {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var read any
	if err := json.Unmarshal(raw, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

// The JSON of a report has names and texts instead of numbers, and its errors are texts.
func TestReportInJSON(t *testing.T) {
	type object = map[string]any
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		at := func(after time.Duration) string { return began.Add(after).Format(time.RFC3339Nano) }
		root := supervisor.New(supervisor.Options{Name: "app", Strategy: supervisor.RestForOne})
		down := dialer(func(context.Context) (transport.Link, error) { return nil, errDown })
		connect(t, root, conn.New(down, conn.Options{Tuning: conn.Tuning{Name: "search", BackoffMin: time.Minute, BackoffMax: time.Minute}}))
		pool, _ := nested(t, root, supervisor.Options{Name: "pool", Intensity: -1})
		failing := newScript()
		start(t, pool, supervisor.ChildSpec{ID: "failing", Run: failing.run, Restart: supervisor.Temporary})
		advance(time.Second)
		failing.end(returns(errBroken))
		report := roundTrip(t, root.Report())
		search := report.(object)["children"].([]any)[0].(object)["connection"].(object)
		if next, err := time.Parse(time.RFC3339Nano, search["nextAttempt"].(string)); err != nil || next.Before(began) {
			t.Errorf("the next attempt is at %v, want a time after the start", search["nextAttempt"])
		}
		delete(search, "nextAttempt")
		why := object{"kind": "open failed", "error": "the peer is down"}
		want := object{
			"at": at(time.Second), "name": "app", "strategy": "rest_for_one", "state": "running", "since": at(0),
			"recentRestarts": 0.0, "intensity": 3.0, "period": "5s",
			"children": []any{
				object{
					"id": "search", "restart": "transient", "state": "running", "since": at(0),
					"stopRequested": false, "stuck": false, "willRestart": false, "restarts": 0.0, "failures": 0.0,
					"connection": object{"state": "backoff", "reason": why, "since": at(0), "epoch": 1.0, "lastFailure": why},
				},
				object{
					"id": "pool", "restart": "permanent", "state": "running", "since": at(0),
					"stopRequested": false, "stuck": false, "willRestart": false, "restarts": 0.0, "failures": 0.0,
					"supervisor": object{
						"at": at(time.Second), "name": "pool", "strategy": "one_for_one", "state": "running", "since": at(0),
						"recentRestarts": 0.0, "intensity": 0.0, "period": "5s",
						"children": []any{object{
							"id": "failing", "restart": "temporary", "state": "failed", "since": at(time.Second),
							"stopRequested": false, "stuck": false, "willRestart": false, "restarts": 0.0, "failures": 1.0,
							"lastFailure": "broken", "failedAt": at(time.Second),
						}},
					},
				},
			},
		}
		if diff := cmp.Diff(any(want), report); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		stop(t, root)
	})
}

// The JSON of an error is its text. Events have their kind as text.
func TestErrorsAndEventsInJSON(t *testing.T) {
	gaveUp := &supervisor.IntensityError{Supervisor: "app", Child: "a", Period: time.Second, Err: errors.New("broken")}
	for _, c := range []struct{ value, want any }{
		{gaveUp, gaveUp.Error()},
		{&supervisor.PanicError{Value: func() {}}, (&supervisor.PanicError{Value: "x"}).Error()[:len("panic: ")]},
		{supervisor.Event{Kind: supervisor.GaveUp, Supervisor: "app", Err: gaveUp}, map[string]any{
			"kind": "gave up", "supervisor": "app", "child": "", "restarts": 0.0, "error": gaveUp.Error(), "at": "0001-01-01T00:00:00Z",
		}},
	} {
		got := roundTrip(t, c.value)
		if text, ok := got.(string); ok && strings.HasPrefix(text, c.want.(string)) {
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%T (-want +got):\n%s", c.value, diff)
		}
	}
}

// An error of several lines is printed in one line, shortened if it is very long.
func TestReportPrintsWholeErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		failed := errors.Join(errors.New("cannot start because of:\n  no licence"), errors.New("and no key"))
		start(t, s, supervisor.ChildSpec{ID: "a", Run: ends(failed), Restart: supervisor.Temporary})
		start(t, s, supervisor.ChildSpec{ID: "b", Run: ends(errors.New(strings.Repeat("é", 4000))), Restart: supervisor.Temporary})
		advance(time.Second)
		got := lines(s.Report())
		if len(got) != 3 || !strings.HasSuffix(got[1], ": cannot start because of:; no licence; and no key") {
			t.Errorf("want three lines, the second with the whole error; the report is\n%s", s.Report())
		}
		if !strings.HasSuffix(got[2], "é…") || len(got[2]) > 1300 {
			t.Errorf("got %d bytes: %.100q; want 1300 at most that end in …", len(got[2]), got[2])
		}
		stop(t, s)
	})
}
