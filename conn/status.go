package conn

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// A Status is the state of a Conn at one moment, and why it is in that state.
type Status struct {
	State       State     `json:"state"`
	Reason      Reason    `json:"reason"`               // the reason for the last transition, or Queued or Admitted while the Conn is at a Gate
	Since       time.Time `json:"since"`                // the time of the last transition
	Epoch       uint64    `json:"epoch"`                // the number of the present incarnation; 0 before the first
	NextAttempt time.Time `json:"nextAttempt,omitzero"` // when the Conn will try again, if it is in Backoff
	LastFailure Reason    `json:"lastFailure,omitzero"` // why the last incarnation failed; zero if none has
	Heard       bool      `json:"heard,omitzero"`       // the peer has sent a message since the Conn was created

	lost     uint64       // the last incarnation that was lost; 0 if none
	replaced *wait.Signal // fires when there is a newer Status
}

// A statusCell contains the present status of a Conn. The loop replaces it, and anybody reads
// it. A Conn changes its state a few times in each connection, so to replace the status allocates
// nothing, unless connecting has failed.
type statusCell struct {
	phase atomic.Uint64 // the epoch and the state, which calls read without the lock
	lost  atomic.Uint64

	mu       sync.Mutex
	reason   Reason
	since    time.Time
	failure  *failure     // nil if nothing has failed
	replaced *wait.Signal // fires when there is a newer status; nil until somebody reads this one
}

// A failure is the part of a status that is about failures to connect.
type failure struct {
	NextAttempt time.Time
	LastFailure Reason
}

// stateBits is how many bits of a phase are the index of the state in statesByIndex.
const stateBits = 3

var statesByIndex = [...]State{Starting, Initializing, Ready, Backoff, Closing}

func (c *statusCell) stateAndEpoch() (State, uint64) {
	phase := c.phase.Load()
	return statesByIndex[phase&(1<<stateBits-1)], phase >> stateBits
}

func (c *statusCell) state() State {
	state, _ := c.stateAndEpoch()
	return state
}

// isGone reports whether an incarnation is not the present one any more.
func (c *statusCell) isGone(epoch uint64) bool {
	lost := c.lost.Load() // before the epoch: an incarnation is lost before the next one exists
	_, present := c.stateAndEpoch()
	return epoch != present || epoch == lost
}

// read returns the status, without the signal that it is replaced.
func (c *statusCell) read() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.locked()
}

// locked is read for callers that hold the mutex.
func (c *statusCell) locked() Status {
	s := Status{Reason: c.reason, Since: c.since, lost: c.lost.Load()}
	s.State, s.Epoch = c.stateAndEpoch()
	if c.failure != nil {
		s.NextAttempt, s.LastFailure = c.failure.NextAttempt, c.failure.LastFailure
	}
	return s
}

// watch returns the status, and the signal that it is replaced.
func (c *statusCell) watch() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.replaced == nil {
		c.replaced = new(wait.Signal)
	}
	s := c.locked()
	s.replaced = c.replaced
	return s
}

// replace makes a new status visible, and wakes those who wait for it.
func (c *statusCell) replace(s Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reason, c.since, c.failure = s.Reason, s.Since, nil
	if !s.NextAttempt.IsZero() || s.LastFailure.Kind != "" {
		c.failure = &failure{s.NextAttempt, s.LastFailure}
	}
	c.lost.Store(s.lost)
	c.phase.Store(s.Epoch<<stateBits | uint64(slices.Index(statesByIndex[:], s.State)))
	if c.replaced != nil {
		c.replaced.Fire()
		c.replaced = nil
	}
}

// Changed returns a channel that is closed when the Conn has a newer status than
// s. Call Status again then; the Conn may have passed through several states.
func (s Status) Changed() <-chan struct{} {
	if s.replaced == nil {
		return nil // the zero Status belongs to no Conn
	}
	return s.replaced.Wait()
}

