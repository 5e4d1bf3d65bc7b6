package sharing

import (
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/internal/signal"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// Local returns a link for a client of this process. It stands for the link to the server: it is
// lost for the same reason, and its Close ends the server.
func (s *Server) Local() transport.Link {
	near, far := inmem.Pipe(inmem.Options{})
	s.Serve(far)
	l := &local{near, s}
	if recorder, ok := s.link.(transport.ActivityRecorder); ok {
		return &recording{l, recorder}
	}
	return l
}

// A local is a link to a Server in this process.
type local struct {
	transport.Link
	server *Server
}

// Bind implements transport.Link.
func (l *local) Bind(to transport.Receiver) { l.Link.Bind(&explaining{to, l.server}) }

// Close implements transport.Link.
func (l *local) Close(grace time.Duration) error {
	return errors.Join(l.server.Close(grace), l.Link.Close(grace))
}

// A recording is a local whose server says when bytes come in, from whomever they are for.
type recording struct {
	*local
	transport.ActivityRecorder
}

// An explaining receiver gets the reason of the server's loss in place of that of its own link.
type explaining struct {
	transport.Receiver
	server *Server
}

// Lost implements transport.Receiver.
func (e *explaining) Lost(loss transport.Loss) {
	if signal.IsClosed(e.server.Done()) {
		loss.Reason = e.server.Reason()
	}
	e.Receiver.Lost(loss)
}
