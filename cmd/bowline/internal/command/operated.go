package command

import (
	"context"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/member"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/audit"
)

// An operated gateway is one with what only the command knows: where it is served, where its file is, and how that is read.
type operated struct {
	*gateway.Gateway
	endpoint string
	file     string // absolute: who asks may be in another folder
	reload   func() error
	end      func() // ends the command
	audit    *trailing
	access   *access
}

// A clustered gateway is one at a node of a cluster.
type clustered struct {
	*operated
	node   *member.Node
	others *member.Others
}

// Move implements admin.Clustered. The nodes that take and give up a server record it; what did not get to a node is recorded here.
func (c *clustered) Move(ctx context.Context, server, node string) error {
	err := c.node.MoveServer(ctx, server, node)
	if err != nil && node != c.node.Name() {
		c.Moved(ctx, server, node, err)
	}
	return err
}

// Nodes implements admin.Clustered.
func (c *clustered) Nodes(ctx context.Context) (string, []admin.NodeReport) {
	return c.others.Nodes(ctx)
}

// Report implements admin.Gateway.
func (o *operated) Report() admin.Report {
	r := o.Gateway.Report()
	r.Denied = o.access.denied()
	r.PagesRefused += o.access.pages.Load()
	if r.Endpoint, r.File = o.endpoint, o.file; o.audit.trail != nil {
		r.AuditFile, r.AuditKey = o.audit.File, o.audit.Key
		r.AuditLost, r.AuditUnsent = o.audit.trail.Lost(), o.audit.unsent()
	}
	return r
}

// Reload implements admin.Gateway. It goes on when the person who has asked for it does not wait any more: half a reload would be worse.
func (o *operated) Reload(context.Context) error { return o.reload() }

// keysRotated records that the keys of the cluster were rotated, when this gateway has seen that. Each gateway does, since the command asks none of them. The next rotation
// must be seen while the disk is full, so it does not wait for ever.
func (o *operated) keysRotated(s cluster.KeysStatus) {
	if write := o.audit.write(); write != nil {
		ctx, cancel := context.WithTimeout(context.Background(), process.FinishGrace)
		defer cancel()
		write(ctx, audit.Record{Time: time.Now(), Event: "keys rotate", Principal: gateway.Admin, User: s.By})
	}
}

// Records implements admin.Gateway.
func (o *operated) Records() (records []audit.Record, changed <-chan struct{}, ok bool) {
	if o.audit.trail == nil {
		return nil, nil, false
	}
	records, changed = o.audit.trail.Recent()
	return records, changed, true
}

// End implements admin.Gateway.
func (o *operated) End() { o.end() }
