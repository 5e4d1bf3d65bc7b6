package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor/registry"
)

// Options configure a Supervisor. The zero value of a field means the default
// that its comment states.
type Options struct {
	// Name identifies the supervisor in errors, events and reports. Default:
	// none.
	Name string

	// Strategy says which other children are restarted with one that failed.
	// Default: OneForOne.
	Strategy Strategy

	// Intensity is how many restarts, of all children together, are allowed
	// within Period. On the next one the supervisor gives up: it stops all
	// children and fails with an *IntensityError. Default: 3. Negative: no
	// restart is allowed.
	Intensity int

	// Period is the time over which restarts are counted. Default, also when
	// negative: 5 s.
	Period time.Duration

	// Registry holds the Conns that Connect runs, under their names, for as long
	// as they are children. Several supervisors may share one Registry. With a
	// Registry every Conn needs a conn.Tuning.Name, and Connect fails when that
	// name is taken. Default: none; a name must be unique in this supervisor
	// only.
	Registry *registry.Registry

	// OnEvent is called for every event, one at a time and in order, on a
	// goroutine that exists only while there are events. It must not block and
	// must not wait for the supervisor to stop. While a call runs, up to 1,024
	// events wait; further events are dropped and counted in Event.Dropped. A
	// panic in OnEvent loses that event only. After Stop, Close or Wait has returned,
	// OnEvent is not called again, unless a parent restarts the supervisor. Default:
	// events are discarded.
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
	defaultDrain    = 5 * time.Second

	maxTerminated = 128 // how many terminated children stay listed
)

// A Supervisor starts, watches, restarts and stops children. Create one with
// New, and end it with Stop or Close, or make it the child of another
// supervisor. Its methods may be called from any goroutine. It has no goroutine
// of its own; while no child ends it costs memory only.
type Supervisor struct {
	options Options
	born    time.Time
	events  eventQueue
	changes notifier

	mu         sync.Mutex
	core       core
	byID       map[string]*Child // the children that have not terminated, and the terminated ones that are still listed, by ID
	terminated []*Child          // terminated children that are still listed, oldest first, at most maxTerminated
	keys       uint64            // the last key that was used
	starting   *Child            // the child that Start is adding at this moment; else nil
	parent     *Child            // the child that runs this supervisor; nil for the root
	closing    bool              // the parent has asked for a drain
	counts     counts
	lifetime   *lifetime   // the present lifetime, or the last one
	timer      *time.Timer // nil until the first deadline
	armed      instant     // when the timer fires; 0: it is stopped
}

// A lifetime lasts from a begin to the following stop. A root supervisor has
// one, a nested supervisor one for each time that its parent runs it.
type lifetime struct {
	since time.Time   // when the supervisor entered its state
	ready wait.Signal // the children it began with have started
	done  wait.Signal // the supervisor has stopped

	gaveUp   *IntensityError // nil unless the supervisor gave up
	gaveUpOn *Child          // the child whose restart was one too many
	failures []error         // failures of children while they were being stopped
	result   error           // set before done fires
}

func newLifetime() *lifetime {
	return &lifetime{since: time.Now()}
}

// New returns a supervisor without children. It panics when Options.Strategy is
// unknown.
func New(o Options) *Supervisor {
	if o.Strategy > RestForOne {
		panic(fmt.Sprintf("supervisor: Options.Strategy: unknown %s", o.Strategy))
	}
	s := &Supervisor{
		options:  o.withDefaults(),
		born:     time.Now().Add(-time.Nanosecond), // a nanosecond ago, because no instant may be zero
		events:   eventQueue{hook: o.OnEvent, supervisor: o.Name},
		byID:     make(map[string]*Child),
		lifetime: newLifetime(),
	}
	s.core = newCore(&s.options)
	s.lifetime.ready.Fire()
	return s
}

