package conn

import "sync/atomic"

// Stats are counts since the Conn was made.
type Stats struct {
	Calls     uint64 // requests made, each once however often it was retried
	Retries   uint64 // attempts beyond the first of each call
	Settled   map[Cause]map[Delivery]uint64
	Late      uint64 // answers to requests that had ended
	Unknown   uint64 // answers to requests never made
	Malformed uint64 // frames that were no message
	Shed      uint64 // notifications dropped for want of room
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
	calls, late, unknown, malformed, shed atomic.Uint64
	retries                               atomic.Uint64
	untold                                atomic.Uint64 // telemetry events that reached no hook
	settled                               [causes][deliveries]atomic.Uint64
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
		Settled:   make(map[Cause]map[Delivery]uint64),
	}
	for _, cause := range Causes() {
		s.Settled[cause] = make(map[Delivery]uint64)
		for _, delivery := range Deliveries() {
			if n := c.counters.settled[cause][delivery].Load(); n > 0 {
				s.Settled[cause][delivery] = n
			}
		}
	}
	return s
}
