package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/bundled"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"go.uber.org/goleak"

	"pgregory.net/rapid"
)

const serveVariable = "BOWLINE_DEMO_TEST_SERVE"

// TestMain makes the test binary the demo's server as well.
func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		server := bundled.New(bundled.Options{Garble: os.Stdout})
		if server.Serve(context.Background(), &stdio.Server{}) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.Once()
	goleak.VerifyTestMain(m)
}

// run runs a short demo with the test binary as its server.
func run(t *testing.T, o Options) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	o.Server = stdio.Command{Path: self, Env: []string{serveVariable + "=1"}}
	o.Out, o.Duration = &out, MinDuration
	if err := Run(ctx, o); err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	return out.String()
}

func TestDemoTellsItsStory(t *testing.T) {
	t.Parallel() // both demos mostly wait
	out := run(t, Options{Callers: 5, Color: true, Live: true, Metrics: true, Seed: 3})
	for _, want := range []string{
		"SIGKILL", "ready → backoff: the process was ended by signal: killed", "next attempt in",
		"5 callers were told: link lost (unknown)", "refused (not sent)", "backoff → starting", "serves in its place",
		"dropped, counted, and nothing lost", "a frame above the limit", "SIGSTOP", "SIGCONT",
		"the process exited with status 0", "answered", "\x1b[",
		"the same by the metrics",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

func TestDemoTellsItsStoryToPrograms(t *testing.T) {
	t.Parallel()
	out := run(t, Options{Callers: 5, JSON: true, Color: true, Live: true})
	kinds := make(map[string]int)
	for line := range strings.Lines(out) {
		var ev event
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		kinds[ev.Kind]++
	}
	if strings.Contains(out, `"metrics"`) {
		t.Error("metrics were printed without Options.Metrics")
	}
	for _, kind := range []string{kindNote, kindTransition, kindFault, kindOutcome, kindViolation, kindSummary} {
		if kinds[kind] == 0 {
			t.Errorf("no event of kind %q:\n%s", kind, out)
		}
	}
}

func TestPlanIsDrawnFromItsSeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		whole := rapid.Custom(func(t *rapid.T) time.Duration {
			return MinDuration + time.Duration(rapid.IntRange(0, 3600).Draw(t, "seconds"))*time.Second
		}).Draw(t, "whole")
		faults := plan(seed, 3, whole)
		if !slices.Equal(faults, plan(seed, 3, whole)) {
			t.Fatal("equal seeds gave different plans")
		}
		if !slices.IsSortedFunc(faults, func(a, b plannedFault) int { return int(a.at - b.at) }) || faults[len(faults)-1].at > whole {
			t.Fatalf("the faults are not in order, or after the end: %v", faults)
		}
	})
}

func TestDemoFailsWithoutItsServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, Options{Server: stdio.Command{Path: "no-such-command-anywhere"}, Out: new(bytes.Buffer)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestDemoRefusesTooShortADuration(t *testing.T) {
	err := Run(t.Context(), Options{Duration: time.Second, Out: new(bytes.Buffer)})
	if !errors.Is(err, ErrTooShort) {
		t.Errorf("got %v", err)
	}
}

// correctReport returns the report of a demo without errors.
func correctReport() *report {
	e := &entry{Server: "alpha", Made: 3, Ended: 3, Restarts: 1, losses: 1, outcomes: new(outcomes)}
	e.stats.Calls = 3
	e.stats.Settled = map[conn.Cause]map[conn.Delivery]uint64{
		conn.Answered: {conn.Sent: 2},
		conn.LinkLost: {conn.Unknown: 1},
	}
	e.outcomes.record(nil)
	e.outcomes.record(nil)
	e.outcomes.record(&conn.CallError{Cause: conn.LinkLost, Delivery: conn.Unknown, Err: errors.New("gone")})
	metrics := *e
	metrics.Settled = map[string]map[string]uint64{"answered": {"sent": 2}, "link lost": {"unknown": 1}}
	e.Settled = map[string]map[string]uint64{"answered": {"sent": 2}, "link lost": {"unknown": 1}}
	return &report{Servers: []*entry{e}, Metrics: []*entry{&metrics}, counted: 3, Goroutines: [2]int{3, 3}, Processes: [2]int{2, 0}}
}

func TestVerdict(t *testing.T) {
	if err := correctReport().verdict(); err != nil {
		t.Fatalf("a correct report has errors: %v", err)
	}
	for name, change := range map[string]func(*report, *entry){
		"a call that never ended":        func(_ *report, e *entry) { e.stats.Calls++ },
		"a caller with two outcomes":     func(_ *report, e *entry) { e.outcomes.record(nil) },
		"a caller with an unknown error": func(_ *report, e *entry) { e.outcomes.record(errors.New("?")) },
		"no restart":                     func(_ *report, e *entry) { e.Restarts = 0 },
		"one restart too many":           func(_ *report, e *entry) { e.Restarts = 2 },
		"nothing in flight":              func(_ *report, e *entry) { delete(e.stats.Settled, conn.LinkLost) },
		"a call counted twice": func(_ *report, e *entry) {
			e.stats.Settled[conn.TimedOut] = map[conn.Delivery]uint64{conn.Unknown: 1}
		},
		"a call that the metrics lack":         func(r *report, _ *entry) { r.Metrics[0].Settled["answered"]["sent"] = 1 },
		"a restart that the metrics lack":      func(r *report, _ *entry) { r.Metrics[0].Restarts = 0 },
		"a call that no histogram has counted": func(r *report, _ *entry) { r.counted = 2 },
		"a goroutine left":                     func(r *report, _ *entry) { r.Goroutines[1]++ },
		"a process left":                       func(r *report, _ *entry) { r.Processes[1]++ },
		"an output that failed":                func(r *report, _ *entry) { r.err = errors.New("disk full") },
	} {
		r := correctReport()
		change(r, r.Servers[0])
		if r.verdict() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
