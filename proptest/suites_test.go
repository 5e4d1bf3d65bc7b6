package proptest_test

import (
	"context"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/proptest"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

func TestMain(m *testing.M) {
	if os.Getenv(brokenVariable) == "" {
		testenv.Once()
	}
	testenv.SideBySide(8)
	goleak.VerifyTestMain(m)
}

// peer returns a transport to Echo in memory.
func peer() transport.Transport {
	return inmem.New(func(link transport.Link) { go proptest.Echo(link) }, inmem.Options{})
}

func TestCorrelation(t *testing.T) { proptest.Correlation(t, peer(), proptest.Options{}) }

func TestRestart(t *testing.T) { proptest.Restart(t, peer(), proptest.Options{}) }

func TestNoLeaks(t *testing.T) { proptest.NoLeaks(t, peer(), proptest.Options{}) }

func TestCancelIdempotent(t *testing.T) { proptest.CancelIdempotent(t, peer(), proptest.Options{}) }

func TestStopAnywhere(t *testing.T) { proptest.StopAnywhere(t, peer(), proptest.Options{}) }

// withFaults returns a transport that has faults before a suite adds others.
func withFaults(seed uint64) transport.Transport {
	return fault.New(peer(), fault.Plan{Seed: seed, FailOpens: 1, Faults: []fault.Fault{
		{Kind: fault.Reorder, Direction: fault.Inbound, Probability: 0.3},
		{Kind: fault.Duplicate, Direction: fault.Inbound, Probability: 0.1},
		{Kind: fault.Stall, Direction: fault.Outbound, Probability: 0.05},
	}})
}

func TestSuitesOverFaults(t *testing.T) {
	for name, suite := range map[string]func(*testing.T, transport.Transport, proptest.Options){
		"Correlation":      proptest.Correlation,
		"NoLeaks":          proptest.NoLeaks,
		"CancelIdempotent": proptest.CancelIdempotent,
		"StopAnywhere":     proptest.StopAnywhere,
		"Restart":          proptest.Restart,
	} {
		t.Run(name, func(t *testing.T) { suite(t, withFaults(1), proptest.Options{}) })
	}
}

// In real time, the suites pass at any speed of the machine.
func TestSuitesInRealTime(t *testing.T) {
	o := proptest.Options{Iterations: 5, Concurrent: 10, RealTime: true, Window: 5 * time.Millisecond, Conn: conn.Options{Tuning: conn.Tuning{RequestTimeout: 100 * time.Millisecond}}}
	for name, suite := range map[string]func(*testing.T, transport.Transport, proptest.Options){
		"Correlation":      proptest.Correlation,
		"NoLeaks":          proptest.NoLeaks,
		"CancelIdempotent": proptest.CancelIdempotent,
		"StopAnywhere":     proptest.StopAnywhere,
		"Restart":          proptest.Restart,
	} {
		t.Run(name, func(t *testing.T) { suite(t, peer(), o) })
	}
}

// On a slow machine a link may be closed long after its grace.
func TestSlowClosesInRealTime(t *testing.T) {
	from := peer()
	slow := opener(func(ctx context.Context) (transport.Link, error) {
		link, err := from.Open(ctx)
		return &brokenLink{Link: link, close: closeAfterGrace}, err
	})
	proptest.StopAnywhere(t, slow, proptest.Options{
		Iterations: 1, Concurrent: 10, RealTime: true, Window: 5 * time.Millisecond, Faults: []fault.Kind{fault.Reorder},
		Conn: conn.Options{Tuning: conn.Tuning{RequestTimeout: 100 * time.Millisecond, StopGrace: 10 * time.Millisecond}},
	})
}

func closeAfterGrace(grace time.Duration) time.Duration {
	timer := time.NewTimer(50 * time.Millisecond)
	<-timer.C
	return grace
}
