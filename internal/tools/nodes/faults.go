//go:build unix

package nodes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// A Fault is something that happens to a Site, and ends.
type Fault struct {
	Name   string
	Setups []Setup
	Limit  time.Duration // how long a session may be without an answer, with some room for a slow machine

	// MayLose says for which node the sessions that have begun there may be lost; nil: for none.
	MayLose func(node string) bool

	// Steps are what happens, one after the other. The site is whole when they have ended.
	Steps []Step
}

// A Step is a part of a Fault.
type Step struct {
	Down int // the node that answers nobody meanwhile; nobody: each answers

	// Begin causes it, and returns what ends it.
	Begin func(context.Context, *Site) (end func(context.Context) error, err error)
}

const nobody = -1

// cause causes a step, does something while it is in force, and ends it.
func (s *Step) cause(ctx context.Context, site *Site, meanwhile func()) error {
	end, err := s.Begin(ctx, site)
	if err != nil {
		return err
	}
	meanwhile()
	return end(ctx)
}

const (
	victim   = 1                // the node that faults hit; node 0 has the server of NATS in it, if a node has
	stopped  = 27 * time.Second // longer than a lease lasts
	cutOff   = 25 * time.Second // the same
	doorShut = 10 * time.Second
)

var (
	every    = []Setup{OneServer, EmbeddedServers, ThreeServers}
	embedded = []Setup{OneServer}
	external = []Setup{ThreeServers}
)

// Faults returns all faults.
func Faults() []Fault {
	return []Fault{
		{Name: "node: kill -9", Setups: every, Limit: 22 * time.Second, Steps: one(killNode(victim, 0))},
		{Name: "node: SIGSTOP 27 s", Setups: every, Limit: stopped + 12*time.Second, Steps: one(stopNode(victim, stopped))},
		{Name: "node: SIGTERM", Setups: every, Limit: 8 * time.Second, Steps: one(endNode(victim, 0))},
		{Name: "node with the server: kill -9", Setups: embedded, Limit: 22 * time.Second, Steps: one(killNode(0, 0))},
		{Name: "node with the server: SIGSTOP 27 s", Setups: embedded, Limit: stopped + 12*time.Second, Steps: one(stopNode(0, stopped))},
		{Name: "NATS: leader killed", Setups: external, Limit: 3 * time.Second, Steps: one(Step{nobody, killLeader})},
		{Name: "node cut off from NATS 25 s", Setups: external, Limit: 8 * time.Second, Steps: one(Step{nobody, cutFromNATS})},
		{Name: "node cut off from nodes 10 s", Setups: every, Limit: doorShut + 5*time.Second, Steps: one(cutFromNodes(victim, doorShut))},
		{Name: "NATS: away 25 s", Setups: external, Limit: 3 * time.Second, Steps: one(awayFor(cutOff))},
		{Name: "NATS: back with an empty disk", Setups: external, Limit: 3 * time.Second, Steps: one(Step{nobody, wipeServers})},
		{Name: "NATS: back with an empty disk", Setups: embedded, Limit: 22 * time.Second, Steps: one(Step{0, wipeHolder}),
			MayLose: func(node string) bool { return node == nodeName(0) }}, // it has ended with its records
		{Name: "each node in turn: kill -9", Setups: every, Limit: 22 * time.Second, Steps: inTurn(killNode)},
		{Name: "rolling restart", Setups: every, Limit: 8 * time.Second, Steps: inTurn(endNode)},
	}
}

func one(s Step) []Step { return []Step{s} }

// inTurn causes a step at one node after the other.
func inTurn(step func(node int, lasts time.Duration) Step) (all []Step) {
	for node := range siteNodes {
		all = append(all, step(node, 0))
	}
	return all
}

func killNode(node int, lasts time.Duration) Step {
	return Step{node, func(_ context.Context, s *Site) (func(context.Context) error, error) {
		return again(s, node, lasts), s.Kill(node)
	}}
}

func endNode(node int, lasts time.Duration) Step {
	return Step{node, func(_ context.Context, s *Site) (func(context.Context) error, error) {
		return func(ctx context.Context) error {
			if err := s.Wait(node); err != nil {
				return err
			}
			return again(s, node, lasts)(ctx)
		}, s.Signal(node, syscall.SIGTERM)
	}}
}

// again starts a node that has ended after a while.
func again(s *Site, node int, lasts time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := wait.Sleep(ctx, lasts); err != nil {
			return err
		}
		return s.StartNode(ctx, node)
	}
}

func stopNode(node int, lasts time.Duration) Step {
	return Step{node, func(_ context.Context, s *Site) (func(context.Context) error, error) {
		return func(ctx context.Context) error {
			return errors.Join(wait.Sleep(ctx, lasts), s.Signal(node, syscall.SIGCONT))
		}, s.Signal(node, syscall.SIGSTOP)
	}}
}

func cutFromNodes(node int, lasts time.Duration) Step {
	return Step{nobody, func(_ context.Context, s *Site) (func(context.Context) error, error) {
		door := s.door(node)
		door.Stall()
		return func(ctx context.Context) error {
			defer door.Resume()
			return wait.Sleep(ctx, lasts)
		}, nil
	}}
}

func killLeader(ctx context.Context, s *Site) (func(context.Context) error, error) {
	leader, err := s.servers.leader(ctx, "KV_bl_"+siteCluster+"_lease")
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		// Another one leads first: no server is missed by then.
		if _, err := s.servers.leader(ctx, "KV_bl_"+siteCluster+"_lease"); err != nil {
			return err
		}
		return errors.Join(s.servers.start(leader), s.servers.work(ctx))
	}, s.servers.kill(leader)
}

func cutFromNATS(_ context.Context, s *Site) (func(context.Context) error, error) {
	for _, way := range s.toNATS[victim] {
		way.Stall()
	}
	return func(ctx context.Context) error {
		err := wait.Sleep(ctx, cutOff)
		for _, way := range s.toNATS[victim] {
			way.Resume()
		}
		return err
	}, nil
}

func awayFor(d time.Duration) Step {
	return Step{nobody, func(_ context.Context, s *Site) (func(context.Context) error, error) {
		return func(ctx context.Context) error {
			return errors.Join(wait.Sleep(ctx, d), s.servers.startAll(ctx))
		}, s.servers.close()
	}}
}

func wipeServers(ctx context.Context, s *Site) (func(context.Context) error, error) {
	err := s.servers.close()
	for n := range natsCount {
		err = errors.Join(err, os.RemoveAll(s.servers.store(n)))
	}
	return s.servers.startAll, err
}

// wipeHolder kills the node that has the server in it, and deletes the server's files before
// another one can have it: they are stopped for that moment.
func wipeHolder(_ context.Context, s *Site) (func(context.Context) error, error) {
	var errs []error
	for node := 1; node < siteNodes; node++ {
		errs = append(errs, s.Signal(node, syscall.SIGSTOP))
	}
	errs = append(errs, s.Kill(0), os.RemoveAll(filepath.Join(s.shared(), "nats")))
	for node := 1; node < siteNodes; node++ {
		errs = append(errs, s.Signal(node, syscall.SIGCONT))
	}
	return func(ctx context.Context) error { return s.StartNode(ctx, 0) }, errors.Join(errs...)
}
