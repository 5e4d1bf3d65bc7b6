package actor

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/explore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Where the loop's own goroutine is.
type whereabouts uint8

const (
	absent  whereabouts = iota // there is none
	running                    // it has the loop
	waiting                    // it waits for woken
	ending                     // it has ended the loop, and runs what is behind that
)

// A scene is a loop, its mailbox, and the goroutines around it. Each of them makes one change at a
// time, in every order.
type scene struct {
	owner    Owner
	events   int // in the mailbox
	own      whereabouts
	ownToken Held
	lent     Held // the token of a lent goroutine
	jobs     int  // goroutines that do one
	left     [steps]uint8
	fault    error
	says     []string
}

// A step is what one goroutine does.
type step uint8

const (
	opens step = iota
	posts
	lends
	ticks
	// The loop's own goroutine, unless a lent one has the loop.
	hands // hands a job over
	lasts // panics, or is interrupted
	ends
	panics // behind the end
	leavesLoop
	takes // the events, or else it waits
	parks
	wakesUp
	// A lent goroutine.
	works // takes the events, or else gives the loop back
	resumes
	adopts
	// A goroutine with a job.
	completes
	steps
)

var stepNames = [steps]string{"a caller opens the loop", "a goroutine posts", "a goroutine lends itself", "a timer ticks", "a job begins", "the own goroutine panics",
	"the own goroutine ends the loop", "it panics behind the end", "it leaves", "the own goroutine takes or waits", "the own goroutine takes or leaves", "the own goroutine wakes up",
	"the lent goroutine takes or rests", "the lent goroutine resumes the own one", "the lent goroutine becomes the own one", "a job is done"}

func (s step) String() string { return stepNames[s] }

// bounds says how often each step is possible. What has no bound uses up events or a goroutine, so every order ends.
var bounds = [steps]uint8{opens: 1, posts: 2, lends: 2, ticks: 1, hands: 1, lasts: 2, ends: 1, panics: 1, resumes: 2, adopts: 1}

const unbounded = 255

func newScene() *scene {
	s := &scene{left: bounds}
	for i := range s.left {
		if bounds[i] == 0 {
			s.left[i] = unbounded
		}
	}
	return s
}

func (s *scene) clone() *scene {
	twin := &scene{events: s.events, own: s.own, ownToken: s.ownToken, lent: s.lent, jobs: s.jobs, left: s.left, fault: s.fault}
	if twin.owner.state = s.owner.state; s.owner.woken != nil {
		twin.owner.woken = make(chan Held, 1)
		if len(s.owner.woken) > 0 {
			token := <-s.owner.woken
			s.owner.woken <- token
			twin.owner.woken <- token
		}
	}
	return twin
}

// possible reports whether a step can be made now.
func (s *scene) possible(now step) bool {
	switch now {
	case opens:
		return s.owner.state == Closed
	case hands:
		return s.own == running || s.lent.OK()
	case lasts, ends, takes:
		return s.own == running
	case parks:
		return s.own == running && s.ownToken.in == Own
	case panics, leavesLoop:
		return s.own == ending
	case wakesUp:
		return s.own == waiting && len(s.owner.woken) > 0
	case works, resumes:
		return s.lent.OK()
	case adopts:
		return s.lent.OK() && !s.lent.Beside()
	case completes:
		return s.jobs > 0
	}
	return true
}

func (s *scene) choices(to []step) []step {
	for now := range steps {
		if s.left[now] > 0 && s.possible(now) {
			to = append(to, now)
		}
	}
	return to
}

// began is what a new goroutine of the loop does.
func (s *scene) began(token Held) {
	if s.own != absent {
		s.fail("a second own goroutine was started")
	}
	s.own, s.ownToken = running, token
}

// apply makes a step. It fails instead of a panic.
func (s *scene) apply(now step) {
	defer func() {
		if value := recover(); value != nil {
			s.fail(fmt.Sprint(value))
		}
	}()
	if s.left[now] != unbounded {
		s.left[now]--
	}
	s.owner.start = s.began
	switch now {
	case opens:
		s.lent = s.owner.Open(s.began)
	case posts, lends, ticks:
		if s.accepts() {
			s.lend(s.owner.Bring(Change(now - posts)).Go())
		}
	case hands:
		s.jobs++
	case lasts:
		s.ownToken = s.owner.Last()
	case ends:
		s.owner.End()
		s.own, s.events = ending, 0 // the last events are handled, too
	case panics:
		s.own, s.ownToken = running, s.owner.Last()
	case leavesLoop:
		s.own = absent
	case takes, parks:
		s.rests(now == takes)
	case wakesUp:
		s.own, s.ownToken = running, <-s.owner.woken
	case works:
		if s.events > 0 {
			s.events = 0
			break
		}
		s.owner.Rest(s.lent, false)
		s.lent = Held{}
	case resumes:
		next := s.owner.Resume(s.lent)
		s.lent = Held{}
		s.lend(next.Go())
	case adopts:
		s.began(s.owner.Adopt(s.lent))
		s.lent = Held{}
	case completes:
		s.jobs--
		if !s.accepts() {
			break
		}
		switch token := s.owner.Bring(Done).Go(); {
		case token.in == Own:
			s.began(token)
		default:
			s.lend(token)
		}
	}
	s.says = append(s.says, s.owner.state.String())
}

// accepts puts an event into the mailbox, unless that is closed.
func (s *scene) accepts() bool {
	if !s.owner.Accepts() {
		return false
	}
	s.events++
	return true
}

func (s *scene) lend(token Held) {
	if token.OK() && s.lent.OK() {
		s.fail("two goroutines are lent")
	}
	if token.OK() {
		s.lent = token
	}
}

