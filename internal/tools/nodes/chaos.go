//go:build unix

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
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
	row.name(site)
	load, err := StartLoad(ctx, LoadOptions{URL: site.URL(), Sessions: o.Clients, Busy: o.Clients, Wait: o.Wait, Between: o.Site.Lies.Between, Users: site.users()})
	if err != nil {
		return row, err
	}
	failed := site.saved(ctx)
	load.Begin()
	if failed == nil && site.behind != nil && o.For > 0 {
		row.watched, failed = o.tour(ctx, load, site)
	}
	if failed == nil {
		c := &chaos{site: site, random: rand.New(rand.NewPCG(o.Seed, 0)), log: o.Log, began: time.Now()}
		failed = c.cause(ctx, o.For)
	}
	unsettled := load.settleWithin(ctx, settleTimeout)
	row.Books, err = load.Stop(ctx, site.Ledger())
	row.judge(unsettled, 0, nil)
	err = errors.Join(err, row.judgeGateways(closing, site))
	row.Took = time.Since(began)
	return row, errors.Join(failed, err)
}

// tour has each gateway refuse more calls than a limit lets pass, and then causes each kind of fault at two nodes, one after the other, so that each node is well in one of them. What follows is
// random, and may have some of that or not.
func (o *ChaosOptions) tour(ctx context.Context, load *Load, site *Site) (watched, error) {
	w := newWatch(load, site)
	for node := range siteNodes {
		w.crowd(ctx, node)
	}
	for _, kind := range kinds {
		for node := range siteNodes - 1 {
			step := kind.step(node, 0)
			fmt.Fprintf(o.Log, "      node %d: %s, while the others refuse what a persona forbids\n", node, kind.name)
			if err := step.cause(ctx, site, func() { w.during(ctx, kind.name, step.Down) }); err != nil {
				return w.seen, fmt.Errorf("%s of node %d: %w", kind.name, node, err)
			}
		}
	}
	return w.seen, nil
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
		step := kinds[kind].step(node, lasts)
		faults.Go(func() { c.end(node, kinds[kind].name, step.cause(ctx, c.site, func() {})) })
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
	name string
	step func(node int, lasts time.Duration) Step
}{
	{"kill -9", killNode},
	{"SIGTERM", endNode},
	{"SIGSTOP", stopNode},
	{"cut off from nodes", cutFromNodes},
}
