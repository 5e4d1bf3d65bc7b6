package conn

import (
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
)

// Sample returns the status and the counts as plain values, for telemetry sinks.
func (of Control) Sample() telemetry.Sample {
	c := of.conn
	made := new(struct { // one allocation instead of several, because collectors call Sample often
		telemetry.ConnSample
		settled [2]telemetry.Settled
	})
	s := &made.ConnSample
	s.Settled = made.settled[:0]
	ended := uint64(0)
	c.counters.eachEnding(func(cause Cause, delivery Delivery, n uint64) {
		s.Settled = append(s.Settled, telemetry.Settled{Cause: cause.String(), Delivery: delivery.String(), Count: n})
		ended += n
	})
	status, stats := c.status.read(), c.unsettled()
	s.State, s.Kind = string(status.State), string(status.Reason.Kind)
	s.Since, s.NextAttempt, s.Epoch = status.Since, status.NextAttempt, status.Epoch
	s.Outage, s.Stall = c.counters.outage.until(c.now()), Stall(c.counters.stall.Load()).String()
	s.Calls, s.InFlight, s.Retries = stats.Calls, stats.Calls-ended, stats.Retries
	s.Late, s.Unknown, s.Malformed = stats.Late, stats.Unknown, stats.Malformed
	s.Shed, s.Stalls, s.Dropped = stats.Shed, stats.Stalls, c.counters.droppedEvents.Load()
	s.BytesIn, s.BytesOut = stats.BytesIn, stats.BytesOut
	s.Credit = int(c.counters.credit.Load())
	d := stats.Depths
	s.Pending, s.Tombstones, s.Queued, s.Serving = d.Pending, d.Tombstones, d.Queued, d.Serving
	s.Waiting, s.Streams, s.Notifications, s.Mailbox = d.Waiting, d.Streams, d.Notifications, d.Mailbox
	return telemetry.Sample{Name: c.own.name, Conn: s}
}

// An outage adds up the times from each loss until the Conn is ready again. The loop writes
// it, and anybody reads it. The mutex ensures that nobody reads a lower total than before.
type outage struct {
	mu    sync.Mutex
	total time.Duration
	since instant // the start of that part of the present outage that total does not include yet; 0: there is no outage
}

func (o *outage) begin(now instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == 0 {
		o.since = now
	}
}

// end ends an outage at the time of the new status. A reader may have counted more already.
func (o *outage) end(now instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(now)
	o.since = 0
}

// until returns the total up to now.
func (o *outage) until(now instant) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(now)
	return o.total
}

// add adds what has passed of the present outage to the total. The caller holds mu.
func (o *outage) add(now instant) {
	if o.since != 0 && now > o.since {
		o.total, o.since = o.total+now-o.since, now
	}
}
