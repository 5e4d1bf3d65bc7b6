package supervisor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport"
)

// An error whose methods panic, as those of a nil *transport.StartError do, is a
// failure of the child that returns it, and of nobody else.
//
// Guarantees: G-0002.3
func TestErrorThatPanicsWhenAChildIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var typed *transport.StartError
		s := supervisor.New(supervisor.Options{})
		c := start(t, s, supervisor.ChildSpec{Run: func(ctx context.Context) error { <-ctx.Done(); return typed }})
		if err := c.Stop(t.Context()); !errors.As(err, new(*supervisor.PanicError)) {
			t.Errorf("Stop returned %v", err)
		}
		_ = s.Stop(t.Context())
	})
}

// Guarantees: G-0002.3
func TestErrorThatPanicsWhenTheSupervisorGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var typed *transport.StartError
		s, failing := supervisor.New(supervisor.Options{Intensity: -1}), newScript()
		start(t, s, supervisor.ChildSpec{ID: "other", Run: idle})
		start(t, s, supervisor.ChildSpec{ID: "failing", Run: failing.run})
		failing.end(returns(typed))
		if err := s.Wait(t.Context()); !errors.As(err, new(*supervisor.PanicError)) {
			t.Errorf("Wait returned %v", err)
		}
	})
}

// Guarantees: G-0002.3
func TestErrorThatPanicsInAReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var typed *transport.StartError
		s := supervisor.New(supervisor.Options{})
		start(t, s, supervisor.ChildSpec{Run: func(context.Context) error { return typed }, Restart: supervisor.Temporary})
		synctest.Wait()
		defer stop(t, s)
		if text := s.Report().String(); !strings.Contains(text, "panic: ") {
			t.Errorf("report:\n%s", text)
		}
	})
}

// So it is of a link whose Close returns one.
//
// Guarantees: G-0002.3
func TestErrorThatPanicsOfALinksClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := supervisor.New(supervisor.Options{})
		c := conn.New(dialer(func(context.Context) (transport.Link, error) { return rudeLink{}, nil }), conn.Options{Name: "rude"})
		connect(t, s, c)
		await(t, c)
		_ = s.Stop(t.Context())
	})
}

type rudeLink struct{ transport.Link }

func (rudeLink) Bind(transport.Receiver)     {}
func (rudeLink) Grant(transport.Stream, int) {}
func (rudeLink) Close(time.Duration) error   { return (*transport.StartError)(nil) }