// Start runs a child. It returns when the child's Init has returned, or immediately
// when there is none. Under OneForAll and RestForOne it first waits until no
// earlier child is starting or stopping; an Init that starts another child of
// its own supervisor therefore waits forever.
//
// Start fails with
//
//   - a *DuplicateError when a child with that ID has not terminated,
//   - ErrNested when ChildSpec.Supervisor cannot be a child here,
//   - ErrStopped when the supervisor is stopping or has stopped,
//   - the error of Init,
//   - a *StuckError when Init ignores that the child is being stopped,
//   - the cause of ctx when ctx ends first; the child is then stopped.
//
// A child that fails to start is never restarted, and is forgotten once it has
// returned. Start panics when the spec has neither Run nor Supervisor, or both,
// or an unknown Restart.
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
	if c.startRuns {
		c.startRuns = false
		c.run(context.Background(), 0)
	}
	if err := c.awaitStart(ctx); err != nil {
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
	s.starting = c
	err = s.enlist(c)
	s.starting = nil
	return c.key, err
}

// enlist passes a child to the core, which starts it. The caller holds the mutex.
func (s *Supervisor) enlist(c *Child) error {
	present, ok := s.byID[c.spec.ID]
	switch {
	case ok && !present.done.HasFired():
		return &DuplicateError{s.options.Name, c.spec.ID}
	case s.core.state != Running:
		return s.stopped()
	case c.spec.Supervisor != nil && !(subtree{c.spec.Supervisor}).belongsTo(c):
		return errForgotten
	case present == c:
		s.unlist(c)
	case ok:
		s.forget(present)
	}
	s.keys++
	c.key, c.err, c.failure = s.keys, nil, nil
	c.started, c.done, c.overdue, c.hidden = wait.Signal{}, wait.Signal{}, wait.Signal{}, false
	s.byID[c.spec.ID] = c
	s.step(&message{kind: added, child: c.key, handle: c, traits: c.spec.traits()})
	return nil
}

// unusedID returns an ID for a child whose spec has none.
func (s *Supervisor) unusedID() string {
	for n := s.keys + 1; ; n++ {
		id := fmt.Sprintf("child-%d", n)
		if _, listed := s.byID[id]; !listed {
			return id
		}
	}
}

// Child returns the child with that ID. It finds children that have not
// terminated, and the last 128 that have.
func (s *Supervisor) Child(id string) (*Child, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.byID[id]
	return c, ok
}

// Stop stops the children in reverse start order, each within its Shutdown, and
// waits until all have returned. From then on Start fails with ErrStopped. Stop
// returns nil when every child ended well. Otherwise it joins
//
//   - an *IntensityError when the supervisor gave up,
//   - a *StuckError that names the children that still run,
//   - the errors of children that failed while they were being stopped.
//
// When ctx ends first, Stop returns a *StuckError that names what still runs,
// and the cause of ctx; the children are still being stopped, and a later Stop
// or Wait waits for them. Stop may be called again and from several goroutines;
// all calls return the same result. A child must not call it, because Stop
// would wait for that child.
//
// A nested supervisor that is stopped by this method has ended without an
// error. So its parent runs it again, without the children it had, if it is
// Permanent, and counts that as a restart. Use Child.Stop to stop a nested
// supervisor for good.
func (s *Supervisor) Stop(ctx context.Context) error {
	return s.await(ctx, s.stop(false))
}

func (s *Supervisor) stop(keeps bool) *lifetime {
	return s.endLifetime(&message{kind: stopAsked, keeps: keeps})
}

// Close lets the children finish their work, stops them, and waits until all
// have returned. All of that has one deadline: that of ctx, or five seconds
// when ctx has none.
//
// Children with a Drain, which Conns and nested supervisors have, are drained:
// all at the same time under OneForOne, otherwise one after another in reverse
// start order. Children without a Drain are stopped in reverse order. After nine
// tenths of the time, all children that still run are stopped immediately. A
// nested supervisor has one hundredth less time than the one above it.
//
// Close returns what Stop returns, and the errors of Drain. See Stop for what
// happens when a nested supervisor is closed by this method. A second Close waits
// for the first and does not change its deadline. When ctx ends first, Close stops
// everything as Stop does, and returns a *StuckError that names what still runs,
// and the cause of ctx.
func (s *Supervisor) Close(ctx context.Context) error {
	return s.drainFor(ctx, 0.9)
}

