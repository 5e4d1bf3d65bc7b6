package client

import (
	"testing"

	"github.com/bowline-mcp/bowline/internal/sizes"
)

// The parts of an idle connection are as large as docs/design/IDLE.md says.
func TestIdleConnectionIsAsLargeAsTheDocumentSays(t *testing.T) {
	sizes.Check(t, "../../docs/design/IDLE.md",
		new(session), new(Session), new(peer))
}
