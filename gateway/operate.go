package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/internal/catalogue"
)

// actGrace is how long calls may go on that run when a person stops or restarts their server.
const actGrace = 5 * time.Second

// Do stops, starts, restarts or wakes a server of the file, and returns when that has happened. It does not wait until the server
// is ready. Calls that are running have five seconds to finish. A server that was stopped stays so until Start or Restart, or
// until Apply finds other settings for it.
func (g *Gateway) Do(ctx context.Context, name string, action admin.Action) error {
	err := g.do(ctx, name, action)
	if g.options.Audit != nil {
		g.options.Audit(ctx, eventOf(Admin, string(action), name, err))
	}
	return err
}

func (g *Gateway) do(ctx context.Context, name string, action admin.Action) error {
	u := g.upstream(name)
	if u == nil {
		return g.absent(name)
	}
	defer g.notifier.notify()
	ctx, cancel := context.WithTimeout(ctx, actGrace)
	defer cancel()
	var err error
	switch action {
	case admin.Stop:
		u.note(nil)
		u.use.SetAsleep(false)
		defer g.endLostTasks(ctx)
		return g.set.Stop(ctx, name)
	case admin.Start:
		err = g.set.Start(ctx, name)
		g.resume(ctx, u)
	case admin.Restart:
		err = g.set.Restart(ctx, name)
		g.resume(ctx, u)
	case admin.Wake:
		return g.wakeNow(ctx, u)
	default:
		return fmt.Errorf("gateway: no such action: %s", action)
	}
	u.note(err)
	return err
}

// Await waits until a server of the file has been ready and has said what it offers, and returns what it says of itself. It fails when client.Client.Connect
// would, with the same error, or if the server does not list its tools within 30 s. The server goes on in any case, as Apply has started it.
func (g *Gateway) Await(ctx context.Context, name string) (client.Server, error) {
	u := g.upstream(name)
	if u == nil {
		return client.Server{}, g.absent(name)
	}
	if err := g.lifecycle.start(ctx, u, &u.shared); err != nil {
		return client.Server{}, err
	}
	session, running := g.set.Session(name)
	if !running {
		return client.Server{}, stopped(name, "it is not running")
	}
	if err := session.AwaitFirst(ctx); err != nil {
		return client.Server{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	for _, kind := range catalogue.Kinds() {
		if err := g.awaitList(ctx, name, kind); err != nil && kind == catalogue.Tools {
			return client.Server{}, fmt.Errorf("gateway: the server %q: %w", name, err)
		}
	}
	return session.Server(), nil
}

// PrepareMove starts the connection to a server of which a cluster has one, since another node is about to give that server up for this one. It returns
// why this gateway cannot run it: its file does not have the server, or has it as one for each node, or a person has stopped it here.
func (g *Gateway) PrepareMove(ctx context.Context, name string) error {
	u := g.upstream(name)
	switch {
	case u == nil:
		return g.absent(name)
	case !u.single || g.options.Exclusive == nil:
		return fmt.Errorf(`each node runs its own %q: only a server whose entry says "instances": "one" can be moved`, name)
	}
	if err := g.lifecycle.startIfAsleep(ctx, u); err != nil {
		return err
	}
	session, running := g.set.Session(name)
	if !running {
		return fmt.Errorf("%q is stopped at that node: start it there first", name)
	}
	session.Wake()
	return nil
}

// Moved records that a server was moved to a node of the cluster, or why it was not.
func (g *Gateway) Moved(ctx context.Context, name, node string, err error) {
	if g.options.Audit != nil {
		record := eventOf(Admin, "move", name, err)
		record.Name = node
		g.options.Audit(ctx, record)
	}
	g.notifier.notify()
}

// NotApplied keeps why a file was refused, for the report, until another one is applied. Apply need not have seen the file: then this is recorded, without the reason, which may quote the file.
func (g *Gateway) NotApplied(why error) {
	if !g.refuse(why) && g.options.Audit != nil {
		g.options.Audit(context.Background(), eventOf(Admin, "apply", "", errNotRead))
	}
}

// errNotRead is what the trail says of a file that did not get as far as Apply.
var errNotRead = errors.New("the file cannot be read, or was refused: the log and the report say why")

// refuse keeps why a file was refused, and reports whether Apply has said so.
func (g *Gateway) refuse(why error) (tried bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refusal = why
	g.notifier.notify()
	return g.tried != nil && errors.Is(why, g.tried)
}

// absent says why a server of this name is not there: the file does not have it, or it has a mistake there.
func (g *Gateway) absent(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wrong := g.mistakes[name]; wrong != nil {
		return wrong
	}
	return fmt.Errorf("%w: the file has no %q", admin.ErrNoServer, name)
}

func (g *Gateway) wakeNow(ctx context.Context, u *upstream) error {
	for _, c := range u.ofOwners() {
		if session, running := g.lifecycle.session(u, c); running {
			session.Wake()
		}
	}
	if _, asleep := u.use.IsAsleep(); asleep {
		return g.lifecycle.startIfAsleep(ctx, u)
	}
	session, running := g.set.Session(u.Name)
	if !running {
		return errors.New("it does not wait for an attempt: it is stopped, and can be started")
	}
	session.Wake()
	return nil
}

// Stderr returns the last lines that the child of a server has written to its standard error, over all its restarts. Ok is false
// if the file has no such server.
func (g *Gateway) Stderr(name string) (log admin.Log, ok bool) {
	u := g.upstream(name)
	if u == nil {
		return nil, false
	}
	return &u.stderr, true
}
