package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
)

// Pins returns the tools of all servers that are not as they were approved, in the order of the file.
func (g *Gateway) Pins() []admin.Pin {
	known, all := g.known.Snapshot(), []admin.Pin{}
	g.mu.Lock()
	order := g.order
	g.mu.Unlock()
	for _, name := range order {
		for _, c := range known.Changed(name) {
			all = append(all, pinOf(c))
		}
	}
	return all
}

func pinOf(c catalogue.Changed) admin.Pin {
	p := admin.Pin{Server: c.Server, Tool: c.Own, Held: c.Held, Version: c.Version}
	for _, m := range c.Members {
		p.Changes = append(p.Changes, admin.PinChange(m))
	}
	return p
}

// Approve approves tools of a server as they are now, by the names that the server uses, or all that have changed if none is named. A name may have an @ and the
// Version of its admin.Pin: a tool that is another one by now is not approved then. A name with an @ in it needs that. It fails with
// admin.ErrNoServer, or if a tool has not changed; then none is approved.
func (g *Gateway) Approve(ctx context.Context, name string, tools ...string) error {
	err := g.approve(ctx, name, tools)
	if g.options.Audit != nil {
		g.options.Audit(ctx, eventOf(Admin, "approve", name, err))
	}
	return err
}

func (g *Gateway) approve(ctx context.Context, name string, tools []string) error {
	u, now := g.upstream(name), g.known.Snapshot()
	if u == nil {
		return g.absent(name)
	}
	changed := now.Changed(name)
	for _, tool := range tools {
		if !slices.ContainsFunc(changed, func(c catalogue.Changed) bool { return c.IsCalled(tool) }) {
			return fmt.Errorf("%s has no tool %s that has changed since it was approved, or it has changed once more: see bowline pins", name, quoted(tool))
		}
	}
	if g.shared != nil && len(changed) > 0 {
		return errors.Join(g.shared.Approve(ctx, u.Server, now.Approval(name, tools...)), g.known.Save())
	}
	if count, offered := g.known.Approve(name, tools...); count == 0 {
		return fmt.Errorf("no tool of %s has changed since it was approved", name)
	} else if offered {
		g.announcer.add(catalogue.Tools)
	}
	return g.known.Save()
}