// Stats are counts since the Conn was created.
type Stats struct {
	Calls     uint64                        `json:"calls"`     // calls made, each counted once however often it was retried
	Retries   uint64                        `json:"retries"`   // attempts beyond the first of each call
	Settled   map[Cause]map[Delivery]uint64 `json:"settled"`   // calls that have ended
	Late      uint64                        `json:"late"`      // answers to requests that had ended already
	Unknown   uint64                        `json:"unknown"`   // answers to requests that were never made
	Malformed uint64                        `json:"malformed"` // frames that were not valid messages
	Shed      uint64                        `json:"shed"`      // notifications dropped because too many waited
	Stalls    uint64                        `json:"stalls"`    // times that the Conn stopped reading from its link for a while
	BytesIn   uint64                        `json:"bytesIn"`   // bytes of messages that came in, without framing and headers
	BytesOut  uint64                        `json:"bytesOut"`  // bytes of messages that links have taken

	Depths Depths `json:"depths"`
}

// Depths are the present sizes of what is bounded. All are zero while the Conn
// is not running.
type Depths struct {
	Pending       int `json:"pending"`       // requests of this side that have not ended
	Tombstones    int `json:"tombstones"`    // requests that ended without an answer and are remembered
	Queued        int `json:"queued"`        // frames that wait because the link is busy
	Serving       int `json:"serving"`       // requests of the peer that are being served
	Waiting       int `json:"waiting"`       // requests of the peer that wait to be served
	Streams       int `json:"streams"`       // streams of the link, not counting transport.Main
	Notifications int `json:"notifications"` // notifications that wait for the handler
	Mailbox       int `json:"mailbox"`       // events that wait for the Conn itself
}

// Ended returns how many calls have ended. It equals Calls when none is pending.
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
	calls, late, unknown, malformed, shed, stalls, retries, bytesIn, bytesOut atomic.Uint64

	droppedEvents atomic.Uint64 // telemetry events that reached no hook
	stall         atomic.Uint32 // the present Stall; 0 if there is none
	credit        atomic.Int32  // frames that the link may deliver
	outage        outage
	answered      atomic.Uint64 // calls that ended as Answered and Sent, as nearly all do
	ended         atomic.Pointer[endings]
	depths        depths
}

// endings counts how calls have ended that were not answered with a result. A Conn
// without such calls has none.
type endings [causes][deliveries]atomic.Uint64

// count counts a call that has ended.
func (c *counters) count(cause Cause, delivery Delivery) {
	if cause == Answered && delivery == Sent {
		c.answered.Add(1)
		return
	}
	if c.ended.Load() == nil {
		c.ended.CompareAndSwap(nil, new(endings))
	}
	c.ended.Load()[cause][delivery].Add(1)
}

// depths are written by the loop after each turn.
type depths struct {
	pending, tombstones, queued, serving, waiting, streams atomic.Int32
}

// measure notes the present sizes. The credit hardly ever changes, so it is read before it is
// written.
func (c *counters) measure(core *core) {
	c.depths.measure(core)
	if credit := core.credit(); c.credit.Load() != credit {
		c.credit.Store(credit)
	}
}

// clear sets the gauges to zero when the loop has ended.
func (c *counters) clear() {
	c.depths.clear()
	c.credit.Store(0)
}

func (d *depths) measure(c *core) {
	d.pending.Store(int32(c.pending.awaited(c.liveness.probe)))
	d.tombstones.Store(int32(c.tombstones.len()))
	d.queued.Store(int32(len(c.outbound.waiting())))
	d.serving.Store(int32(len(c.incoming.serving) + len(c.incoming.cancelled)))
	d.waiting.Store(int32(len(c.incoming.waiting)))
	d.streams.Store(int32(len(c.streams.others)))
}

func (d *depths) clear() {
	for _, depth := range [...]*atomic.Int32{&d.pending, &d.tombstones, &d.queued, &d.serving, &d.waiting, &d.streams} {
		depth.Store(0)
	}
}

// eachEnding calls read with each count of ended calls that is not zero, in the order of
// Causes.
func (c *counters) eachEnding(read func(Cause, Delivery, uint64)) {
	answered, ended := c.answered.Load(), c.ended.Load()
	for _, cause := range Causes() {
		for _, delivery := range Deliveries() {
			n := uint64(0)
			switch {
			case cause == Answered && delivery == Sent:
				n = answered
			case ended != nil:
				n = ended[cause][delivery].Load()
			}
			if n > 0 {
				read(cause, delivery, n)
			}
		}
	}
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
