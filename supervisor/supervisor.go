package supervisor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Options configure a Supervisor. The zero value of each field means the
// default stated beside it.
type Options struct {
	// Name tells supervisors apart in errors and events.
	Name string

	// Intensity is how many restarts of all children together are allowed
	// within Period. One more, and the supervisor gives up. 3; negative: none.
	Intensity int
	Period    time.Duration // 5 s

	// OnEvent is told what happens to children, one event at a time and in
	// order, on a goroutine of the supervisor's that exists only while there
	// are events. It must not block, and must not wait for the supervisor's
	// stop; while it runs, at most 1,024 further events wait, and what does
	// not fit is dropped and counted in Event.Dropped. Nothing is told after
	// Stop or Wait has returned the supervisor's verdict. Nil: nobody is told.
	OnEvent func(Event)
}

func (o Options) withDefaults() Options {
	o.Intensity = cmp.Or(o.Intensity, 3)
	o.Period = cmp.Or(o.Period, defaultPeriod)
	return o
}

const (
	defaultPeriod   = 5 * time.Second
	defaultShutdown = 5 * time.Second

	keptOver = 128 // children that are over and still listed
)

// A Supervisor owns the goroutines of its children. Its methods may be called
// from any goroutine. It costs nothing but memory while no child ends, and
// whoever made it calls Stop.
type Supervisor struct {
	options Options
	done    chan struct{} // closed when the supervisor has stopped
	verdict error         // what Stop and Wait return; set before done is closed
	news    news

	mu       sync.Mutex
	stopping bool              // no child is started or restarted any more
	children map[string]*Child // what runs, by id
	over     []*Child          // what ran, at most keptOver, oldest first
	started  uint64            // how many were ever started
	restarts []time.Time       // the recent ones, oldest first
	gaveUp   *IntensityError   // nil unless the supervisor gave up
}

// New makes a supervisor without children.
func New(o Options) *Supervisor {
	return &Supervisor{
		options:  o.withDefaults(),
		done:     make(chan struct{}),
		news:     news{hook: o.OnEvent, supervisor: o.Name},
		children: make(map[string]*Child),
	}
}

// Start runs a child. It returns once the child's goroutine has been started,
// not when the child is of use. It fails with a *DuplicateError when the id
// belongs to a child that runs, and with ErrStopped when the supervisor is
// stopping. It panics when Run is nil.
func (s *Supervisor) Start(spec ChildSpec) (*Child, error) {
	if spec.Run == nil {
		panic("supervisor: ChildSpec.Run is nil")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return nil, fmt.Errorf("%s: starting child %q: %w", title(s.options.Name), spec.ID, ErrStopped)
	}
	s.started++
	if spec.ID == "" {
		spec.ID = s.unusedID()
	}
	if _, runs := s.children[spec.ID]; runs {
		return nil, &DuplicateError{s.options.Name, spec.ID}
	}
	s.over = slices.DeleteFunc(s.over, func(c *Child) bool { return c.spec.ID == spec.ID })
	c := newChild(s, spec.withDefaults(), s.started)
	s.children[spec.ID] = c
	s.news.tell(Event{Kind: ChildStarted, Child: spec.ID, At: c.since})
	c.launch()
	return c, nil
}

// unusedID names a child that was given no name.
func (s *Supervisor) unusedID() string {
	for n := s.started; ; n++ {
		id := fmt.Sprintf("child-%d", n)
		if _, runs := s.children[id]; !runs {
			return id
		}
	}
}

// Children reports, in the order of their start, the children that run and the
// last 128 that are over.
func (s *Supervisor) Children() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed := append(s.running(), s.over...)
	slices.SortFunc(listed, inOrder)
	statuses := make([]Status, len(listed))
	for i, c := range listed {
		statuses[i] = c.status()
	}
	return statuses
}

// running lists the children that run, in the order of their start.
func (s *Supervisor) running() []*Child {
	return slices.SortedFunc(maps.Values(s.children), inOrder)
}

func inOrder(a, b *Child) int { return cmp.Compare(a.order, b.order) }
