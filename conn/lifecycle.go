//bowline:pure

package conn

import (
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/looplab/fsm"

	"github.com/bowline-mcp/bowline/transport"
)

// A trigger names an edge of the lifecycle.
type trigger string

const (
	opened     trigger = "opened"
	handshaken trigger = "handshaken"
	lost       trigger = "lost"
	retryDue   trigger = "retry due"
	closed     trigger = "closed"
)

// lifecycle is the whole life of a Conn. Nothing else changes its state.
// docs/design/STATE_TRANSITIONS.md is generated from it. An edge that is missing here cannot be
// taken, whatever the code says: admit refuses it.
var lifecycle = fsm.Events{
	edge(opened, Initializing, Starting),
	edge(handshaken, Ready, Initializing),
	edge(lost, Backoff, Starting, Initializing, Ready),
	edge(retryDue, Starting, Backoff),
	edge(closed, Closing, Starting, Initializing, Ready, Backoff),
}

func edge(name trigger, to State, from ...State) fsm.EventDesc {
	sources := make([]string, len(from))
	for i, state := range from {
		sources[i] = string(state)
	}
	return fsm.EventDesc{Name: string(name), Src: sources, Dst: string(to)}
}

// machines hold one looplab/fsm machine for each state, which stays in that state. The
// core only asks a machine whether it allows a trigger. So all Conns can share the
// machines. A machine takes 2 kB, and creating one takes as long as everything else that
// a transition does.
type machines map[State]*fsm.FSM

// newMachines makes a machine for each state. They are only read, from any goroutine.
func newMachines() machines {
	all := machines{}
	for _, row := range lifecycle {
		for _, state := range append(row.Src, row.Dst) {
			all[State(state)] = newMachine(State(state))
		}
	}
	return all
}

func newMachine(state State) *fsm.FSM { return fsm.NewFSM(string(state), lifecycle, nil) }

// next returns the state that a trigger leads to, or reports that the machine refuses it. It
// changes nothing, neither in the machine nor in the Conn.
func (m machines) next(from State, t trigger) (to State, ok bool) {
	if !m[from].Can(string(t)) {
		return from, false
	}
	for _, row := range lifecycle {
		if row.Name == string(t) { // each trigger has one row, and so one destination
			to = State(row.Dst)
		}
	}
	return to, true
}

// state returns the state, which no event changes but through admit.
func (c *core) state() State { return c.current }

// admit applies a trigger, or changes nothing and reports false. Nothing else
// changes the state.
func (c *core) admit(t trigger, reason Reason) bool {
	from := c.current
	to, ok := c.machines.next(from, t)
	if !ok {
		return false
	}
	c.current, c.reason = to, reason
	c.emit(effect{kind: transitioned, epoch: c.epoch, at: c.retryAt, eventExtra: c.with(eventExtra{from: from, to: to, reason: reason})})
	return true
}

// A place says whether an initiator has a place at its gate. It needs none when it is ready. A
// Conn that waits for a place must have no deadline: its peer has not been asked for anything
// yet, so it cannot be late.
type place uint8

const (
	noPlace place = iota
	awaited       // the Conn waits for a place; InitTimeout does not run yet
	given
)

// begin begins a new incarnation: it opens a link, or asks the gate for a place first. The number
// is drawn even if the attempt opens no link, so that whatever a cancelled attempt still brings
// belongs to an incarnation that has ended.
func (c *core) begin(now instant) {
	c.epoch++
	c.retryAt, c.retryWhy = 0, ""
	if c.options.Gate == nil {
		c.open(now)
		return
	}
	c.place, c.reason = awaited, Reason{Kind: Queued}
	c.emit(effect{kind: askPlace, epoch: c.epoch, eventExtra: c.with(eventExtra{reason: c.reason})})
}

// onAdmitted handles the event that the gate has a place for this Conn. The core may
// have left the gate in the meantime.
func (c *core) onAdmitted(now instant) {
	if c.place == awaited {
		c.place, c.reason = given, Reason{Kind: Admitted}
		c.open(now)
	}
}

// open asks for the link. The time for that and the handshake starts here.
func (c *core) open(now instant) {
	c.initDue = now + c.initTime()
	c.emit(effect{kind: openLink, epoch: c.epoch, eventExtra: c.with(eventExtra{reason: c.reason})})
}

// leaveGate gives back the place, or stops waiting for one.
func (c *core) leaveGate() {
	if c.place != noPlace {
		c.place = noPlace
		c.emit(effect{kind: leaveGate, epoch: c.epoch})
	}
}

