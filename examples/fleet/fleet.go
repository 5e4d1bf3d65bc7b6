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
// region. All sessions share the registry of names, the gate and the wheel.
type fleet struct {
	tree   *supervisor.Supervisor
	names  *registry.Registry
	shared conn.Tuning
	faults map[string]chan struct{} // for each region: makes its auditor panic

	sites   map[string]*site
	callers sync.WaitGroup
	holding chan struct{} // gets a value for each call of the tool hold that is running
	release chan struct{} // closed to make these calls end
}

func newFleet() *fleet {
	return &fleet{
		tree:  supervisor.New(supervisor.Options{Name: "fleet"}),
		names: registry.New(registry.Options{}),
		shared: conn.Tuning{
			Gate: &conn.Gate{Places: 4}, Wheel: new(conn.Wheel),
			BackoffMin: 10 * time.Second, // wait this long before the first reconnection
		},
		faults:  make(map[string]chan struct{}),
		sites:   make(map[string]*site),
		holding: make(chan struct{}, 2),
		release: make(chan struct{}),
	}
}

// connect starts the regions. It waits for the servers only after it has started all
// sessions.
func (f *fleet) connect(ctx context.Context) error {
	for _, region := range []string{"east", "west"} {
		if err := f.join(ctx, region); err != nil {
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

// join starts a region: a supervisor, and below it an auditor and the sessions. Failures
// in one region do not affect others. Other code finds a session by its name.
func (f *fleet) join(ctx context.Context, region string) error {
	s := supervisor.New(supervisor.Options{Name: region, Intensity: restarts, Registry: f.names})
	if _, err := f.tree.Start(ctx, supervisor.ChildSpec{ID: region, Supervisor: s}); err != nil {
		return err
	}
	f.faults[region] = make(chan struct{}, restarts+1)
	if _, err := s.Start(ctx, supervisor.ChildSpec{ID: "auditor", Run: auditor(f.faults[region])}); err != nil {
		return err
	}
	c := client.New(protocol.Implementation{Name: "fleet", Version: "1.0"}, client.Options{Supervisor: s, Conn: f.shared})
	for i := range perRegion {
		name := fmt.Sprintf("%s-%02d", region, i)
		f.sites[name] = &site{name: name, holding: f.holding, release: f.release}
		f.sites[name].start()
		if _, err := c.Start(ctx, name, f.sites[name]); err != nil {
			return err
		}
	}
	return nil
}

// auditor returns a worker that panics when it gets a fault.
func auditor(faults <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-faults:
			panic("the auditor did not expect that")
		case <-ctx.Done():
			return nil
		}
	}
}

// call looks up the session with that name, and calls a tool of its server.
func (f *fleet) call(ctx context.Context, name, tool string, options client.CallOptions) (string, error) {
	found, ok := f.names.Lookup(name)
	if !ok {
		return "", fmt.Errorf("no session is called %q", name)
	}
	session, _ := client.SessionOf(found) // all names are of sessions
	result, err := session.With(options).CallTool(ctx, &protocol.CallToolParams{Name: tool})
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
		f.callers.Go(func() {
			answer, err := f.call(ctx, name, "hold", client.CallOptions{WaitForReady: true})
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

// await looks, and looks again after each change, until it has found what it looks for.
func await(ctx context.Context, look func() (found bool, changed <-chan struct{})) error {
	for {
		found, changed := look()
		if found {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("watching the fleet: %w", context.Cause(ctx))
		}
	}
}

// awaitTree waits until the report of the tree satisfies a condition.
func (f *fleet) awaitTree(ctx context.Context, reached func(supervisor.Report) bool) error {
	return await(ctx, func() (bool, <-chan struct{}) {
		report := f.tree.Report()
		return reached(report), report.Changed()
	})
}

// awaitRunning waits until the first region was restarted the given number of times and
// all children are running.
func (f *fleet) awaitRunning(ctx context.Context, restarts int) error {
	return f.awaitTree(ctx, func(r supervisor.Report) bool {
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

// leave waits for the callers and stops the servers.
func (f *fleet) leave() (err error) {
	f.callers.Wait()
	for _, s := range f.sites {
		err = errors.Join(err, s.stop(context.Background()))
	}
	return err
}
