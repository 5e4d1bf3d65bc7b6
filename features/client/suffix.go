package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/transport"
)

// begin has a connection run under the client's name or, if that is another's,
// with a suffix.
func (c *Client) begin(ctx context.Context, t transport.Transport) (s *Session, err error) {
	s, err = c.run(ctx, c.options.Conn.Name, t, false)
	if !errors.As(err, new(*supervisor.DuplicateError)) {
		return s, err
	}
	for {
		s, err = c.run(ctx, c.suffixed(), t, false)
		if !errors.As(err, new(*supervisor.DuplicateError)) && !errors.As(err, new(*registry.TakenError)) {
			return s, err
		}
	}
}

// suffixed is the client's name with a suffix that no child of its supervisor has.
// Other clients may have given theirs, many of them: so what is taken is passed
// over in ever longer steps, and the way back halved.
func (c *Client) suffixed() string {
	name := func(suffix int64) string { return fmt.Sprintf("%s-%d", c.options.Conn.Name, suffix) }
	taken := func(suffix int64) bool { return isRun(c.options.Supervisor, name(suffix)) }
	free, step := max(c.suffix.Add(1), 2), int64(1)
	for ; taken(free); step *= 2 {
		free += step
	}
	for below := step / 2; below > 0; below /= 2 {
		if !taken(free - below) {
			free -= below
		}
	}
	c.suffix.Store(free)
	return name(free)
}

// isRun reports whether a child has that name and is not over.
func isRun(s *supervisor.Supervisor, name string) bool {
	child, listed := s.Child(name)
	if !listed {
		return false
	}
	select {
	case <-child.Done():
		return false
	default:
		return true
	}
}
