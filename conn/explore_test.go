package conn

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/explore"
)

var reach = flag.String("explore", "near", "how far TestExplore goes: near or full")

// TestExplore visits every state that a small world can come to, breadth
// first, and holds the invariants in each. In the ordinary run it goes a few
// steps; with -explore=full it goes on until a plan has no new states, or
// as many as the plan allows:
//
//	go test ./conn -run TestExplore -explore=full -v
//
// Guarantees: G-0001.1, G-0001.2, G-0001.4, G-0001.6, G-0001.7, G-0001.10, G-0001.14, G-0003.1, G-0003.2, G-0003.4, G-0003.6, G-0003.10, G-0004.1, G-0009.2, G-0019.1, G-0019.4, G-0019.5
func TestExplore(t *testing.T) {
	for _, p := range plans() {
		t.Run(p.name, func(t *testing.T) {
			s := &explore.Search[*scene, choice]{World: p.world(), Limit: nearby}
			if *reach == "full" {
				s.Limit = p.full
			}
			began := time.Now()
			s.Run()
			t.Logf("%d states, %d steps, depth %d, closed: %v, %v", s.States(), s.Steps, s.Depth, s.Closed, time.Since(began).Round(time.Millisecond))
			if s.Found != nil {
				t.Fatal(s.Found)
			}
		})
	}
}

// nearby is how many states of each plan the ordinary run visits.
const nearby = 1500

// world is that of a plan.
func (p *plan) world() explore.World[*scene, choice] {
	return explore.World[*scene, choice]{
		New:     func() *scene { return newScene(p) },
		Choices: (*scene).choices,
		Apply:   (*scene).apply,
		Clone:   (*scene).clone,
		Form:    func() func(*scene) []byte { return new(form).write },
		Digest:  func(w *scene) uint64 { return w.digest },
		Fault:   func(w *scene) error { return w.fault },
		Talk:    func(w *scene) { w.talks = true },
		Said: func(w *scene) []string {
			said := w.said
			w.said = nil
			return said
		},
	}
}

// A plan is a small world to be searched to its end: which of the events may
// come, and how often. Each call is made, each stream opened and each question
// asked at most once, so that the states are finite.
type plan struct {
	name      string
	role      role
	credit    int
	epochs    uint64 // states of later incarnations are checked, and not gone on from
	calls     []callPlan
	questions []question
	events    events
	prologue  []choice // what has happened when the search begins
	full      int      // states to visit in the full search
	liveness  time.Duration
	patience  time.Duration // InitTimeout, which is not doubled beyond longestInit; 0: the default
	gated     bool
	closesNow bool // links are closed without waiting; their loss is reported later
	options   Options
	callers   [lanes]*call // of each call; the first is the notification's
}

// A callPlan is one request of ours. Its id is its place in the plan, from 1.
type callPlan struct {
	timeout   time.Duration
	limit     time.Duration // what the timeout may be prolonged to
	restarts  bool          // by progress
	streaming bool
	by        maker
	within    uint8 // of a handler: the question, from 1, that it asks back for
}

type maker uint8

const (
	byProgram maker = iota
	byHandshake
	byHandler
)

// A question is one request of the peer's.
type question struct {
	lane  uint8
	id    int64
	kind  questionKind
	more  bool // more of its frame is to come: it is in a batch
	stays bool // the peer may send more on its stream
}

type questionKind uint8

const (
	ordinary questionKind = iota
	exclusively
	staying
	probing
	nestedly
	immediately     // served in the step in which it comes, or its turn does
	openingASession // immediately, and nothing else is served meanwhile
)

func (q question) isExclusive() bool { return q.kind == exclusively || q.kind == openingASession }

// Lanes are the streams by number: Main, then one for each call by its id, then
// those that the peer begins.
const (
	ownLanes  = 3
	lanes     = 6
	noID      = 9 // of a request never made
	questions = 4
	epochs    = 5

	firstProbe = 10 // ids of probes begin here
	probes     = 4  // states with more are checked, and not gone on from
)

// A choice is one thing that may happen next.
type choice struct {
	kind choiceKind
	a, b uint8
}

