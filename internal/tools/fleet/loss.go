package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/fleet"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// kill cuts some random links, each with a call in flight, while all other
// sessions make calls.
func (f *pairs) kill(ctx context.Context) error {
	f.random.Shuffle(len(f.Members), func(i, j int) { f.Members[i], f.Members[j] = f.Members[j], f.Members[i] })
	n := max(int(float64(len(f.Members))*f.options.killed/100), 1)
	var others []*pair
	f.killed, others = f.Members[:n], f.Members[n:]
	f.print("\n4. %s killed at random, with a call in flight each; the other %s are called all the time", count(n), count(len(others)))
	held, err := f.holdCalls(ctx, f.killed)
	if err != nil {
		return err
	}
	load := f.callAll(ctx, others)
	ready, err := f.cutAndAwait(ctx, f.killed)
	made, failed := load.end()
	lost := 0
	for _, how := range held.outcomes() {
		if isLost(how) {
			lost++
		}
	}
	f.print("   %s of the callers in flight got: %s (%s)", count(lost), conn.LinkLost, conn.Unknown)
	f.print("   meanwhile %s calls to the others, of which %d failed", count(int(made)), failed)
	f.print("   ready again: %s", milestones(ready))
	f.print("%s", histogram(ready))
	switch {
	case err != nil:
		return fmt.Errorf("kill: %w", err)
	case lost != n:
		return fmt.Errorf("kill: %d calls were in flight, and %d ended because the link was lost", n, lost)
	case failed > 0:
		return fmt.Errorf("kill: %d calls failed on links that were not cut", failed)
	}
	return nil
}

// cutAndAwait cuts links, and returns how long each session took to be ready
// again.
func (f *pairs) cutAndAwait(ctx context.Context, pairs []*pair) ([]time.Duration, error) {
	began := time.Now()
	if err := fleet.Each(pairs, 1, "links were not cut", func(p *pair) error { return p.cut(false) }); err != nil {
		return nil, err
	}
	return f.awaitBack(ctx, pairs, began)
}

func (f *pairs) awaitBack(ctx context.Context, pairs []*pair, began time.Time) ([]time.Duration, error) {
	var mu sync.Mutex
	var back []time.Duration
	err := fleet.Each(pairs, len(pairs), "did not become ready again", func(p *pair) error {
		since, err := p.AwaitBack(ctx, p.back)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		back = append(back, since.Sub(began))
		return nil
	})
	return back, err
}

// isLost reports whether a call ended because its link was lost after it was sent. No other outcome is right
// for a call that its server was holding.
func isLost(err error) bool {
	var call *conn.CallError
	return errors.As(err, &call) && call.Cause == conn.LinkLost && call.Delivery == conn.Unknown
}

// loseServer makes many sessions lose their server at the same time. The server
// stays down until their first attempts have failed. loseServer prints when
// these attempts came.
func (f *pairs) loseServer(ctx context.Context) error {
	others := f.Members[len(f.killed):] // sessions whose backoff has not grown yet
	clients := others[:min(f.options.lost, len(others))]
	outage := 2 * f.options.backoff
	f.print("\n5. a server lost by %s clients at once, and down for %v", count(len(clients)), outage)
	began := time.Now()
	if err := fleet.Each(clients, 1, "links were not cut", func(p *pair) error { return p.cut(true) }); err != nil {
		return fmt.Errorf("lose: %w", err)
	}
	if err := wait.Sleep(ctx, outage); err != nil {
		return fmt.Errorf("lose: %w", err)
	}
	for _, p := range clients {
		p.endOutage()
	}
	ready, err := f.awaitBack(ctx, clients, began)
	if err != nil {
		return fmt.Errorf("lose: %w", err)
	}
	var attempts []time.Duration
	for _, p := range clients {
		attempts = append(attempts, p.firstAttempt().Sub(began))
	}
	f.print("   first attempts: %s", milestones(attempts))
	f.print("%s", histogram(attempts))
	f.print("   ready again: %s", milestones(ready))
	f.print("%s", histogram(ready))
	return nil
}

// A load is callers that call all the time.
type load struct {
	*fleet.Load
	made, failed atomic.Int64
}

// callPause is how long a caller of the load waits between calls. Without it, the
// scheduler would run only these callers.
const callPause = time.Millisecond

// callAll starts a few callers that call each of the pairs in turn, at least
// once, until the load is ended.
func (f *pairs) callAll(ctx context.Context, pairs []*pair) *load {
	l := new(load)
	callers := 4 * runtime.GOMAXPROCS(0)
	l.Load = fleet.StartLoad(callers, func(first int) bool {
		for i := first; i < len(pairs); i += callers {
			l.made.Add(1)
			if err := pairs[i].call(ctx, countTool); err != nil {
				l.failed.Add(1)
			}
			if wait.Sleep(ctx, callPause) != nil {
				return false
			}
		}
		return true
	})
	return l
}

// end ends the load, and returns how many calls it has made, and how many of them have failed.
func (l *load) end() (made, failed int64) {
	l.End()
	return l.made.Load(), l.failed.Load()
}
