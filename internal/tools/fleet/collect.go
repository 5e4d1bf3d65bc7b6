package main

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
)

// collectEvery is how often a collection samples all connections, as a monitoring
// system does.
const collectEvery = 50 * time.Millisecond

// A collection checks the samples of connections while calls are made and connections are
// killed: the calls that have ended and those in flight must add up to the calls made, a
// call must have ended when its caller has the outcome, and no count may fall.
type collection struct {
	samples  func() iter.Seq[telemetry.Sample]
	made     func() uint64 // how many calls all connections have made
	reported func() uint64 // how many calls have ended for their callers

	count     int
	before    map[string]*telemetry.ConnSample
	violation error // the first violation
}

// run collects until the context ends.
func (c *collection) run(ctx context.Context) {
	tick := time.NewTicker(collectEvery)
	defer tick.Stop()
	for {
		c.collect()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// collect takes one sample. The bounds are read before and after it, because calls go on meanwhile.
func (c *collection) collect() {
	c.count++
	atLeast, reported := c.made(), c.reported()
	var sum, ended uint64
	for sample := range c.samples() {
		if sample.Conn == nil {
			continue
		}
		all, finished := c.check(sample.Name, sample.Conn)
		sum, ended = sum+all, ended+finished
	}
	if atMost := c.made(); sum < atLeast || sum > atMost {
		c.fail("%d calls have ended or are in flight, when between %d and %d were made", sum, atLeast, atMost)
	}
	if ended < reported {
		c.fail("%d calls have ended, but %d callers have an outcome", ended, reported)
	}
}

// check returns how many calls there are, and how many of them have ended.
func (c *collection) check(name string, now *telemetry.ConnSample) (all, ended uint64) {
	for _, settled := range now.Settled {
		ended += settled.Count
	}
	if ended+now.InFlight != now.Calls {
		c.fail("%s has made %d calls, of which %d have ended and %d are in flight", name, now.Calls, ended, now.InFlight)
	}
	if before := c.before[name]; before != nil {
		for _, n := range []struct {
			what        string
			before, now uint64
		}{
			{"calls", before.Calls, now.Calls}, {"retries", before.Retries, now.Retries}, {"late replies", before.Late, now.Late},
			{"incarnations", before.Epoch, now.Epoch}, {"bytes in", before.BytesIn, now.BytesIn}, {"bytes out", before.BytesOut, now.BytesOut},
			{"nanoseconds of outage", uint64(before.Outage), uint64(now.Outage)},
		} {
			if n.now < n.before {
				c.fail("%s had %d %s, and then %d", name, n.before, n.what, n.now)
			}
		}
	}
	c.before[name] = now
	return ended + now.InFlight, ended
}

func (c *collection) fail(format string, args ...any) {
	if c.violation == nil {
		c.violation = fmt.Errorf("collection %d: "+format, append([]any{c.count}, args...)...)
	}
}