type choiceKind uint8

const (
	makesCall choiceKind = iota
	callsStale
	leaves
	notes
	notesOnStream
	noteLeaves
	replies
	faults
	progresses
	notifies
	asks
	takesBack
	endsOurs
	sendsGarbage
	garbles
	returns
	fills
	empties
	isWritable
	oversizes
	severs
	fails
	opensLane
	losesLane
	cutsLane
	opensLink
	opensNot
	shakes
	shakesNot
	endsInput
	losesLink
	closesLink
	drains
	stops
	wakes
	fires
	lapses
	crowds
	eases
	answersProbe
	admits
	choiceKinds
)

// events says which kinds of choice a plan has.
type events uint64

func some(kinds ...choiceKind) (e events) {
	for _, kind := range kinds {
		e |= 1 << kind
	}
	return e
}

func (e events) have(kind choiceKind) bool { return e&(1<<kind) != 0 }

// wide is how many states are visited of a world that does not close for long.
const wide = 200_000

// plans are the small worlds to be searched.
func plans() []*plan {
	const any = ^events(0)
	timed, untimed, stays := callPlan{timeout: time.Second}, callPlan{}, callPlan{streaming: true}
	prolonged := callPlan{timeout: time.Second, limit: 3 * time.Second / 2, restarts: true}
	patient := callPlan{timeout: time.Second, limit: 3 * time.Second}
	incarnations := some(opensLink, opensNot, shakes, shakesNot, losesLink, closesLink, wakes)
	ways := some(drains, stops, fires)
	busyness := some(fills, empties, isWritable)
	ours := some(makesCall, leaves, replies)
	lanes := some(opensLane, losesLane)
	list := []*plan{
		{
			name: "life", role: initiator, credit: 1, epochs: 3, patience: longestInit,
			events: incarnations | ways | some(lapses, endsInput, sendsGarbage),
		},
		{
			name: "delays", role: initiator, credit: 1, epochs: 3, patience: longestInit,
			events: incarnations | some(fires),
		},
		{
			name: "what a lost link leaves", role: initiator, credit: 1, epochs: 2, calls: []callPlan{untimed, {by: byHandler}}, full: wide,
			questions: []question{{0, 7, ordinary, false, false}},
			prologue:  []choice{{opensLink, 1, 0}, {shakes, 1, 0}, {asks, 0, 0}},
			events:    ours | some(callsStale, returns, notesOnStream, notes, opensLink, shakes, losesLink, closesLink, fires, fills),
		},
		{
			name: "life behind a gate", role: initiator, credit: 1, epochs: 3, gated: true,
			events: incarnations | ways | some(lapses, admits, endsInput),
		},
		{
			name: "life of links that close at once", role: initiator, credit: 1, epochs: 3, patience: longestInit, closesNow: true,
			calls:  []callPlan{timed},
			events: incarnations | ways | some(makesCall, lapses, endsInput),
		},
		{
			name: "questions served at once", role: acceptor, credit: 2, epochs: 1, closesNow: true,
			questions: []question{{0, 7, openingASession, false, false}, {0, 8, ordinary, false, false}, {0, 8, immediately, false, false}},
			events:    some(asks, takesBack, returns, drains, stops, losesLink, endsInput, fires, oversizes) | busyness,
		},
		{
			name: "life with a call", role: initiator, credit: 1, epochs: 2, calls: []callPlan{timed},
			events: incarnations | ways | ours | some(callsStale),
		},
		{
			name: "handshake calls", role: initiator, credit: 1, epochs: 1, calls: []callPlan{{by: byHandshake}, untimed},
			events: incarnations | ways | ours | busyness,
		},
		{
			name: "calls", role: acceptor, credit: 1, epochs: 1, calls: []callPlan{prolonged, untimed, stays},
			events: ours | ways | some(faults, garbles, progresses, lapses, losesLink, closesLink, endsOurs),
		},
		{
			name: "calls on a busy link", role: acceptor, credit: 1, epochs: 1, calls: []callPlan{timed, untimed},
			events: ours | some(fires, losesLink, stops) | busyness,
		},
		{
			name: "frames refused", role: acceptor, credit: 1, epochs: 1, calls: []callPlan{untimed},
			events: ours | ways | busyness | some(losesLink, closesLink, notes, noteLeaves, oversizes, severs, fails),
		},
		{
			name: "calls on streams", full: wide, role: acceptor, credit: 1, epochs: 1, calls: []callPlan{timed, stays},
			events: ours | lanes | some(fires, losesLink, drains, fails, endsOurs, garbles),
		},
		{
			name: "a stream that is cut", full: wide, role: acceptor, credit: 2, epochs: 1, calls: []callPlan{prolonged},
			events: ours | lanes | some(fires, losesLink, fails, cutsLane, notifies, progresses, sendsGarbage),
		},
		{
			name: "questions", role: acceptor, credit: 1, epochs: 1,
			questions: []question{{0, 7, ordinary, false, false}, {0, 7, exclusively, false, false}, {0, 8, staying, false, false}},
			events:    some(asks, takesBack, returns, drains, losesLink, closesLink, endsInput, fires) | busyness,
		},
		{
			name: "questions on streams", role: acceptor, credit: 2, epochs: 1,
			questions: []question{{4, 7, ordinary, false, true}, {5, 7, staying, false, false}},
			events:    some(asks, takesBack, returns, drains, losesLink, fires) | busyness | lanes,
		},
		{
			name: "a handler notifies", role: acceptor, credit: 1, epochs: 1,
			questions: []question{{4, 7, ordinary, false, false}},
			events:    some(asks, takesBack, returns, drains, losesLink, fires, notesOnStream, noteLeaves) | busyness | lanes,
		},
		{
			name: "a batch", role: acceptor, credit: 1, epochs: 1,
			questions: []question{{4, 7, ordinary, true, false}, {4, 8, exclusively, false, false}, {5, 7, probing, false, false}},
			events:    some(asks, takesBack, returns, losesLink, fires, oversizes) | busyness | lanes,
		},
		{
			name: "questions of a server", full: wide, role: initiator, credit: 1, epochs: 1, calls: []callPlan{timed, {by: byHandler}},
			questions: []question{{1, 7, ordinary, false, false}, {0, 7, exclusively, false, false}},
			events:    ours | lanes | some(asks, takesBack, returns, opensLink, shakes, losesLink, fires, drains),
		},
		{
			name: "replies pile up", role: acceptor, credit: 2, epochs: 1, prologue: pile(repliesHigh - 1), full: 50_000,
			questions: []question{{0, 7, probing, false, false}, {0, 8, ordinary, false, false}, {4, 7, probing, false, false}},
			events:    some(asks, returns, losesLink, fires, notifies, stops) | busyness | lanes,
		},
		{
			name: "a crowd of notifications", full: wide, role: acceptor, credit: 2, epochs: 1, calls: []callPlan{untimed, stays},
			questions: []question{{0, 7, ordinary, false, false}, {4, 7, staying, false, false}},
			events:    ours | ways | lanes | some(asks, returns, notifies, losesLink, closesLink, crowds, eases) | busyness,
		},
		{
			name: "a server asks back", full: wide, role: initiator, credit: 1, epochs: 1, calls: []callPlan{patient, prolonged},
			questions: []question{{0, 7, nestedly, false, false}, {1, 7, nestedly, false, false}, {1, 8, nestedly, false, false}},
			events:    ours | lanes | some(asks, takesBack, returns, progresses, opensLink, shakes, losesLink, fires),
		},
		{
			name: "a handler asks back", full: wide, role: acceptor, credit: 2, epochs: 1,
			calls:     []callPlan{{timeout: time.Second, by: byHandler, within: 1}, {by: byHandler, within: 2}},
			questions: []question{{4, 7, ordinary, false, true}, {5, 7, staying, false, true}},
			events:    ours | lanes | some(asks, takesBack, returns, faults, losesLink, fires, drains) | busyness,
		},
		{
			name: "a handler asks back after a loss", full: wide, role: initiator, credit: 1, epochs: 2,
			calls:     []callPlan{{by: byHandler, within: 1}, {by: byHandler, within: 2}},
			questions: []question{{0, 7, ordinary, false, false}, {0, 7, staying, false, false}},
			prologue:  []choice{{opensLink, 1, 0}, {shakes, 1, 0}, {asks, 0, 0}},
			events:    ours | some(asks, takesBack, returns, opensLink, shakes, losesLink, closesLink, fires),
		},
		{
			name: "a silent peer", full: wide, role: initiator, credit: 1, epochs: 2, calls: []callPlan{timed}, liveness: 5 * time.Second,
			events: incarnations | ways | ours | busyness | some(answersProbe, notifies, crowds, eases),
		},
		{
			name: "everything, initiator", full: wide, role: initiator, credit: 1, epochs: 3, calls: []callPlan{timed, untimed, stays},
			questions: []question{{0, 7, ordinary, false, false}, {1, 7, exclusively, false, false}},
			events:    any,
		},
		{
			name: "everything, acceptor", full: wide, role: acceptor, credit: 2, epochs: 1, calls: []callPlan{timed, {by: byHandler}, stays},
			questions: []question{{4, 7, ordinary, false, false}, {5, 7, staying, false, false}, {0, 7, exclusively, false, false}},
			events:    any,
		},
	}
	for _, p := range list {
		if p.full == 0 {
			p.full = 400_000
		}
		p.options = Options{
			Credit: p.credit, MaxServing: 1, MaxStreaming: 1, MaxWaiting: 1, MaxMalformed: 2, Dialect: cancellingDialect{}, BackoffMax: 2 * time.Second,
			Liveness: p.liveness, InitTimeout: p.patience,
		}.withDefaults()
		if p.gated {
			p.options.Gate = new(Gate) // it is the scene's to keep
		}
		for i := range p.callers {
			p.callers[i] = new(call)
		}
	}
	return list
}

