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

// TestMain discards the logs of failures that tests cause.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// A script is a child whose test decides how each Run ends.
type script struct {
	runs   atomic.Int64
	ends   chan func() error
	onStop func() // called when the child is stopped; may be nil
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

// end ends the present Run, and waits until everything has settled.
func (c *script) end(with func() error) {
	c.ends <- with
	synctest.Wait()
}

func returns(err error) func() error { return func() error { return err } }

func panics(value any) func() error { return func() error { panic(value) } }

// idle is a Run that only waits for its stop.
func idle(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// ignoresStop returns a Run that ignores its stop until release is closed.
func ignoresStop(release <-chan struct{}) func(context.Context) error {
	return func(context.Context) error {
		<-release
		return nil
	}
}

// ignoresFirstStop returns a Run that ignores its first stop until release is closed. It counts its runs.
func ignoresFirstStop(release <-chan struct{}, runs *atomic.Int64) func(context.Context) error {
	return func(ctx context.Context) error {
		if runs.Add(1) == 1 {
			<-release
			return nil
		}
		return idle(ctx)
	}
}

// start starts a child, which must succeed.
func start(t testing.TB, s *supervisor.Supervisor, spec supervisor.ChildSpec) *supervisor.Child {
	t.Helper()
	c, err := s.Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stop stops a supervisor, which must succeed.
func stop(t testing.TB, s *supervisor.Supervisor) {
	t.Helper()
	if err := s.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v, want no error", err)
	}
}

// advance lets virtual time pass.
func advance(d time.Duration) {
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
