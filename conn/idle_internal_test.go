package conn

import (
	"testing"

	"github.com/bowline-mcp/bowline/conn/internal/inbox"
	"github.com/bowline-mcp/bowline/internal/sizes"
)

// The parts of an idle connection are as large as docs/design/IDLE.md says.
func TestIdleConnectionIsAsLargeAsTheDocumentSays(t *testing.T) {
	sizes.Check(t, "../docs/design/IDLE.md",
		new(Conn), new(core), new(loop), new(loopEnd), new(statusCell), new(inbox.Inbox[notification]), new(endings), new(Incarnation), new(receiver),
		new(servedContext), new(openingCaller), new(Message))
}
