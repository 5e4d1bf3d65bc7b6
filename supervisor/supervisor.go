package supervisor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// Options configure a Supervisor. The zero value of each field means the
// default stated beside it.
type Options struct {
	// Name tells supervisors apart in errors, events and reports.
	Name string

	// Strategy says who else is restarted when a child is. OneForOne.
	Strategy Strategy

	// Intensity is how many restarts of all children together are allowed
	// within Period. One more, and the supervisor gives up. 3; negative: none.
	Intensity int
	Period    time.Duration // 5 s, also if it is negative

	// Registry has the Conns that Connect runs under their names, for as long as
	// they are children, whatever other supervisors have it too. A Conn needs a
	// name then, and one that is taken refuses it. Nil: names are this
	// supervisor's alone.
	Registry *registry.Registry

	// OnEvent is told what happens to children, one event at a time and in
	// order, on a goroutine of the supervisor's that exists only while there
	// are events. It must not block, and must not wait for the supervisor's
	// stop; while it runs, at most 1,024 further events wait, and what does
	// not fit is dropped and counted in Event.Dropped. Nothing is told after
	// Stop, Close or Wait has returned the verdict of a supervisor that does not
	// begin again. Nil: nobody is told.
	OnEvent func(Event)
}

func (o Options) withDefaults() Options {
	o.Intensity = cmp.Or(o.Intensity, 3)
	if o.Period <= 0 {
		o.Period = defaultPeriod
	}
	return o
}

const (
	defaultPeriod   = 5 * time.Second
	defaultShutdown = 5 * time.Second

	keptOver = 128 // children that are over and still listed
)

// A Supervisor, made by New, owns the goroutines of its children. Its methods may
// be called from any goroutine. It costs nothing but memory while no child ends,
// and whoever made it calls Stop or Close, or makes it the child of another.
type Supervisor struct {
	options Options
	born    time.Time
	news    news
	pulse   pulse

	mu       sync.Mutex
	core     *core
	children map[uint64]*Child // that are not over, by key
	byID     map[string]*Child // the same, and those that are over and still listed
	over     []*Child          // the latter, at most keptOver, oldest first
	keys     uint64            // how many were ever given
	parent   *Child            // that runs it; nil for the root of a tree
	closing  bool              // that has had its present Run finish
	life     *life             // the present one, or the last
	timer    *time.Timer       // nil before the first deadline
	armed    instant           // when it fires; 0 when it does not
}

// A life is the time from a begin to the stop that follows. A root has one.
type life struct {
	since time.Time     // of the supervisor's state
	ready chan struct{} // closed when the children it began with have been started
	done  chan struct{} // closed when the supervisor has stopped

	gaveUp   *IntensityError // nil unless it did
	culprit  *Child          // because of this one
	failures []error         // of children, while they were being stopped
	verdict  error           // set before done is closed
}

func newLife() *life {
	return &life{since: time.Now(), ready: make(chan struct{}), done: make(chan struct{})}
}

// prolong is a life that goes on from one that has ended. Its verdict has all
// that was in the first.
func (l *life) prolong() *life {
	longer := newLife()
	longer.gaveUp, longer.culprit, longer.failures = l.gaveUp, l.culprit, slices.Clone(l.failures)
	return longer
}

// New makes a supervisor without children. It panics on a Strategy that there is
// not.
func New(o Options) *Supervisor {
	if o.Strategy > RestForOne {
		panic(fmt.Sprintf("supervisor: Options.Strategy: there is no %s", o.Strategy))
	}
	s := &Supervisor{
		options:  o.withDefaults(),
		born:     time.Now().Add(-time.Nanosecond), // so that no instant is zero
		news:     news{hook: o.OnEvent, supervisor: o.Name},
		children: make(map[uint64]*Child),
		byID:     make(map[string]*Child),
		life:     newLife(),
	}
	s.core = newCore(&s.options)
	close(s.life.ready)
	return s
}

// Start runs a child. It returns when the child's Init has returned, or at once
// when it has none. Where the Strategy has a child depend on those before it, it
// waits first until none of them is being started or stopped; so an Init that
// starts a child of its own supervisor waits for itself there.
//
// Start fails with
//
//   - a *DuplicateError when the id belongs to a child that is not over,
//   - ErrNested when a Supervisor cannot be a child here,
//   - ErrStopped when the supervisor is stopping,
//   - the error of Init,
//   - a *StuckError when the child ignores a stop in its Init,
//   - the cause of ctx, at whose end a child that was begun is told to stop.
//
// A child that was not started is forgotten once it has ended, and never
// restarted. Start panics when the spec has neither Run nor Supervisor, or both,
// or a Restart that there is not.
func (s *Supervisor) Start(ctx context.Context, spec ChildSpec) (*Child, error) {
	c := newChild(s, spec)
	if ctx.Err() != nil {
		return nil, c.refused("starting", context.Cause(ctx))
	}
	if _, err := c.nest(); err != nil {
		return nil, c.refused("starting", err)
	}
	key, err := s.add(c)
	if err != nil {
		c.unnest()
		return nil, c.refused("starting", err)
	}
	if err := c.awaitBegin(ctx); err != nil {
		s.post(&message{kind: haltAsked, child: key})
		return nil, c.refused("starting", err)
	}
	return c, nil
}

func (s *Supervisor) add(c *Child) (key uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.spec.ID == "" {
		c.spec.ID = s.unusedID()
	}
	err = s.enlist(c)
	return c.key, err
}

// enlist hands a child to the core, which starts it. The mutex is held.
func (s *Supervisor) enlist(c *Child) error {
	present, ok := s.byID[c.spec.ID]
	switch {
	case ok && !present.isOver():
		return &DuplicateError{s.options.Name, c.spec.ID}
	case s.core.state != Running:
		return s.stopped()
	case c.spec.Supervisor != nil && !c.spec.Supervisor.has(c):
		return errForgotten
	case present == c:
		s.unlist(c)
	case ok:
		s.forget(present)
	}
	s.keys++
	c.key, c.err, c.failure = s.keys, nil, nil
	c.begun, c.done, c.overdue, c.hidden = moment{}, moment{}, moment{}, false
	s.children[c.key], s.byID[c.spec.ID] = c, c
	s.step(&message{kind: added, child: c.key, traits: c.spec.traits()})
	return nil
}

// unusedID names a child that was given no name.
func (s *Supervisor) unusedID() string {
	for n := s.keys + 1; ; n++ {
		id := fmt.Sprintf("child-%d", n)
		if _, listed := s.byID[id]; !listed {
			return id
		}
	}
}

// Child finds a child by its id: one that is not over, or that is still listed.
func (s *Supervisor) Child(id string) (*Child, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.byID[id]
	return c, ok
}
