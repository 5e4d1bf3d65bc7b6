package registry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/transport"
)

// TestMain fails if a goroutine is left.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A refusing transport opens no link.
type refusing struct{}

func (refusing) Open(context.Context) (transport.Link, error) { return nil, errors.New("refused") }

// bubble runs a test in virtual time, which stands still while the test waits for a lock. So the test is guarded in real time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	testenv.Within(t, "the test in virtual time ends", func() { synctest.Test(t, test) })
}

// open returns a Conn that does not run yet.
func open() *conn.Conn { return conn.New(refusing{}, conn.Options{}) }

// finish closes a Conn.
func finish(t errorer, c *conn.Conn) {
	c.Stop()
	if err := c.Run(context.Background()); err != nil {
		t.Errorf("Run: %v, want no error", err)
	}
}

type errorer interface{ Errorf(string, ...any) }

// register registers a Conn, which must succeed.
func register(t testing.TB, r *registry.Registry, name string, c *conn.Conn) {
	t.Helper()
	var err error
	testenv.Within(t, "Register", func() { err = r.Register(t.Context(), name, c) })
	if err != nil {
		t.Fatal(err)
	}
}

func unregister(t testing.TB, r *registry.Registry, name string, c *conn.Conn) {
	t.Helper()
	var err error
	testenv.Within(t, "Unregister", func() { err = r.Unregister(t.Context(), name, c) })
	if err != nil {
		t.Fatal(err)
	}
}

// wantFound checks that Lookup finds this Conn under a name, or none if want is nil.
func wantFound(t testing.TB, r *registry.Registry, name string, want *conn.Conn) {
	t.Helper()
	if got, found := r.Lookup(name); got != want || found != (want != nil) {
		t.Errorf("Lookup(%q) returned %p, %t; want %p", name, got, found, want)
	}
}
