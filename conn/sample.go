package conn

import (
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
)

// Sample returns the status and the counts as plain values, for telemetry sinks.
func (c *Conn) Sample() telemetry.Sample {
	status, stats := c.Status(), c.Stats()
	s := &telemetry.ConnSample{
		State: string(status.State), Kind: string(status.Reason.Kind),
		Since: status.Since, NextAttempt: status.NextAttempt, Epoch: status.Epoch,
		Outage: c.counters.outage.total(c.now()), Stall: Stall(c.counters.stall.Load()).String(),
		Calls: stats.Calls, InFlight: stats.Calls - stats.Ended(), Retries: stats.Retries,
		Late: stats.Late, Unknown: stats.Unknown, Malformed: stats.Malformed,
		Shed: stats.Shed, Stalls: stats.Stalls, Dropped: c.counters.untold.Load(),
		BytesIn: stats.BytesIn, BytesOut: stats.BytesOut,
		Pending: stats.Depths.Pending, Tombstones: stats.Depths.Tombstones, Queued: stats.Depths.Queued,
		Serving: stats.Depths.Serving, Waiting: stats.Depths.Waiting, Streams: stats.Depths.Streams,
		Notifications: stats.Depths.Notifications, Mailbox: stats.Depths.Mailbox,
	}
	for _, cause := range Causes() {
		for _, delivery := range Deliveries() {
			if n := stats.Settled[cause][delivery]; n > 0 {
				s.Settled = append(s.Settled, telemetry.Settled{Cause: cause.String(), Delivery: delivery.String(), Count: n})
			}
		}
	}
	return telemetry.Sample{Name: c.own.name, Conn: s}
}

// An outage adds up the times from a loss to the next ready. The loop writes it at
// each loss; a mutex keeps what is read of it from falling.
type outage struct {
	mu    sync.Mutex
	over  time.Duration
	since instant // from when on the present one is not in over; 0 for none
}

func (o *outage) begin(now instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == 0 {
		o.since = now
	}
}

// end ends an outage at the time of the new status, which a reader may have looked past.
func (o *outage) end(now instant) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(now)
	o.since = 0
}

func (o *outage) total(now instant) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.add(now)
	return o.over
}

// add counts what has passed of the present outage. The caller holds mu.
func (o *outage) add(now instant) {
	if o.since != 0 && now > o.since {
		o.over, o.since = o.over+now-o.since, now
	}
}