// pile has a busy link refuse so many replies.
func pile(replies int) []choice {
	happened := []choice{{kind: fills}}
	for range replies {
		happened = append(happened, choice{kind: sendsGarbage}, choice{kind: notifies})
	}
	return happened
}

// String names a choice for whoever reads a trace.
func (c choice) String() string {
	lane, id, last := c.a, c.b>>1, ""
	if c.b&1 == 1 {
		last = ", its last frame"
	}
	switch c.kind {
	case makesCall:
		return fmt.Sprintf("call %d is made", c.a)
	case callsStale:
		return fmt.Sprintf("call %d is made for the incarnation before", c.a)
	case leaves:
		return fmt.Sprintf("the caller of %d leaves", c.a)
	case notesOnStream:
		return fmt.Sprintf("the handler of question %d notifies on its stream", c.a)
	case returns:
		return fmt.Sprintf("the handler of question %d returns", c.a)
	case empties, isWritable:
		return fmt.Sprintf("%s (%s)", choiceNames[c.kind], [...]string{"none", "one frame", "any"}[c.a])
	case replies, faults, garbles, progresses:
		return fmt.Sprintf("%s %d on stream %d%s", choiceNames[c.kind], id, lane, last)
	case notifies, sendsGarbage:
		return fmt.Sprintf("%s on stream %d%s", choiceNames[c.kind], lane, last)
	case asks:
		return fmt.Sprintf("the peer asks question %d on stream %d", c.b, lane)
	case takesBack:
		return fmt.Sprintf("the peer cancels question %d on stream %d%s", id, lane, last)
	case endsOurs:
		return fmt.Sprintf("the peer ends call %d, which stays, on stream %d%s", id, lane, last)
	case fails:
		return fmt.Sprintf("call %d fails, unsent: %v", c.a, c.b == 1)
	case opensLane, losesLane:
		return fmt.Sprintf("%s %d", choiceNames[c.kind], lane)
	case cutsLane:
		return fmt.Sprintf("stream %d is cut, with a delay asked for: %v", lane, c.b == 1)
	case losesLink:
		return fmt.Sprintf("link %d is lost, what it had unsent: %v", c.a, c.b == 1)
	case opensLink, opensNot, shakes, shakesNot, endsInput, closesLink, admits:
		return fmt.Sprintf("%s (link %d)", choiceNames[c.kind], c.a)
	case fires:
		return fmt.Sprintf("%s (%d), with signs of life: %v", choiceNames[c.kind], c.a, c.b == 1)
	case lapses, answersProbe:
		return fmt.Sprintf("%s (%d)", choiceNames[c.kind], c.a)
	default:
		return choiceNames[c.kind]
	}
}

