package parts

import (
	"fmt"

	"github.com/bowline-mcp/bowline/transport"
)

// A Single is what a link embeds that has no stream but Main: the methods of transport.Link that are about streams, and the credit of Main.
// The zero value is ready to use.
type Single struct{ Credit Credit }

// Grant implements transport.Link.
func (s *Single) Grant(stream transport.Stream, frames int) {
	if stream == transport.Main {
		s.Credit.Grant(frames)
	}
}

// Resume implements transport.Link. Main is never lost while the link lives.
func (*Single) Resume(transport.Stream) {}

// End implements transport.Link. Main ends with the link.
func (*Single) End(transport.Stream) {}

// Refuses says why such a link of a transport does not send a frame, whatever its state is; nil: it may be sent.
func (*Single) Refuses(o transport.Outbound, name string, limit int) error {
	switch {
	case o.Stream != transport.Main:
		return fmt.Errorf("%s: send on stream %d: %w", name, o.Stream, transport.ErrNoRoute)
	case len(o.Frame) > limit:
		return &transport.OversizedError{Limit: limit, Size: len(o.Frame)}
	default:
		return nil
	}
}