// drainFor closes the supervisor. Part says how much of the time its children may use.
func (s *Supervisor) drainFor(ctx context.Context, part float64) error {
	if _, ok := ctx.Deadline(); !ok {
		within, cancel := context.WithTimeout(ctx, defaultDrain)
		defer cancel()
		ctx = within
	}
	deadline, _ := ctx.Deadline()
	due := s.now() + time.Duration(part*float64(time.Until(deadline)))
	l := s.endLifetime(&message{kind: drainAsked, due: max(due, 1)})
	err := s.await(ctx, l)
	if ctx.Err() != nil && !l.done.HasFired() {
		s.stop(false)
	}
	return err
}

// Wait waits until the supervisor has stopped, because somebody stopped it or
// because it gave up, and returns what Stop returns. When ctx ends first, it
// returns the cause.
func (s *Supervisor) Wait(ctx context.Context) error {
	result, over := s.currentLifetime().await(ctx)
	if !over {
		return fmt.Errorf("%s: waiting for it to stop: %w", title(s.options.Name), context.Cause(ctx))
	}
	return result
}

// endLifetime sends the core a message that ends the lifetime, and returns that
// lifetime. If the lifetime had already ended and its children were kept, a new lifetime
// with the same failures replaces it, which ends when those children are discarded.
func (s *Supervisor) endLifetime(msg *message) *lifetime {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.state == Stopped && s.core.keeps && !msg.keeps {
		ended := s.lifetime
		s.lifetime = newLifetime()
		s.lifetime.gaveUp, s.lifetime.gaveUpOn, s.lifetime.failures = ended.gaveUp, ended.gaveUpOn, slices.Clone(ended.failures)
	}
	s.step(msg)
	return s.lifetime
}

func (s *Supervisor) currentLifetime() *lifetime {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lifetime
}

// await waits for the end of a lifetime. If ctx ends first, its error names what still
// runs.
func (s *Supervisor) await(ctx context.Context, l *lifetime) error {
	result, over := l.await(ctx)
	if over {
		return result
	}
	left := s.unfinished()
	if len(left) == 0 { // everything has returned; only the result is missing
		<-l.done.Wait()
		return l.result
	}
	return fmt.Errorf("%w: %w", &StuckError{s.options.Name, left}, context.Cause(ctx))
}

// await waits until the lifetime or ctx has ended. When both have, the lifetime
// counts.
func (l *lifetime) await(ctx context.Context) (result error, over bool) {
	select {
	case <-l.done.Wait():
	case <-ctx.Done():
	}
	if !l.done.HasFired() {
		return nil, false
	}
	return l.result, true
}

// conclude publishes the result of a lifetime after the hook has received all events. If
// another lifetime may follow, it does not wait for the hook.
func (s *Supervisor) conclude(l *lifetime, another bool, stuck []string) {
	if !another && !s.events.close(defaultShutdown) {
		stuck = append(stuck, hookName)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.conclude(s, stuck)
}

// conclude publishes the result. The caller holds the supervisor's mutex.
func (l *lifetime) conclude(s *Supervisor, stuck []string) {
	defer l.done.Fire()
	var parts []error
	if l.gaveUp != nil {
		parts = append(parts, l.gaveUp)
	}
	if len(stuck) > 0 {
		parts = append(parts, &StuckError{s.options.Name, stuck})
	}
	l.result = errors.Join(append(parts, l.failures...)...)
}

// unfinished returns the names of everything that still runs.
func (s *Supervisor) unfinished() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.runningIDs()
	if len(left) == 0 && s.options.OnEvent != nil {
		return []string{hookName}
	}
	return left
}
