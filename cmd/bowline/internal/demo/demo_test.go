package demo

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/bundled"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"go.uber.org/goleak"
)

const serveVariable = "BOWLINE_DEMO_TEST_SERVE"

// TestMain makes the test binary the demo's server as well.
func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) != "" {
		if bundled.New(bundled.Options{}).Serve(context.Background(), &stdio.Server{}) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestDemoBalancesItsBooks(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	err = Run(ctx, Options{
		Server: stdio.Command{Path: self, Env: []string{serveVariable + "=1"}},
		Out:    &out, Callers: 20, Before: 300 * time.Millisecond, After: 300 * time.Millisecond,
	})
	if err != nil {
		t.Errorf("%v\n%s", err, &out)
	}
	for _, told := range []string{"SIGKILL", "ready → backoff: exited", "next attempt in", "20 × link lost (unknown)", "backoff → starting", "restarts 1"} {
		if !strings.Contains(out.String(), told) {
			t.Errorf("the story does not tell of %q:\n%s", told, &out)
		}
	}
}

func TestDemoFailsWithoutItsServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Run(ctx, Options{Server: stdio.Command{Path: "no-such-command-anywhere"}, Out: new(bytes.Buffer)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// balanced is the report of a demo that went well.
func balanced() *report {
	r := &report{
		ledger:     newLedger(),
		restarts:   1,
		goroutines: [2]int{3, 3},
		children:   [2]int{2, 0},
	}
	r.stats.Calls = 3
	r.stats.Settled = map[conn.Cause]map[conn.Delivery]uint64{
		conn.Answered: {conn.Sent: 2},
		conn.LinkLost: {conn.Unknown: 1},
	}
	r.ledger.record(nil)
	r.ledger.record(nil)
	r.ledger.record(&conn.CallError{Cause: conn.LinkLost, Delivery: conn.Unknown, Err: errors.New("gone")})
	return r
}

func TestVerdict(t *testing.T) {
	if err := balanced().verdict(); err != nil {
		t.Fatalf("a good report was refused: %v", err)
	}
	for name, spoil := range map[string]func(*report){
		"a call that never ended":        func(r *report) { r.stats.Calls++ },
		"a caller told twice":            func(r *report) { r.ledger.record(nil) },
		"a caller told something else":   func(r *report) { r.ledger.strange = []error{errors.New("?")} },
		"no restart":                     func(r *report) { r.restarts = 0 },
		"nothing in flight":              func(r *report) { r.stats.Settled[conn.LinkLost] = nil; r.stats.Calls-- },
		"a goroutine left":               func(r *report) { r.goroutines[1]++ },
		"a child process left":           func(r *report) { r.children[1]++ },
		"a call booked under two causes": func(r *report) { r.stats.Settled[conn.TimedOut] = map[conn.Delivery]uint64{conn.Unknown: 1} },
	} {
		r := balanced()
		spoil(r)
		if r.verdict() == nil {
			t.Errorf("%s went unnoticed", name)
		}
	}
}
