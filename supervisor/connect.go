package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// Connect runs a Conn as a Transient child with the default Shutdown. The
// child's ID is Conn.Name. Connect waits and fails as Start does, and also
// waits for the Registry to hold the name. Neither an idle Conn nor its child has a
// goroutine. Connect panics when the Conn is nil.
//
// Links, handshakes and the delays between them belong to the Conn, and none of
// them counts as a restart. Only a panic in an initiator's loop does: the
// supervisor then runs the Conn again immediately. The same happens when a strategy
// or a supervisor above restarts it. In both cases the Conn opens a new link and
// keeps its handle, its ids and its epochs.
//
// The child terminates when the Conn has closed for good; Err says why it
// closed. If the Conn runs already, the child terminates at once with conn.ErrRunning; Restart
// can run it later. If no restart follows a panic, because the supervisor is stopping or
// gives up, the Conn is closed for good, so that no caller waits for it.
func (s *Supervisor) Connect(ctx context.Context, c *conn.Conn) (*Child, error) {
	if c == nil {
		panic("supervisor: Connect needs a Conn")
	}
	return s.Start(ctx, (&connection{Conn: c, names: s.options.Registry}).spec())
}

// A connection is a child that is a Conn.
type connection struct {
	*conn.Conn
	names      *registry.Registry // Options.Registry; nil if there is none
	registered bool               // this child has registered the name
	resumable  bool               // a Run has ended, and another Run could continue with the Conn
}

// isClosed reports whether the Conn has closed for good.
func (c *connection) isClosed() bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

func (c *connection) spec() ChildSpec {
	spec := ChildSpec{ID: c.Name(), conn: c, Restart: Transient, resource: c}
	if c.names != nil {
		spec.Init = c.register
	}
	return spec
}

// register registers the name. If the program had registered it before, the name
// is not unregistered later.
func (c *connection) register(ctx context.Context) error {
	holder, _ := c.names.Lookup(c.Name())
	c.registered = c.registered || holder != c.Conn
	err := c.names.Register(ctx, c.Name(), c.Conn)
	if c.Name() == "" {
		return fmt.Errorf("a Conn in a Registry needs conn.Tuning.Name: %w", err)
	}
	return err
}

// begin starts the Conn, and ends the child's Run when the Conn ends. If the name must be
// unregistered then, that does not happen on the goroutine that calls Close, because a
// Store may be slow.
func (c *connection) begin(ctx context.Context, child *Child) error {
	start := c.Conn.Control().Begin
	if c.names != nil {
		start = c.Conn.Start
	}
	err := start(ctx, func(err error) {
		child.supervisor.ended(child, recovered(func() error { return c.ended(err) }))
	})
	if err != nil {
		return c.ended(err)
	}
	return nil
}

// ended unregisters the name unless another Run can continue.
func (c *connection) ended(err error) error {
	if c.resumable = c.canResume(err); c.resumable {
		return err
	}
	return c.unregister(err)
}

// drain closes the Conn. If Run has not begun or has ended, there is nothing to finish.
func (c *connection) drain(ctx context.Context) error {
	if err := c.Close(ctx); !errors.Is(err, conn.ErrNotRunning) {
		return err
	}
	return nil
}

// outcome implements resource. If its name could not be registered again, the Conn of
// the earlier Run must be discarded, too.
func (c *connection) outcome(err error) (final, resumes bool) {
	return !c.canResume(err), c.resumable && !wait.IsClosed(c.Done())
}

// canResume reports whether another Run can continue after one that returned
// err.
func (c *connection) canResume(err error) bool {
	return !wait.IsClosed(c.Done()) && (errors.As(err, new(*conn.PanicError)) || errors.Is(err, conn.ErrInterrupted))
}

// discard implements resource. A stopped Conn closes for good when it runs, and
// opens no link.
func (c *connection) discard(err error) error {
	c.Stop()
	return c.unregister(errors.Join(err, c.Conn.Run(context.Background())))
}

// unregisterTimeout limits how long a Store may take. It is shorter than the default
// Shutdown.
const unregisterTimeout = time.Second

// unregister unregisters the name. It joins a failure of that with err.
func (c *connection) unregister(err error) error {
	if !c.registered {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), unregisterTimeout)
	defer cancel()
	if failed := c.names.Unregister(ctx, c.Name(), c.Conn); failed != nil {
		return errors.Join(err, failed)
	}
	return err
}
