//go:build unix

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// ChaosOptions say what Chaos does.
type ChaosOptions struct {
	Site    SiteOptions
	Seed    uint64        // decides which faults there are, and when
	For     time.Duration // how long faults begin
	Clients int           // all of them call all the time
	Wait    time.Duration // how long a call takes
	Log     io.Writer     // receives a line for each fault
}

// Chaos causes faults at random on one Site, also several at a time, but leaves at least one node
// alone. Then every session must have an answer again, and the books must balance.
func Chaos(ctx context.Context, o ChaosOptions) (row Row, err error) {
	row = Row{Fault: fmt.Sprintf("chaos for %v, seed %d", o.For, o.Seed), Setup: o.Site.Setup, Busy: o.Clients}
	began := time.Now()
	site, err := Open(ctx, o.Site)
	if err != nil {
		return row, err
	}
	closing := sync.OnceValue(site.Close)
	defer func() { err = errors.Join(err, closing()) }()
	if site.behind != nil {
		row.Fault = "gateways, " + row.Fault
	}
	load, err := StartLoad(ctx, o.load(site))
	if err != nil {
		return row, err
	}
	failed := site.saved(ctx)
	load.Begin()
	if failed == nil {
		c := &chaos{site: site, random: rand.New(rand.NewPCG(o.Seed, 0)), log: o.Log, began: time.Now()}
		failed = c.cause(ctx, o.For)
	}
	unsettled := load.settleWithin(ctx, settleTimeout)
	row.Books, err = load.Stop(ctx, site.Ledger())
	row.judge(unsettled, 0, nil)
	if site.behind != nil {
		_ = closing() // then the trails are complete; the end of this has the error
		err = errors.Join(err, row.judgeGateways(site.behind, site.machine))
	}
	row.Took = time.Since(began)
	return row, errors.Join(failed, err)
}

// load returns which load a site has: gateways have users, and servers none.
func (o *ChaosOptions) load(site *Site) LoadOptions {
	with := LoadOptions{URL: site.URL(), Sessions: o.Clients, Busy: o.Clients, Wait: o.Wait, Between: o.Site.Lies.Between}
	if site.behind != nil {
		with.Users = site.behind.users
	}
	return with
}

// chaos causes faults.
type chaos struct {
	site   *Site
	random *rand.Rand
	log    io.Writer
	began  time.Time

	mu     sync.Mutex
	faulty [siteNodes]bool
	errs   []error
}

// cause causes faults for a while, and waits until all of them are over.
func (c *chaos) cause(ctx context.Context, d time.Duration) error {
	var faults sync.WaitGroup
	for {
		pause, node, kind, lasts := c.between(0.2, 2), c.random.IntN(siteNodes), c.random.IntN(len(kinds)), c.between(0.5, 10)
		if wait.Sleep(ctx, pause) != nil || time.Since(c.began) > d {
			break
		}
		if !c.begin(node) {
			continue
		}
		fmt.Fprintf(c.log, "%5.1f s: node %d: %s, for %.1f s\n", time.Since(c.began).Seconds(), node, kinds[kind].name, lasts.Seconds())
		faults.Go(func() { c.end(node, kinds[kind].name, kinds[kind].cause(ctx, c.site, node, lasts)) })
	}
	faults.Wait()
	return errors.Join(append(c.errs, context.Cause(ctx))...)
}

func (c *chaos) between(from, to float64) time.Duration {
	return time.Duration((from + c.random.Float64()*(to-from)) * float64(time.Second))
}

// begin reports whether a node may fail now: it is well, and another one, too.
func (c *chaos) begin(node int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	others := 0
	for other, faulty := range c.faulty {
		if other != node && !faulty {
			others++
		}
	}
	if c.faulty[node] || others == 0 {
		return false
	}
	c.faulty[node] = true
	return true
}

func (c *chaos) end(node int, name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faulty[node] = err != nil // then it may not run any more
	if err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s of node %d: %w", name, node, err))
	}
}

// kinds are what may happen to a node for a while.
var kinds = []struct {
	name  string
	cause func(ctx context.Context, s *Site, node int, d time.Duration) error
}{
	{"kill -9", func(ctx context.Context, s *Site, node int, d time.Duration) error {
		return again(ctx, s, node, d, s.Kill(node))
	}},
	{"SIGTERM", func(ctx context.Context, s *Site, node int, d time.Duration) error {
		return again(ctx, s, node, d, errors.Join(s.Signal(node, syscall.SIGTERM), s.Wait(node)))
	}},
	{"SIGSTOP", func(ctx context.Context, s *Site, node int, d time.Duration) error {
		err := s.Signal(node, syscall.SIGSTOP)
		return errors.Join(err, wait.Sleep(ctx, d), s.Signal(node, syscall.SIGCONT))
	}},
	{"cut off from nodes", func(ctx context.Context, s *Site, node int, d time.Duration) error {
		door := s.door(node)
		door.Stall()
		defer door.Resume()
		return wait.Sleep(ctx, d)
	}},
}

// again starts a node that has ended after a while.
func again(ctx context.Context, s *Site, node int, d time.Duration, err error) error {
	if err != nil {
		return err
	}
	if err := wait.Sleep(ctx, d); err != nil {
		return err
	}
	return s.StartNode(ctx, node)
}
