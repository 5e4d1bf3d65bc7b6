package conn

import "github.com/bowline-mcp/bowline/telemetry"

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

// Status returns the present status.
func (c *Conn) Status() Status {
	s := c.status.watch()
	s.Heard = c.heard.Load()
	return s
}

// State returns the present state.
func (c *Conn) State() State {
	return c.status.state()
}

func (c *Conn) depths() Depths {
	d := &c.counters.depths
	return Depths{
		Pending: int(d.pending.Load()), Tombstones: int(d.tombstones.Load()), Queued: int(d.queued.Load()),
		Serving: int(d.serving.Load()), Waiting: int(d.waiting.Load()), Streams: int(d.streams.Load()),
		Notifications: c.notifications.Load().Len(), Mailbox: c.mailboxLen(),
	}
}

// mailboxLen is how many events wait for the loop.
func (c *Conn) mailboxLen() int {
	if l := c.running.Load(); l != nil {
		return l.mailbox.len()
	}
	return 0
}

// Stats returns the counts up to now. Calls that end while it reads the counts
// may be missing from Settled, so Ended is never greater than Calls.
func (c *Conn) Stats() Stats {
	settled := make(map[Cause]map[Delivery]uint64)
	for _, cause := range Causes() {
		settled[cause] = make(map[Delivery]uint64)
	}
	c.counters.eachEnding(func(cause Cause, delivery Delivery, n uint64) { settled[cause][delivery] = n })
	stats := c.unsettled()
	stats.Settled = settled
	return stats
}

// unsettled returns the counts except Settled, which must be read first.
func (c *Conn) unsettled() Stats {
	return Stats{
		Calls:     c.counters.calls.Load(),
		Retries:   c.counters.retries.Load(),
		Late:      c.counters.late.Load(),
		Unknown:   c.counters.unknown.Load(),
		Malformed: c.counters.malformed.Load(),
		Shed:      c.counters.shed.Load(),
		Stalls:    c.counters.stalls.Load(),
		BytesIn:   c.counters.bytesIn.Load(),
		BytesOut:  c.counters.bytesOut.Load(),
		Depths:    c.depths(),
	}
}