var choiceNames = [choiceKinds]string{
	notes: "a notification is made", noteLeaves: "the notification's caller leaves",
	replies: "an answer to", faults: "an error for", garbles: "a malformed answer to", progresses: "progress of", notifies: "a notification", sendsGarbage: "a malformed frame",
	fills: "the link is full", empties: "the link has room", isWritable: "the link says writable, with room",
	oversizes: "the next frame is too large", severs: "the link can send nothing more",
	opensLane: "the link opens stream", losesLane: "the link loses stream",
	opensLink: "a link opens", opensNot: "no link opens", shakes: "the handshake is done", shakesNot: "the handshake fails",
	endsInput: "the peer sends nothing more", closesLink: "the link is closed",
	drains: "drain", stops: "stop", wakes: "wake", fires: "the timer fires", lapses: "time passes, and the timer is late",
	admits: "the gate has a place",
	crowds: "many notifications wait", eases: "few notifications wait", answersProbe: "the peer answers probe",
}

func describeEvent(ev *event) string {
	text := fmt.Sprintf("%s id=%d stream=%d epoch=%d", eventNames[ev.kind], ev.id, ev.stream, ev.epoch)
	if ev.frames > 0 || ev.last {
		text += fmt.Sprintf(" frames=%d last=%v", ev.frames, ev.last)
	}
	if ev.out != nil && ev.out.frame != nil {
		text += fmt.Sprintf(" out={id=%d stream=%d %q tried=%v attempts=%d}", ev.out.id, ev.out.stream, ev.out.frame, ev.tried, ev.out.attempts)
	}
	return text
}

