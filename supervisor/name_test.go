package supervisor_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// A fickle store takes its one claim back, and gives no other.
type fickle struct{ lost func(error) }

func (s *fickle) Claim(_ context.Context, c registry.Claim) (registry.Release, error) {
	if s.lost != nil {
		return nil, &registry.TakenError{Name: c.Name, Holder: "another"}
	}
	s.lost = c.Lost
	return func(context.Context) error { return nil }, nil
}

func (*fickle) Watch(context.Context) iter.Seq2[map[string]string, error] {
	return func(func(map[string]string, error) bool) {}
}

// TestConnWithoutItsNameIsClosed: one that was to run again, and whose name is
// another's by then, is over; nobody waits for it.
//
// Guarantees: G-0002.18, G-0002.19
func TestConnWithoutItsNameIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, p, first := new(fickle), new(peer), newScript()
		s := supervisor.New(supervisor.Options{Strategy: supervisor.RestForOne, Registry: registry.New(registry.Options{Store: store})})
		servers := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{ID: "first", Run: first.run})
		c := conn.New(p.transport(t, servers), conn.Options{Name: "weather"})
		child := connect(t, s, c)
		await(t, c)
		store.lost(errors.New("the lease is over"))
		first.end(returns(errBroken))
		if err := child.Err(); !errors.As(err, new(*registry.TakenError)) || !isClosed(c.Done()) {
			t.Errorf("Err is %v, the Conn is %s", err, c.State())
		}
		if err := c.AwaitReady(t.Context()); err == nil {
			t.Error("somebody waits for it")
		}
		stop(t, s)
		stop(t, servers)
	})
}