// lose ends the incarnation: it cancels what is being served, settles every request in this step,
// closes the link (these three in endIncarnation, drain.go), and schedules the next attempt, no
// earlier than the peer has asked for. An acceptor closes instead. Everything that the link has begun
// ends in this one step, so no answer of the old link can meet a call of the new one.
func (c *core) lose(now instant, why Reason, random float64, asked time.Duration, unsent []transport.Tag) {
	if state := c.state(); state == Backoff || state == Closing {
		return // the incarnation has ended already
	}
	if c.role == acceptor || c.draining {
		c.close(now, why, unsent, c.options.StopGrace)
		return
	}
	wait := max(c.nextWait(now, &why, random), asked)
	// Final is asked after the reason has become CrashLooping, since a program may want to give up
	// exactly then.
	if c.final(why) {
		c.close(now, why, unsent, c.options.StopGrace)
		return
	}
	// The edge tells the hooks when the next attempt is due, so that is set before.
	c.initDue, c.retryAt = 0, now+wait
	c.admit(lost, why)
	c.endIncarnation(now, LinkLost, why, unsent, c.options.StopGrace)
}

// nextWait draws the next delay. It changes the reason to CrashLooping at the third
// unproven loss in a row. After a proven incarnation the first attempt is made at once, and
// without any delay if the peer has only forgotten the session. If the next incarnation is
// lost before it is proven, there is a delay.
func (c *core) nextWait(now instant, why *Reason, random float64) time.Duration {
	proven := c.state() == Ready && now-c.readyAt >= c.options.ProvenAfter
	if proven {
		c.unproven = 0
		c.schedule = nil
	} else {
		c.unproven++
	}
	switch {
	// Trying soon would not help: somebody has to do something first.
	case !why.isTemporary():
		return c.options.BackoffMax
	// The peer is there, and waits for a new session.
	case proven && why.Kind == SessionExpired:
		return 0
	case proven:
		return time.Duration(random * float64(min(firstSpread, c.options.BackoffMin)))
	}
	if c.unproven >= crashLoop {
		*why = Reason{CrashLooping, *why}
	}
	if c.schedule == nil {
		c.schedule = newSchedule(c.options)
	}
	return c.schedule.next(random)
}

// firstSpread is the longest delay before the first attempt after a proven incarnation. It
// keeps apart the peers of a server that restarts.
const firstSpread = 100 * time.Millisecond

// crashLoop is how many unproven losses in a row are called crash-looping.
const crashLoop = 3

// onWoken ends the backoff early. It keeps the schedule: if the next attempt fails too, the delay
// after it is the longer one, so waking a Conn again and again does not make it hammer its peer.
func (c *core) onWoken(now instant) {
	if c.state() == Backoff {
		c.retry(now, Woken)
	}
}

// retry begins the next attempt, but only after the old link has closed: a Conn never has two
// links. With two, a server of one session would refuse the second, and a child would run beside
// its successor.
func (c *core) retry(now instant, why ReasonKind) {
	if c.linked {
		// onLinkGone continues here, at the latest at closeDue.
		c.retryAt, c.retryWhy = 0, why
		return
	}
	if c.admit(retryDue, Reason{Kind: why}) {
		c.begin(now)
	}
}

// A schedule says how long to wait before each attempt: the minimum, doubled
// each time up to the maximum, spread by jitter (ADR-0001).
type schedule struct {
	delays   backoff.ExponentialBackOff
	min, max time.Duration
	jitter   float64
}

// newSchedule returns a schedule that begins with the minimum.
func newSchedule(o *Tuning) *schedule {
	s := &schedule{min: o.BackoffMin, max: o.BackoffMax, jitter: o.BackoffJitter}
	s.delays = backoff.ExponentialBackOff{
		InitialInterval:     o.BackoffMin,
		Multiplier:          2,
		MaxInterval:         o.BackoffMax,
		RandomizationFactor: 0, // next adds the jitter, because that of the library would exceed the maximum
		MaxElapsedTime:      0, // no limit
		Clock:               frozenClock{},
	}
	s.delays.Reset()
	return s
}

// next draws the delay uniformly from [(1-jitter)d, (1+jitter)d] ∩ [min, max]:
// clamping the interval instead of the result keeps capped delays apart.
func (s *schedule) next(random float64) time.Duration {
	d := float64(s.delays.NextBackOff())
	low := max(d*(1-s.jitter), float64(s.min))
	high := min(d*(1+s.jitter), float64(s.max))
	return time.Duration(low + random*(high-low))
}

// frozenClock keeps the library's unused elapsed time off the real clock.
type frozenClock struct{}

func (frozenClock) Now() time.Time { return time.Time{} }
