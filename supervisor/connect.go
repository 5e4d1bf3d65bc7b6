package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// Connect runs a Conn as a Transient child named by Conn.Name, within the
// default Shutdown. It fails as Start does, waits for the Registry and for what
// Start waits for, and starts no goroutine but the Conn's own. It panics without
// a Conn.
//
// Links, handshakes and the delays between them are the Conn's business, and
// none of them counts as a restart. Only a panic of an initiator's loop does:
// the Conn runs again at once, and continues its ids and epochs. So it does
// when a strategy restarts it, or a supervisor above: it loses its link and
// begins another, and the handle stays what it is. A Conn that has closed for
// good is over, and so is its child; Err says why it closed.
//
// When no restart follows a panic, because the supervisor stops or gives up,
// the Conn is closed for good, so that nobody waits for it.
func (s *Supervisor) Connect(ctx context.Context, c *conn.Conn) (*Child, error) {
	if c == nil {
		panic("supervisor: Connect needs a Conn")
	}
	return s.Start(ctx, (&connection{Conn: c, names: s.options.Registry}).spec())
}

// A connection is a Conn as a child.
type connection struct {
	*conn.Conn
	names *registry.Registry // that have it while it is one; nil: none
	named bool               // it has its name from here
	begun bool               // a Run has ended, and another would go on from there
}

func (c *connection) spec() ChildSpec {
	spec := ChildSpec{ID: c.Name(), Run: c.run, Drain: c.drain, Restart: Transient, what: c}
	if c.names != nil {
		spec.Init = c.register
	}
	return spec
}

// register gives the Conn its name. One that has it from somewhere else keeps it.
func (c *connection) register(ctx context.Context) error {
	holder, _ := c.names.Lookup(c.Name())
	c.named = c.named || holder != c.Conn
	err := c.names.Register(ctx, c.Name(), c.Conn)
	if c.Name() == "" {
		return fmt.Errorf("a Conn that is registered needs a conn.Options.Name: %w", err)
	}
	return err
}

// run gives the name back when no other Run goes on from here.
func (c *connection) run(ctx context.Context) error {
	err := c.Conn.Run(ctx)
	if c.begun = c.isResumable(err); c.begun {
		return err
	}
	return c.unregister(err)
}

// drain is Close. A Conn whose Run has yet to begin, or has ended, has nothing
// to finish.
func (c *connection) drain(ctx context.Context) error {
	if err := c.Close(ctx); !errors.Is(err, conn.ErrNotRunning) {
		return err
	}
	return nil
}

// outcome: what an earlier Run has left is closed also when its name could not
// be had again.
func (c *connection) outcome(err error) (final, resumes bool) {
	return !c.isResumable(err), c.begun && !isClosed(c.Done())
}

// isResumable reports whether another Run continues the one that returned err.
func (c *connection) isResumable(err error) bool {
	return !isClosed(c.Done()) && (errors.As(err, new(*conn.PanicError)) || errors.Is(err, conn.ErrInterrupted))
}

// dismiss closes a Conn that will not be run again although it could be.
func (c *connection) dismiss(err error) error {
	c.Stop() // so that it opens no link
	return c.unregister(errors.Join(err, c.Conn.Run(context.Background())))
}

// patience is how long a Store may take to get a name back. A Conn whose name it
// has not got is over all the same, and long before its Shutdown.
const patience = time.Second

// unregister adds to err that the name was not given back.
func (c *connection) unregister(err error) error {
	if !c.named {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if failed := c.names.Unregister(ctx, c.Name(), c.Conn); failed != nil {
		return errors.Join(err, failed)
	}
	return err
}
