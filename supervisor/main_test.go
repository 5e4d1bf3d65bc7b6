package supervisor_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/supervisor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A script is a child that ends each Run as the test says.
type script struct {
	runs atomic.Int64
	ends chan func() error
}

func newScript() *script { return &script{ends: make(chan func() error)} }

func (c *script) run(ctx context.Context) error {
	c.runs.Add(1)
	select {
	case end := <-c.ends:
		return end()
	case <-ctx.Done():
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

// deaf returns a child that ignores its stop until the test closes release.
func deaf(release <-chan struct{}) func(context.Context) error {
	return func(context.Context) error {
		<-release
		return nil
	}
}

// start starts a child that must start.
func start(t testing.TB, s *supervisor.Supervisor, spec supervisor.ChildSpec) *supervisor.Child {
	t.Helper()
	c, err := s.Start(spec)
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

func ids(children []supervisor.Status) []string {
	var found []string
	for _, c := range children {
		found = append(found, c.ID)
	}
	return found
}

func states(children []supervisor.Status) map[string]supervisor.State {
	found := make(map[string]supervisor.State)
	for _, c := range children {
		found[c.ID] = c.State
	}
	return found
}
