package streamable

import (
	"testing"

	"github.com/bowline-mcp/bowline/internal/sizes"
)

// The parts of an idle connection are as large as docs/design/IDLE.md says.
func TestIdleConnectionIsAsLargeAsTheDocumentSays(t *testing.T) {
	sizes.Check(t, "../../docs/design/IDLE.md",
		new(serverLink), new(use), new(clientKey), new(budget), new(mainStream), new(response), new(numbering), new(alarm),
		new(clientLink), new(clientStream), new(remote), new(postHeader), new(session))
}
