package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/supervisor/registry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

const (
	perRegion = 10
	restarts  = 3                   // how many restarts a region allows within five seconds
	children  = 2 * (perRegion + 1) // the children of all regions: the sessions, and one auditor for each region
)

// A fleet is a tree of supervisors: one for each region, with the sessions of that
// region. All sessions share the registry of names, the gate and the wheel.
type fleet struct {
	out    io.Writer
	tree   *supervisor.Supervisor
	names  *registry.Registry
	shared conn.Tuning
	faults chan struct{} // makes the auditor of east panic
	sites  map[string]*site

	holding chan struct{} // gets a value for each call of the tool hold that is running
	release chan struct{} // closed to make these calls end
}

func newFleet(out io.Writer) *fleet {
	return &fleet{
		out: out, tree: supervisor.New(supervisor.Options{Name: "fleet"}), names: registry.New(registry.Options{}),
		shared: conn.Tuning{
			Gate: &conn.Gate{Places: 4}, Wheel: new(conn.Wheel),
			BackoffMin: 10 * time.Second, // wait this long before the first reconnection
		},
		faults: make(chan struct{}, restarts+1), sites: make(map[string]*site),
		holding: make(chan struct{}, 2), release: make(chan struct{}),
	}
}

// join starts a region: a supervisor, and below it an auditor and the sessions. Failures
// in one region do not affect others. It does not wait for the servers.
func (f *fleet) join(ctx context.Context, region string, auditor func(context.Context) error) error {
	s := supervisor.New(supervisor.Options{Name: region, Intensity: restarts, Registry: f.names})
	if _, err := f.tree.Start(ctx, supervisor.ChildSpec{ID: region, Supervisor: s}); err != nil {
		return err
	}
	if _, err := s.Start(ctx, supervisor.ChildSpec{ID: "auditor", Run: auditor}); err != nil {
		return err
	}
	c := client.New(protocol.Implementation{Name: "fleet", Version: "1.0"}, client.Options{Supervisor: s, Conn: f.shared})
	for i := range perRegion {
		at := &site{name: fmt.Sprintf("%s-%02d", region, i), fleet: f}
		at.start()
		f.sites[at.name] = at
		if _, err := c.Start(ctx, at.name, at); err != nil {
			return err
		}
	}
	return nil
}

// audit is a worker that panics when it gets a fault.
func (f *fleet) audit(ctx context.Context) error {
	select {
	case <-f.faults:
		panic("the auditor did not expect that")
	case <-ctx.Done():
		return nil
	}
}

// call looks up the session with that name, and calls a tool of its server.
func (f *fleet) call(ctx context.Context, name, tool string, o client.CallOptions) (string, error) {
	found, ok := f.names.Lookup(name)
	if !ok {
		return "", fmt.Errorf("no session is called %q", name)
	}
	session, _ := client.SessionOf(found) // all names are of sessions
	result, err := session.With(o).CallTool(ctx, &protocol.CallToolParams{Name: tool})
	if err != nil {
		return "", err
	}
	return result.Content.Text(), nil
}

// answer calls a tool of a server, for which it waits. It returns the answer, or why there is none.
func (f *fleet) answer(ctx context.Context, name, tool string) string {
	answer, err := f.call(ctx, name, tool, client.CallOptions{WaitForReady: true})
	if err != nil {
		return err.Error()
	}
	return answer
}

// awaitChildren waits until so many children of the regions are in a state, and the first
// region was restarted so many times. It looks again after each change.
func (f *fleet) awaitChildren(ctx context.Context, n int, state supervisor.State, restarts int) error {
	for {
		report, found := f.tree.Report(), 0
		for _, region := range report.Children {
			for _, child := range region.Supervisor.Children {
				if child.State == state {
					found++
				}
			}
		}
		if found == n && report.Children[0].Restarts == restarts {
			return nil
		}
		select {
		case <-report.Changed():
		case <-ctx.Done():
			return fmt.Errorf("watching the fleet: %w", context.Cause(ctx))
		}
	}
}

// A site is a place for a server in memory, and the transport to that server.
type site struct {
	name   string
	fleet  *fleet
	server atomic.Pointer[server.Server] // nil while it is down
}

// Open implements transport.Transport.
func (s *site) Open(context.Context) (transport.Link, error) {
	up := s.server.Load()
	if up == nil {
		return nil, fmt.Errorf("%s is down", s.name)
	}
	ours, theirs := inmem.Pipe(inmem.Options{})
	up.Accept(theirs)
	return ours, nil
}

func (s *site) start() {
	up := server.New(protocol.Implementation{Name: s.name, Version: "1.0"}, server.Options{})
	server.AddTool(up, protocol.Tool{Name: "name", Description: "returns the name of the server"},
		func(context.Context, struct{}) (string, error) { return s.name, nil })
	server.AddTool(up, protocol.Tool{Name: "hold", Description: "runs until it is released"}, s.hold)
	s.server.Store(up)
}

func (s *site) hold(ctx context.Context, _ struct{}) (string, error) {
	s.fleet.holding <- struct{}{}
	select {
	case <-s.fleet.release:
		return "done", nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
