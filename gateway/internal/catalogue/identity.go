package catalogue

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// IdentityOf returns what a server runs, as a digest: its command with arguments and folder, or its URL. Variables of the
// environment and headers do not count, since a rotated token makes no other server of it.
func IdentityOf(t transport.Transport) string {
	var what string
	switch t := t.(type) {
	case *stdio.Command:
		what = fmt.Sprintf("command %q %q %q", t.Path, t.Args, t.Dir)
	case *streamable.Client:
		what = fmt.Sprintf("url %q", t.URL)
	case *sse.Client:
		what = fmt.Sprintf("url %q", t.URL)
	default:
		what = fmt.Sprintf("%T", t)
	}
	sum := sha256.Sum256([]byte(what))
	return hex.EncodeToString(sum[:])
}
