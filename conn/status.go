package conn

import (
	"cmp"
	"sync/atomic"
	"time"
)

// A Status is where a Conn is, and why, at one moment.
type Status struct {
	State       State
	Reason      Reason    // of the last transition; behind a Gate, what has become of the start since
	Since       time.Time // of the last transition
	Epoch       uint64    // the incarnation; how many there have been so far
	NextAttempt time.Time // in backoff: when it ends by itself
	LastFailure Reason    // of the last incarnation that was lost; zero if none

	lost    uint64        // the last incarnation that was lost; 0 if none
	changed chan struct{} // closed when the next status is published
}

// Status returns the present status. It may be outdated when it arrives.
func (c *Conn) Status() Status { return *c.status.Load() }

// State returns the present state.
func (c *Conn) State() State { return c.status.Load().State }

// Changed returns a channel that is closed when the status after s is
// published. States that pass quickly may be missed: look at Status again.
func (s Status) Changed() <-chan struct{} { return s.changed }

// publish makes a new status visible and wakes who waits for one.
func (c *Conn) publish(s Status) {
	s.changed = make(chan struct{})
	close(c.status.Swap(&s).changed)
}

// Stats are counts since the Conn was made.
type Stats struct {
	Calls     uint64 // requests made, each once however often it was retried
	Retries   uint64 // attempts beyond the first of each call
	Settled   map[Cause]map[Delivery]uint64
	Late      uint64 // answers to requests that had ended
	Unknown   uint64 // answers to requests never made
	Malformed uint64 // frames that were no message
	Shed      uint64 // notifications dropped for want of room, or for a newer one
	Stalls    uint64 // times that nothing was read from the link for a while

	Depths Depths
}

// Depths are how much there is of what is bounded, as of the last thing that
// has happened; all zero while no Run runs.
type Depths struct {
	Pending    int // requests that have not ended
	Tombstones int // requests that have ended without their answer, and are remembered
	Queued     int // frames that a busy link has refused
	Serving    int // the peer's requests being served
	Waiting    int // and those that wait for a place
	Streams    int // of the link, beside Main
	Notices    int // notifications that wait for their handler
}

// Ended is how many requests have ended. It equals Calls when none is pending.
func (s Stats) Ended() uint64 {
	var total uint64
	for _, byDelivery := range s.Settled {
		for _, n := range byDelivery {
			total += n
		}
	}
	return total
}

// counters are written by callers and the loop, and read by anybody.
type counters struct {
	calls, late, unknown, malformed, shed, stalls, retries atomic.Uint64

	untold atomic.Uint64 // telemetry events that reached no hook
	ended  atomic.Pointer[endings]
	depths depths
}

// endings counts how calls have ended. A Conn that makes none has none.
type endings [causes][deliveries]atomic.Uint64

// settled is where to count a call that has ended.
func (c *counters) settled() *endings {
	if c.ended.Load() == nil {
		c.ended.CompareAndSwap(nil, new(endings))
	}
	return c.ended.Load()
}

// depths are written by the loop after each turn.
type depths struct {
	pending, tombstones, queued, serving, waiting, streams atomic.Int64
}

func (d *depths) measure(c *core) {
	d.pending.Store(int64(c.pending.awaited(c.liveness.probe)))
	d.tombstones.Store(int64(c.tombstones.len()))
	d.queued.Store(int64(len(c.outbound.queue)))
	d.serving.Store(int64(len(c.incoming.serving) + len(c.incoming.silent)))
	d.waiting.Store(int64(len(c.incoming.waiting)))
	d.streams.Store(int64(len(c.streams.others)))
}

// clear is for a Conn whose loop is over.
func (d *depths) clear() {
	for _, depth := range [...]*atomic.Int64{&d.pending, &d.tombstones, &d.queued, &d.serving, &d.waiting, &d.streams} {
		depth.Store(0)
	}
}

func (c *Conn) depths() Depths {
	d := &c.counters.depths
	return Depths{
		Pending: int(d.pending.Load()), Tombstones: int(d.tombstones.Load()), Queued: int(d.queued.Load()),
		Serving: int(d.serving.Load()), Waiting: int(d.waiting.Load()), Streams: int(d.streams.Load()),
		Notices: c.notifications.len(),
	}
}

// Stats returns the counts so far.
func (c *Conn) Stats() Stats {
	s := Stats{
		Calls:     c.counters.calls.Load(),
		Retries:   c.counters.retries.Load(),
		Late:      c.counters.late.Load(),
		Unknown:   c.counters.unknown.Load(),
		Malformed: c.counters.malformed.Load(),
		Shed:      c.counters.shed.Load(),
		Stalls:    c.counters.stalls.Load(),
		Depths:    c.depths(),
		Settled:   make(map[Cause]map[Delivery]uint64),
	}
	ended := cmp.Or(c.counters.ended.Load(), new(endings))
	for _, cause := range Causes() {
		s.Settled[cause] = make(map[Delivery]uint64)
		for _, delivery := range Deliveries() {
			if n := ended[cause][delivery].Load(); n > 0 {
				s.Settled[cause][delivery] = n
			}
		}
	}
	return s
}
