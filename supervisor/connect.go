package supervisor

import (
	"context"
	"errors"

	"github.com/bowline-mcp/bowline/conn"
)

// Connect runs a Conn as a Transient child named by Conn.Name, within the
// default Shutdown. It fails as Start does, and starts no goroutine but the
// Conn's own.
//
// Links, handshakes and the delays between them are the Conn's business, and
// none of them counts as a restart. Only a panic of an initiator's loop does:
// the Conn runs again at once, and continues its ids and epochs. A Conn that
// has closed for good is over, and so is its child; Err says why it closed.
//
// When no restart follows a panic, because the supervisor stops or gives up,
// the Conn is closed for good, so that nobody waits for it.
func (s *Supervisor) Connect(c *conn.Conn) (*Child, error) {
	return s.Start(ChildSpec{
		ID: c.Name(), Run: c.Run, Restart: Transient,
		final: func(err error) bool { return !resumable(c, err) },
		last:  func(err error) error { return closeAfter(c, err) },
	})
}

// closeAfter closes a Conn that will not be run again although it could be. A
// Conn that was stopped before its Run opens no link.
func closeAfter(c *conn.Conn, err error) error {
	if !resumable(c, err) {
		return err
	}
	c.Stop()
	return errors.Join(err, c.Run(context.Background()))
}

// resumable reports whether another Run of the Conn continues the one that
// returned err.
func resumable(c *conn.Conn, err error) bool {
	select {
	case <-c.Done():
		return false
	default:
		return errors.As(err, new(*conn.PanicError))
	}
}