func describeEffect(fx *effect) string {
	switch fx.kind {
	case transmit:
		return fmt.Sprintf("transmit id=%d stream=%d reply=%v last=%v %q", fx.out.id, fx.out.stream, fx.out.reply, fx.out.last, fx.out.frame)
	case settle:
		return fmt.Sprintf("settle id=%d: %v, %v (%v)", fx.id, fx.cause, fx.delivery, fx.err)
	case transitioned:
		return fmt.Sprintf("transitioned from %s to %s: %v", fx.from, fx.to, fx.reason)
	case grant, endStream, resumeStream:
		return fmt.Sprintf("%s stream=%d frames=%d", effectNames[fx.kind], fx.stream, fx.frames)
	case serve, cancelServing:
		return fmt.Sprintf("%s stream=%d id=%v err=%v", effectNames[fx.kind], fx.incoming.key.stream, fx.incoming.key.id, fx.err)
	default:
		return fmt.Sprintf("%s epoch=%d id=%d grace=%v", effectNames[fx.kind], fx.epoch, fx.id, fx.at)
	}
}

var eventNames = [...]string{
	started: "started", callMade: "callMade", notificationMade: "notificationMade", callLeft: "callLeft", woken: "woken",
	drainAsked: "drainAsked", stopAsked: "stopAsked", linkOpened: "linkOpened", openFailed: "openFailed",
	handshakeDone: "handshakeDone", handshakeFailed: "handshakeFailed", linkEnded: "linkEnded", linkLost: "linkLost",
	linkGone: "linkGone", replied: "replied", requested: "requested", notified: "notified", progressed: "progressed",
	cancelled: "cancelled", probed: "probed", malformed: "malformed", streamOpened: "streamOpened", streamLost: "streamLost",
	busy: "busy", failed: "failed", writable: "writable", handled: "handled", tick: "tick",
	admitted: "admitted", overdue: "overdue", interrupted: "interrupted", parkDue: "parkDue",
	crowded: "crowded", eased: "eased",
}
