//bowline:pure

package supervisor

import "time"

// A core is a supervisor as a pure state machine: no goroutine, lock, clock or
// I/O. Equal messages at equal times give equal effects.
type core struct {
	strategy  Strategy
	intensity int
	period    time.Duration
	nested    bool // it may begin again after it has stopped

	state    State // Running, Draining, Stopping or Stopped
	keeps    bool  // stopping: who was running starts with it again
	members  members
	restarts []instant // the recent ones, oldest first
	doomed   []*member // who is to be stopped, next last
	awaited  *member   // the one of them whose end is waited for
	ordered  bool      // the members that were kept are being started
	drainDue instant   // draining: when that is over
	dueAt    instant   // no deadline is earlier; 0: there is none

	now instant
	out []effect
}

func newCore(o *Options) *core {
	return &core{
		strategy: o.Strategy, intensity: o.Intensity, period: o.Period,
		state: Running, members: members{byKey: make(map[uint64]*member)},
	}
}

// step takes one message at time now. The effects are to be performed in
// order, before the next step.
func (c *core) step(now instant, msg *message) []effect {
	c.now, c.out = now, c.out[:0]
	m := c.members.byKey[msg.child]
	switch msg.kind {
	case begun:
		c.onBegun()
	case added:
		c.onAdded(msg)
	case stopAsked:
		c.onStopAsked(msg.keeps)
	case drainAsked:
		c.onDrainAsked(msg.due)
	case tick:
		c.onTick()
	default:
		if m != nil { // else it is over by now
			c.onMember(m, msg)
		}
	}
	c.proceed()
	return c.out
}

func (c *core) onMember(m *member, msg *message) {
	switch msg.kind {
	case haltAsked:
		c.onHaltAsked(m)
	case restartAsked:
		c.onRestartAsked(m)
	case initialized:
		c.onInitialized(m)
	case drained:
		if m.state == Draining {
			c.halt(m, false)
		}
	case ended:
		c.onEnded(m, msg)
	}
}

func (c *core) emit(kind effectKind, m *member) {
	c.out = append(c.out, effect{kind: kind, child: m.key})
}

// enter changes the state of a member; nothing else does.
func (c *core) enter(m *member, s State) {
	c.members.count(m.state, -1)
	c.members.count(s, 1)
	m.state, m.since, m.stuck, m.due = s, c.now, false, 0
}

func (c *core) onAdded(msg *message) {
	m := &member{traits: msg.traits, key: msg.child, fresh: true}
	c.members.link(m)
	c.run(m)
}

// run has a member run as soon as the strategy allows: at once, or when all
// before it do.
func (c *core) run(m *member) {
	nobodyWaits := c.members.census == census{} && !c.ordered
	if c.state == Running && (c.strategy == OneForOne || nobodyWaits) {
		c.launch(m)
		return
	}
	c.enter(m, Waiting)
}

func (c *core) launch(m *member) {
	if c.enter(m, Starting); !m.inits {
		m.fresh = false
		c.enter(m, Running)
	}
	c.emit(launch, m)
}

// advance starts the members that wait, in order, each when those before it
// have started. Where children need each other, those that are to run again
// have to be gone first.
func (c *core) advance() {
	if c.members.waiting == 0 && !c.ordered || c.isHeldUp() {
		return
	}
	for m := range c.members.inOrder() {
		if m.state == Waiting {
			c.launch(m)
		}
		if m.state == Starting {
			return
		}
	}
	if c.ordered {
		c.ordered = false
		c.out = append(c.out, effect{kind: ready})
	}
}

// isHeldUp reports whether a member that still runs keeps others from being
// started. One that has ignored its stop and is not to run again does not.
func (c *core) isHeldUp() bool {
	if c.strategy == OneForOne {
		return false
	}
	for m := range c.members.inOrder() {
		if m.state == Stopping && (m.again || !m.stuck) {
			return true
		}
	}
	return false
}

func (c *core) onInitialized(m *member) {
	if m.state != Starting {
		return // it was told to stop meanwhile
	}
	m.fresh = false
	c.enter(m, Running)
}

// onEnded decides what follows the end of a member.
func (c *core) onEnded(m *member, msg *message) {
	m.resumes = msg.resumes
	switch {
	case m.state == Stopping && m.again && !msg.final:
		c.run(m)
	case m.state == Stopping:
		c.retire(m)
	case m.fresh: // whoever wanted to start it is told
		c.retire(m)
	case msg.final || !m.restart.again(msg.failed):
		c.retire(m)
	case c.state != Running || m.doomed: // it would have been stopped
		c.hold(m)
	case !c.affords():
		c.giveUp(m)
	default:
		c.restart(m)
	}
	if c.awaited == m {
		c.awaited = nil
	}
}

// hold keeps a member for the time when it can run again, if there is one.
func (c *core) hold(m *member) {
	if c.state != Running && !c.keeps {
		c.retire(m)
		return
	}
	c.enter(m, Waiting)
}

// retire is the end of a member, once what its last Run has left is closed.
func (c *core) retire(m *member) {
	if m.resumes {
		m.again = false
		c.stopWithin(m)
		c.emit(dismiss, m)
		if !m.doomed { // so that the supervisor does not stop without it
			c.doomed = append(c.doomed, m)
		}
		return
	}
	c.enter(m, Stopped)
	c.members.unlink(m)
	c.emit(retire, m)
}
