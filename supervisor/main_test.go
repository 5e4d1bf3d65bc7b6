package supervisor_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/supervisor"
)

// TestMain keeps silent what fails on purpose.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// A script is a child that ends each Run as the test says.
type script struct {
	runs   atomic.Int64
	ends   chan func() error
	onStop func() // called when it is stopped; may be nil
}

func newScript() *script { return &script{ends: make(chan func() error)} }

func (c *script) run(ctx context.Context) error {
	c.runs.Add(1)
	select {
	case end := <-c.ends:
		return end()
	case <-ctx.Done():
		if c.onStop != nil {
			c.onStop()
		}
		return context.Cause(ctx)
	}
}

// ends the present Run, and waits for what follows.
func (c *script) end(with func() error) {
	c.ends <- with
	synctest.Wait()
}

func returns(err error) func() error { return func() error { return err } }

func panics(value any) func() error { return func() error { panic(value) } }

// idle is a child that does nothing but end when it is told to.
func idle(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// ignoresStop returns a child that ignores its stop until the test closes release.
func ignoresStop(release <-chan struct{}) func(context.Context) error {
	return func(context.Context) error {
		<-release
		return nil
	}
}

// ignoresFirstStop returns a child that ignores its first stop until then, and counts
// its runs.
func ignoresFirstStop(release <-chan struct{}, runs *atomic.Int64) func(context.Context) error {
	return func(ctx context.Context) error {
		if runs.Add(1) == 1 {
			<-release
			return nil
		}
		return idle(ctx)
	}
}

// start starts a child that must start.
func start(t testing.TB, s *supervisor.Supervisor, spec supervisor.ChildSpec) *supervisor.Child {
	t.Helper()
	c, err := s.Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stop stops a supervisor that must stop well.
func stop(t testing.TB, s *supervisor.Supervisor) {
	t.Helper()
	if err := s.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

func ids(children []supervisor.ChildReport) []string {
	var found []string
	for _, c := range children {
		found = append(found, c.ID)
	}
	return found
}

func states(children []supervisor.ChildReport) map[string]supervisor.State {
	found := make(map[string]supervisor.State)
	for _, c := range children {
		found[c.ID] = c.State
	}
	return found
}
