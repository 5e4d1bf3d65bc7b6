package command

import (
	"context"

	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
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
