package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

const (
	perRegion = 10
	restarts  = 3                   // how many restarts a region allows within five seconds
	children  = 2 * (perRegion + 1) // the children of all regions: the sessions, and one auditor for each region
)

// A fleet is a tree of supervisors: one for each region, with the sessions of that
// region. All sessions share the registry of names and the gate.
type fleet struct {
	tree    *supervisor.Supervisor
	regions []*region
	names   *registry.Registry
	gate    *conn.Gate
	wheel   *conn.Wheel

	sites   map[string]*site
	callers sync.WaitGroup
	holding chan struct{} // gets a value for each call of the tool hold that is running
	release chan struct{} // closed to make these calls end
}

// A region is a supervisor and its children. Failures in one region do not affect others.
type region struct {
	name       string
	supervisor *supervisor.Supervisor
	faults     chan struct{} // makes the auditor panic
}

func newFleet() *fleet {
	f := &fleet{
		tree:    supervisor.New(supervisor.Options{Name: "fleet"}),
		names:   registry.New(registry.Options{}),
		gate:    &conn.Gate{Places: 4},
		wheel:   new(conn.Wheel),
		sites:   make(map[string]*site),
		holding: make(chan struct{}, 2),
		release: make(chan struct{}),
	}
	for _, name := range []string{"east", "west"} {
		r := &region{name: name, faults: make(chan struct{}, restarts+1)}
		r.supervisor = supervisor.New(supervisor.Options{Name: name, Intensity: restarts, Registry: f.names})
		f.regions = append(f.regions, r)
		for i := range perRegion {
			s := &site{name: siteName(name, i), holding: f.holding, release: f.release}
			s.start()
			f.sites[s.name] = s
		}
	}
	return f
}

// connect starts the regions, and in each of them an auditor and the sessions. It waits
// for the servers only after it has started all sessions.
func (f *fleet) connect(ctx context.Context) error {
	for _, r := range f.regions {
		if _, err := f.tree.Start(ctx, supervisor.ChildSpec{ID: r.name, Supervisor: r.supervisor}); err != nil {
			return err
		}
		if _, err := r.supervisor.Start(ctx, supervisor.ChildSpec{ID: "auditor", Run: r.audit}); err != nil {
			return err
		}
		if err := f.join(ctx, r); err != nil {
			return err
		}
	}
	for _, c := range f.names.All() {
		if err := c.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// join starts the sessions of a region. Other code finds a session by its name.
func (f *fleet) join(ctx context.Context, r *region) error {
	c := client.New(protocol.Implementation{Name: "fleet", Version: "1.0"}, client.Options{
		Supervisor: r.supervisor,
		Conn: conn.Options{
			Gate: f.gate, Wheel: f.wheel,
			BackoffMin: 10 * time.Second, // wait this long before the first reconnection
		},
	})
	for i := range perRegion {
		name := siteName(r.name, i)
		if _, err := c.Start(ctx, name, f.sites[name]); err != nil {
			return err
		}
	}
	return nil
}

func siteName(region string, number int) string { return fmt.Sprintf("%s-%02d", region, number) }

// audit is a worker that panics when it gets a fault.
func (r *region) audit(ctx context.Context) error {
	select {
	case <-r.faults:
		panic("the auditor of " + r.name + " did not expect that")
	case <-ctx.Done():
		return nil
	}
}

// session returns the session with that name.
func (f *fleet) session(name string) (*client.Session, error) {
	if found, ok := f.names.Lookup(name); ok {
		if session, ok := client.SessionOf(found); ok {
			return session, nil
		}
	}
	return nil, fmt.Errorf("no session is called %q", name)
}

// ask calls a tool in the session with that name.
func (f *fleet) ask(ctx context.Context, name, tool string) (string, error) {
	session, err := f.session(name)
	if err != nil {
		return "", err
	}
	return call(ctx, session, tool)
}

func call(ctx context.Context, session *client.Session, tool string) (string, error) {
	result, err := session.CallTool(ctx, &protocol.CallToolParams{Name: tool})
	if err != nil {
		return "", err
	}
	return result.Content.Text(), nil
}

// hold calls the tool hold of each named server, and waits for servers that are not ready
// yet. It returns when all these calls are running.
func (f *fleet) hold(ctx context.Context, names ...string) (answers <-chan string, err error) {
	told := make(chan string, len(names))
	for _, name := range names {
		session, err := f.session(name)
		if err != nil {
			return nil, err
		}
		f.callers.Go(func() {
			answer, err := call(ctx, session.With(client.CallOptions{WaitForReady: true}), "hold")
			if err != nil {
				answer = err.Error()
			}
			told <- answer
		})
	}
	for range names {
		select {
		case <-f.holding:
		case answer := <-told:
			return nil, fmt.Errorf("a call of hold has ended early: %s", answer)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return told, nil
}

// await waits until the report of the tree satisfies a condition.
func (f *fleet) await(ctx context.Context, reached func(supervisor.Report) bool) error {
	for {
		report := f.tree.Report()
		if reached(report) {
			return nil
		}
		select {
		case <-report.Changed():
		case <-ctx.Done():
			return fmt.Errorf("watching the fleet: %w", context.Cause(ctx))
		}
	}
}

// awaitRunning waits until the first region was restarted the given number of times and
// all children are running.
func (f *fleet) awaitRunning(ctx context.Context, restarts int) error {
	return f.await(ctx, func(r supervisor.Report) bool {
		return r.Children[0].Restarts == restarts && count(r, supervisor.Running) == children
	})
}

// count counts the children of all regions that are in a state.
func count(r supervisor.Report, state supervisor.State) (n int) {
	for _, region := range r.Children {
		for _, child := range region.Supervisor.Children {
			if child.State == state {
				n++
			}
		}
	}
	return n
}

// awaitState waits until a connection is in a state. Changes of a connection are not
// changes of the tree, so await does not see them.
func awaitState(ctx context.Context, c *conn.Conn, state conn.State) error {
	for {
		status := c.Status()
		if status.State == state {
			return nil
		}
		select {
		case <-status.Changed():
		case <-ctx.Done():
			return fmt.Errorf("watching %s: %w", c.Name(), context.Cause(ctx))
		}
	}
}

// leave waits for the callers and stops the servers.
func (f *fleet) leave() (err error) {
	f.callers.Wait()
	for _, s := range f.sites {
		err = errors.Join(err, s.stop(context.Background()))
	}
	return err
}
