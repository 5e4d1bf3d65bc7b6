//go:build !linux && !darwin && !freebsd && !netbsd && !openbsd && !dragonfly

package guardian

import (
	"context"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

const supported = false

func serve([]string) {}

// A Link is a link to a guarded server. There is none on this system.
type Link struct{ transport.Link }

// Open returns an error: Start returns nil on this system.
func (g *Guardian) Open(context.Context, *stdio.Command, time.Time) (*Link, error) {
	return nil, errNone
}

// Renew does nothing on this system.
func (l *Link) Renew(time.Time) {}
