//bowline:pure

package supervisor

import "time"

// An instant is a time on the supervisor's own monotonic clock: the duration
// since the supervisor was created. A deadline of zero means there is none.
type instant = time.Duration

// A message is one thing that happened: the input of the core. Each kind uses
// only the fields that name it.
type message struct {
	kind   messageKind
	child  uint64 // key of the child it is about
	traits traits // added: the part of the ChildSpec that the core needs
	handle *Child // added: the child itself, which the core passes to the shell with each effect

	failed  bool    // ended: with an error or a panic
	final   bool    // ended: the child cannot run again
	resumes bool    // ended: if no other Run follows, the resource must be closed
	keeps   bool    // stopAsked: the children start again with the supervisor
	due     instant // drainAsked: when draining must be over
}

type messageKind uint8

const (
	_ messageKind = iota

	// From the program, or from the parent supervisor.
	begun        // the stopped supervisor starts again, with the children it kept
	added        // a child was added to a running supervisor
	stopAsked    // stop the supervisor
	drainAsked   // drain the supervisor
	haltAsked    // stop one child
	restartAsked // restart one child

	// From the goroutines of a child.
	initialized // its Init has returned
	drained     // its Drain has returned while its Run has not
	ended       // all its goroutines have returned

	tick // the timer fired
)

// An effect is one thing for the shell to do. The shell performs effects in
// order, and none of them blocks.
type effect struct {
	kind   effectKind
	child  uint64  // key of the child it is about
	handle *Child  // the child itself, for the shell; nil for ready and conclude
	rerun  bool    // halt: the child runs again afterwards
	due    instant // drain: when it must be over
}

type effectKind uint8

const (
	_        effectKind = iota
	launch              // run the child
	drain               // call the Drain of the child
	halt                // cancel the child
	discard             // close what the last Run of the child left open
	stuck               // report that the child ignores its stop
	retire              // the child has terminated
	giveUp              // this child's restart was one too many
	ready               // the children that were kept have started
	conclude            // the supervisor has stopped
)

// A core decides what a supervisor does. It is a pure state machine: no
// goroutine, lock, clock or I/O. Equal messages at equal times give equal
// effects. This file starts children and handles their ends; core_restart.go
// and core_stop.go restart and stop them.
type core struct {
	strategy  Strategy
	intensity int
	period    time.Duration
	nested    bool // the supervisor is a child, and may begin again after it has stopped

	state     State // Running, Draining, Stopping or Stopped
	keeps     bool  // while stopping: keep members that would run again for the next begin
	members   members
	restarts  []instant // when children were restarted within the period, oldest first
	stopQueue []*member // members to stop, the next one last
	awaited   *member   // the member whose end the queue waits for
	beginning bool      // the kept members are being started
	drainDue  instant   // while draining: when it must be over
	dueAt     instant   // the earliest deadline, or an earlier time

	now instant
	out []effect
}

func newCore(o *Options) core {
	return core{
		strategy: o.Strategy, intensity: o.Intensity, period: o.Period,
		state: Running, members: members{byKey: make(map[uint64]*member)},
	}
}

// step applies one message at time now. The caller performs the returned
// effects, in order, before the next step.
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
		if m != nil { // otherwise it has terminated in the meantime
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
	c.out = append(c.out, effect{kind: kind, child: m.key, handle: m.handle})
}

// enter changes the state of a member. Nothing else does.
func (c *core) enter(m *member, s State) {
	c.members.count(m.state, -1)
	c.members.count(s, 1)
	m.state, m.since, m.stuck, m.due = s, c.now, false, 0
}

func (c *core) onAdded(msg *message) {
	m := &member{traits: msg.traits, key: msg.child, handle: msg.handle, firstStart: true}
	c.members.link(m)
	c.run(m)
}

// run starts a member as soon as the strategy allows: immediately, or when all members
// before it have started.
func (c *core) run(m *member) {
	nobodyWaits := c.members.stateCounts == stateCounts{} && !c.beginning
	if c.state == Running && (c.strategy == OneForOne || nobodyWaits) {
		c.launch(m)
		return
	}
	c.enter(m, Waiting)
}

func (c *core) launch(m *member) {
	if c.enter(m, Starting); !m.inits {
		m.firstStart = false
		c.enter(m, Running)
	}
	c.emit(launch, m)
}

// advance starts the waiting members in order, each after those before it have started.
// If children depend on each other, it starts none until every member that will run
// again has returned.
func (c *core) advance() {
	if c.members.waiting == 0 && !c.beginning || c.isHeldUp() {
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
	if c.beginning {
		c.beginning = false
		c.out = append(c.out, effect{kind: ready})
	}
}

// isHeldUp reports whether a member that is still stopping prevents others from
// starting. A stuck member does so only if it will run again.
func (c *core) isHeldUp() bool {
	if c.strategy == OneForOne {
		return false
	}
	for m := range c.members.inOrder() {
		if m.state == Stopping && (m.rerun || !m.stuck) {
			return true
		}
	}
	return false
}

func (c *core) onInitialized(m *member) {
	if m.state != Starting {
		return // the member was told to stop meanwhile
	}
	m.firstStart = false
	c.enter(m, Running)
}

// onEnded decides what follows the end of a member.
func (c *core) onEnded(m *member, msg *message) {
	m.resumes = msg.resumes
	switch {
	case m.state == Stopping && m.rerun && !msg.final:
		c.run(m)
	case m.state == Stopping:
		c.retire(m)
	case m.firstStart: // the caller of Start gets the error
		c.retire(m)
	case msg.final || !m.restart.follows(msg.failed):
		c.retire(m)
	case c.state != Running || m.queued: // the member would have been stopped anyway
		c.hold(m)
	case !c.countRestart():
		c.giveUp(m)
	default:
		c.restart(m)
	}
	if c.awaited == m {
		c.awaited = nil
	}
}

// hold keeps a member until it can run again, or retires it if that never happens.
func (c *core) hold(m *member) {
	if c.state != Running && !c.keeps {
		c.retire(m)
		return
	}
	c.enter(m, Waiting)
}

// retire terminates a member. If its last Run left a resource open, retire closes that
// first.
func (c *core) retire(m *member) {
	if m.resumes {
		m.rerun = false
		c.stopWithin(m)
		c.emit(discard, m)
		if !m.queued { // the queue makes the supervisor wait for it before it stops
			c.stopQueue = append(c.stopQueue, m)
		}
		return
	}
	c.enter(m, Stopped)
	c.members.unlink(m)
	c.emit(retire, m)
}
