package command

import (
	"context"
	"net"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/doors"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/spf13/cobra"
)

// An operated gateway is one with what only the command knows: where it is served, and how its file is read.
type operated struct {
	*gateway.Gateway
	endpoint string
	reload   func() error
}

// Report implements admin.Gateway.
func (o *operated) Report() admin.Report {
	r := o.Gateway.Report()
	r.Endpoint = o.endpoint
	return r
}

// Reload implements admin.Gateway. It goes on when the person who has asked for it does not wait any more: half a reload would be worse.
func (o *operated) Reload(context.Context) error { return o.reload() }

func (u *upping) openDoors(cmd *cobra.Command, g *gateway.Gateway, listener net.Listener) (*doors.Doors, error) {
	return doors.Open(&operated{g, urlOf(listener), func() error { return u.reload(cmd, g) }}, doors.Options{
		File: u.path, Socket: u.socket, Page: u.page, Insecure: u.insecure,
		Say: func(text string) { cmd.PrintErrln(render.Message(text)) },
	})
}