// rests lets the own goroutine take the events, or rest.
func (s *scene) rests(waits bool) {
	if s.events > 0 {
		s.events = 0
		return
	}
	if s.own = absent; s.owner.Rest(s.ownToken, waits) != nil {
		s.own = waiting
	}
}

func (s *scene) fail(why string) { s.fault = errors.Join(s.fault, errors.New(why)) }

// holders counts the goroutines that have the loop.
func (s *scene) holders() (n int, as State) {
	if s.lent.OK() {
		n, as = n+1, s.lent.in
	}
	if s.own == running {
		n, as = n+1, s.ownToken.in
	}
	if len(s.owner.woken) > 0 {
		n, as = n+1, s.owner.state
	}
	return n, as
}

// broken returns which guarantee of the table is broken.
func (s *scene) broken() error {
	n, as := s.holders()
	var next [steps]step
	waits := s.owner.state == Resting || s.owner.state == Beside || s.owner.state == Waiting
	switch {
	case s.fault != nil:
		return s.fault
	case n > 1:
		return errors.New("two goroutines have the loop")
	case n == 1 && as != s.owner.state:
		return fmt.Errorf("a goroutine has the loop as %s, but it is %s", as, s.owner.state)
	case n == 0 && s.owner.state >= Lent && s.owner.state != Waiting:
		return errors.New("nobody has the loop, and nobody will")
	case n == 0 && s.events > 0:
		return errors.New("an event waits, and nobody has the loop")
	case waits != (s.own == waiting && len(s.owner.woken) == 0):
		return errors.New("whether the own goroutine waits is not what the state says")
	case len(s.choices(next[:0])) == 0 && s.own != absent && s.own != waiting:
		return errors.New("the own goroutine can do nothing")
	}
	return nil
}

func (s *scene) form(to []byte) []byte {
	to = append(to, byte(s.owner.state), byte(s.events), byte(s.own), byte(s.ownToken.in), byte(s.lent.in), byte(s.jobs), byte(len(s.owner.woken)))
	if s.owner.woken != nil {
		to = append(to, 1)
	}
	return append(to, s.left[:]...)
}

// search goes through every order in which two goroutines post, two are lent, a timer ticks, a job is handed over,
// and the loop panics and ends.
func search() *explore.Search[*scene, step] {
	return &explore.Search[*scene, step]{Limit: 1_000_000, World: explore.World[*scene, step]{
		New:     newScene,
		Choices: (*scene).choices,
		Apply:   (*scene).apply,
		Clone:   (*scene).clone,
		Form: func() func(*scene) []byte {
			var form []byte
			return func(s *scene) []byte { form = s.form(form[:0]); return form }
		},
		Digest: func(*scene) uint64 { return 0 },
		Fault:  (*scene).broken,
		Talk:   func(s *scene) { s.says = nil },
		Said:   func(s *scene) []string { said := s.says; s.says = nil; return said },
	}}
}

// In every order of changes, at most one goroutine has the loop, and no event is left where nobody has it.
//
// Guarantees: G-0048.1
func TestEveryOrderOfChanges(t *testing.T) {
	s := search()
	s.Run()
	t.Logf("%d states, %d steps, depth %d", s.States(), s.Steps, s.Depth)
	if s.Found != nil {
		t.Error(s.Found)
	}
	if !s.Closed {
		t.Error("the search has not ended, want every order")
	}
}

// Each row of the table is there because some order of changes needs it.
func TestEveryRowIsReached(t *testing.T) {
	var reached [states][changes]atomic.Bool
	s := search()
	plain := s.World.Apply
	s.World.Apply = func(of *scene, now step) {
		before, twin := of.owner.state, of.clone()
		plain(of, now)
		if how, ok := twin.change(now); ok {
			reached[before][how].Store(true)
		}
	}
	s.Run()
	for from := range states {
		for how := range changes {
			if got := reached[from][how].Load(); !got && table[from][how].then != impossible && table[from][how].then != refused {
				t.Errorf("nothing makes the change %s in the state %s", how, from)
			}
		}
	}
}

// change returns which change a step makes.
func (s *scene) change(now step) (how Change, makes bool) {
	switch now {
	case opens:
		return open, true
	case posts, lends, ticks:
		return Change(now - posts), true
	case lasts, panics:
		return last, true
	case ends:
		return end, true
	case takes:
		return wait, s.events == 0
	case parks:
		return rest, s.events == 0
	case works:
		return rest, s.events == 0
	case resumes:
		return resume, true
	case adopts:
		return adopt, true
	case completes:
		return Done, true
	}
	return 0, false
}

// A goroutine that uses its token twice panics, before it can harm the one that has the loop now.
func TestTokenIsGoodForOneGoroutine(t *testing.T) {
	var o Owner
	held := o.Open(func(Held) {})
	o.Rest(held, false)
	for name, again := range map[string]func(){
		"rests":   func() { o.Rest(held, false) },
		"resumes": func() { o.Resume(held) },
		"adopts":  func() { o.Adopt(held) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a goroutine that has given the loop back %s, want a panic", name)
				}
			}()
			again()
		}()
	}
}

// A promise gives its token to one goroutine.
func TestPromiseIsTakenOnce(t *testing.T) {
	var o Owner
	var p Promise
	if p.Take().OK() {
		t.Error("an empty promise had a token")
	}
	p.Keep(o.Open(func(Held) {}))
	if first, second := p.Take(), p.Take(); !first.OK() || second.OK() {
		t.Errorf("the tokens are %v, %v; want one", first, second)
	}
}
