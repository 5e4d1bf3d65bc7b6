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
			s := &explore.Search[*environment, choice]{World: p.world(), Limit: nearbyLimit}
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
const nearbyLimit = 1500

// world is that of a plan.
func (p *plan) world() explore.World[*environment, choice] {
	return explore.World[*environment, choice]{
		New:     func() *environment { return newEnvironment(p) },
		Choices: (*environment).choices,
		Apply:   (*environment).apply,
		Clone:   (*environment).clone,
		Form:    func() func(*environment) []byte { return new(encoder).encode },
		Digest:  func(env *environment) uint64 { return env.digest },
		Fault:   func(env *environment) error { return env.fault },
		Talk:    func(env *environment) { env.tracing = true },
		Said: func(env *environment) []string {
			said := env.trace
			env.trace = nil
			return said
		},
	}
}

// A plan is a small world to be searched to its end: which of the events may
// come, and how often. Each call is made, each stream opened and each question
// asked at most once, so that the states are finite.
type plan struct {
	name        string
	role        role
	credit      int
	epochs      uint64 // states of later incarnations are checked, and not gone on from
	calls       []callPlan
	requests    []peerRequest
	events      events
	prologue    []choice // what has happened when the search begins
	full        int      // states to visit in the full search
	liveness    time.Duration
	initTimeout time.Duration // InitTimeout, which is not doubled beyond longestInit; 0: the default
	gated       bool
	closesNow   bool // links are closed without waiting; their loss is reported later
	options     Options
	callers     [maxStreams]*call // of each call; the first is the notification's
}

// A callPlan is one request of ours. Its id is its place in the plan, from 1.
type callPlan struct {
	timeout   time.Duration
	limit     time.Duration // what the timeout may be prolonged to
	restarts  bool          // by progress
	streaming bool
	by        callOrigin
	within    uint8 // of a handler: the question, from 1, that it asks back for
}

type callOrigin uint8

const (
	byProgram callOrigin = iota
	byHandshake
	byHandler
)

// A question is one request of the peer's.
type peerRequest struct {
	streamNumber uint8
	id           int64
	kind         requestKind
	more         bool // more of its frame is to come: it is in a batch
	staysOpen    bool // the peer may send more on its stream
}

type requestKind uint8

const (
	ordinaryRequest requestKind = iota
	exclusiveRequest
	streamingRequest
	probeRequest
	nestedRequest
	immediateRequest // served in the step in which it comes, or its turn does
	sessionRequest   // immediately, and nothing else is served meanwhile
)

func (q peerRequest) isExclusive() bool {
	return q.kind == exclusiveRequest || q.kind == sessionRequest
}

// Lanes are the streams by number: Main, then one for each call by its id, then
// those that the peer begins.
const (
	ownStreams      = 3
	maxStreams      = 6
	noID            = 9 // of a request never made
	maxPeerRequests = 4
	epochs          = 5

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
	callerLeaves
	makesNotification
	makesNotificationOnStream
	notifierLeaves
	replies
	answersError
	progresses
	notifies
	sendsRequest
	cancelsRequest
	cancelsOwnCall
	sendsMalformed
	answersMalformed
	returnsFromHandler
	fillsLink
	emptiesLink
	reportsWritable
	rejectsNextFrame
	closesSending
	fails
	opensStream
	losesStream
	cutsStream
	opensLink
	failsToOpen
	completesHandshake
	failsHandshake
	endsInput
	losesLink
	closesLink
	drains
	stops
	wakes
	firesTimer
	letsTimePass
	crowds
	eases
	answersProbe
	admits
	choiceKinds
)

// events says which kinds of choice a plan has.
type events uint64

func eventSet(kinds ...choiceKind) (e events) {
	for _, kind := range kinds {
		e |= 1 << kind
	}
	return e
}

func (e events) has(kind choiceKind) bool { return e&(1<<kind) != 0 }

// wide is how many states are visited of a world that does not close for long.
const wideLimit = 200_000

// plans are the small worlds to be searched.
func plans() []*plan {
	const allEvents = ^events(0)
	timed, untimed, staysOpen := callPlan{timeout: time.Second}, callPlan{}, callPlan{streaming: true}
	prolonged := callPlan{timeout: time.Second, limit: 3 * time.Second / 2, restarts: true}
	extended := callPlan{timeout: time.Second, limit: 3 * time.Second}
	incarnations := eventSet(opensLink, failsToOpen, completesHandshake, failsHandshake, losesLink, closesLink, wakes)
	ways := eventSet(drains, stops, firesTimer)
	busyness := eventSet(fillsLink, emptiesLink, reportsWritable)
	ours := eventSet(makesCall, callerLeaves, replies)
	streamEvents := eventSet(opensStream, losesStream)
	list := []*plan{
		{
			name: "life", role: initiator, credit: 1, epochs: 3, initTimeout: longestInit,
			events: incarnations | ways | eventSet(letsTimePass, endsInput, sendsMalformed),
		},
		{
			name: "delays", role: initiator, credit: 1, epochs: 3, initTimeout: longestInit,
			events: incarnations | eventSet(firesTimer),
		},
		{
			name: "what a lost link leaves", role: initiator, credit: 1, epochs: 2, calls: []callPlan{untimed, {by: byHandler}}, full: wideLimit,
			requests: []peerRequest{{0, 7, ordinaryRequest, false, false}},
			prologue: []choice{{opensLink, 1, 0}, {completesHandshake, 1, 0}, {sendsRequest, 0, 0}},
			events:   ours | eventSet(callsStale, returnsFromHandler, makesNotificationOnStream, makesNotification, opensLink, completesHandshake, losesLink, closesLink, firesTimer, fillsLink),
		},
		{
			name: "life behind a gate", role: initiator, credit: 1, epochs: 3, gated: true,
			events: incarnations | ways | eventSet(letsTimePass, admits, endsInput),
		},
		{
			name: "life of links that close at once", role: initiator, credit: 1, epochs: 3, initTimeout: longestInit, closesNow: true,
			calls:  []callPlan{timed},
			events: incarnations | ways | eventSet(makesCall, letsTimePass, endsInput),
		},
		{
			name: "questions served at once", role: acceptor, credit: 2, epochs: 1, closesNow: true,
			requests: []peerRequest{{0, 7, sessionRequest, false, false}, {0, 8, ordinaryRequest, false, false}, {0, 8, immediateRequest, false, false}},
			events:   eventSet(sendsRequest, cancelsRequest, returnsFromHandler, drains, stops, losesLink, endsInput, firesTimer, rejectsNextFrame) | busyness,
		},
		{
			name: "life with a call", role: initiator, credit: 1, epochs: 2, calls: []callPlan{timed},
			events: incarnations | ways | ours | eventSet(callsStale),
		},
		{
			name: "handshake calls", role: initiator, credit: 1, epochs: 1, calls: []callPlan{{by: byHandshake}, untimed},
			events: incarnations | ways | ours | busyness,
		},
		{
			name: "calls", role: acceptor, credit: 1, epochs: 1, calls: []callPlan{prolonged, untimed, staysOpen},
			events: ours | ways | eventSet(answersError, answersMalformed, progresses, letsTimePass, losesLink, closesLink, cancelsOwnCall),
		},
		{
			name: "calls on a busy link", role: acceptor, credit: 1, epochs: 1, calls: []callPlan{timed, untimed},
			events: ours | eventSet(firesTimer, losesLink, stops) | busyness,
		},
		{
			name: "frames refused", role: acceptor, credit: 1, epochs: 1, calls: []callPlan{untimed},
			events: ours | ways | busyness | eventSet(losesLink, closesLink, makesNotification, notifierLeaves, rejectsNextFrame, closesSending, fails),
		},
		{
			name: "calls on streams", full: wideLimit, role: acceptor, credit: 1, epochs: 1, calls: []callPlan{timed, staysOpen},
			events: ours | streamEvents | eventSet(firesTimer, losesLink, drains, fails, cancelsOwnCall, answersMalformed),
		},
		{
			name: "a stream that is cut", full: wideLimit, role: acceptor, credit: 2, epochs: 1, calls: []callPlan{prolonged},
			events: ours | streamEvents | eventSet(firesTimer, losesLink, fails, cutsStream, notifies, progresses, sendsMalformed),
		},
		{
			name: "questions", role: acceptor, credit: 1, epochs: 1,
			requests: []peerRequest{{0, 7, ordinaryRequest, false, false}, {0, 7, exclusiveRequest, false, false}, {0, 8, streamingRequest, false, false}},
			events:   eventSet(sendsRequest, cancelsRequest, returnsFromHandler, drains, losesLink, closesLink, endsInput, firesTimer) | busyness,
		},
		{
			name: "questions on streams", role: acceptor, credit: 2, epochs: 1,
			requests: []peerRequest{{4, 7, ordinaryRequest, false, true}, {5, 7, streamingRequest, false, false}},
			events:   eventSet(sendsRequest, cancelsRequest, returnsFromHandler, drains, losesLink, firesTimer) | busyness | streamEvents,
		},
		{
			name: "a handler notifies", role: acceptor, credit: 1, epochs: 1,
			requests: []peerRequest{{4, 7, ordinaryRequest, false, false}},
			events:   eventSet(sendsRequest, cancelsRequest, returnsFromHandler, drains, losesLink, firesTimer, makesNotificationOnStream, notifierLeaves) | busyness | streamEvents,
		},
		{
			name: "a batch", role: acceptor, credit: 1, epochs: 1,
			requests: []peerRequest{{4, 7, ordinaryRequest, true, false}, {4, 8, exclusiveRequest, false, false}, {5, 7, probeRequest, false, false}},
			events:   eventSet(sendsRequest, cancelsRequest, returnsFromHandler, losesLink, firesTimer, rejectsNextFrame) | busyness | streamEvents,
		},
		{
			name: "questions of a server", full: wideLimit, role: initiator, credit: 1, epochs: 1, calls: []callPlan{timed, {by: byHandler}},
			requests: []peerRequest{{1, 7, ordinaryRequest, false, false}, {0, 7, exclusiveRequest, false, false}},
			events:   ours | streamEvents | eventSet(sendsRequest, cancelsRequest, returnsFromHandler, opensLink, completesHandshake, losesLink, firesTimer, drains),
		},
		{
			name: "replies pile up", role: acceptor, credit: 2, epochs: 1, prologue: queueReplies(repliesHigh - 1), full: 50_000,
			requests: []peerRequest{{0, 7, probeRequest, false, false}, {0, 8, ordinaryRequest, false, false}, {4, 7, probeRequest, false, false}},
			events:   eventSet(sendsRequest, returnsFromHandler, losesLink, firesTimer, notifies, stops) | busyness | streamEvents,
		},
		{
			name: "a crowd of notifications", full: wideLimit, role: acceptor, credit: 2, epochs: 1, calls: []callPlan{untimed, staysOpen},
			requests: []peerRequest{{0, 7, ordinaryRequest, false, false}, {4, 7, streamingRequest, false, false}},
			events:   ours | ways | streamEvents | eventSet(sendsRequest, returnsFromHandler, notifies, losesLink, closesLink, crowds, eases) | busyness,
		},
		{
			name: "a server asks back", full: wideLimit, role: initiator, credit: 1, epochs: 1, calls: []callPlan{extended, prolonged},
			requests: []peerRequest{{0, 7, nestedRequest, false, false}, {1, 7, nestedRequest, false, false}, {1, 8, nestedRequest, false, false}},
			events:   ours | streamEvents | eventSet(sendsRequest, cancelsRequest, returnsFromHandler, progresses, opensLink, completesHandshake, losesLink, firesTimer),
		},
		{
			name: "a handler asks back", full: wideLimit, role: acceptor, credit: 2, epochs: 1,
			calls:    []callPlan{{timeout: time.Second, by: byHandler, within: 1}, {by: byHandler, within: 2}},
			requests: []peerRequest{{4, 7, ordinaryRequest, false, true}, {5, 7, streamingRequest, false, true}},
			events:   ours | streamEvents | eventSet(sendsRequest, cancelsRequest, returnsFromHandler, answersError, losesLink, firesTimer, drains) | busyness,
		},
		{
			name: "a handler asks back after a loss", full: wideLimit, role: initiator, credit: 1, epochs: 2,
			calls:    []callPlan{{by: byHandler, within: 1}, {by: byHandler, within: 2}},
			requests: []peerRequest{{0, 7, ordinaryRequest, false, false}, {0, 7, streamingRequest, false, false}},
			prologue: []choice{{opensLink, 1, 0}, {completesHandshake, 1, 0}, {sendsRequest, 0, 0}},
			events:   ours | eventSet(sendsRequest, cancelsRequest, returnsFromHandler, opensLink, completesHandshake, losesLink, closesLink, firesTimer),
		},
		{
			name: "a silent peer", full: wideLimit, role: initiator, credit: 1, epochs: 2, calls: []callPlan{timed}, liveness: 5 * time.Second,
			events: incarnations | ways | ours | busyness | eventSet(answersProbe, notifies, crowds, eases),
		},
		{
			name: "everything, initiator", full: wideLimit, role: initiator, credit: 1, epochs: 3, calls: []callPlan{timed, untimed, staysOpen},
			requests: []peerRequest{{0, 7, ordinaryRequest, false, false}, {1, 7, exclusiveRequest, false, false}},
			events:   allEvents,
		},
		{
			name: "everything, acceptor", full: wideLimit, role: acceptor, credit: 2, epochs: 1, calls: []callPlan{timed, {by: byHandler}, staysOpen},
			requests: []peerRequest{{4, 7, ordinaryRequest, false, false}, {5, 7, streamingRequest, false, false}, {0, 7, exclusiveRequest, false, false}},
			events:   allEvents,
		},
	}
	for _, p := range list {
		if p.full == 0 {
			p.full = 400_000
		}
		p.options = Options{
			Credit: p.credit, MaxServing: 1, MaxStreaming: 1, MaxWaiting: 1, MaxMalformed: 2, Dialect: cancellingDialect{}, BackoffMax: 2 * time.Second,
			Liveness: p.liveness, InitTimeout: p.initTimeout,
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
func queueReplies(replies int) []choice {
	happened := []choice{{kind: fillsLink}}
	for range replies {
		happened = append(happened, choice{kind: sendsMalformed}, choice{kind: notifies})
	}
	return happened
}

// String names a choice for whoever reads a trace.
func (c choice) String() string {
	streamNumber, id, last := c.a, c.b>>1, ""
	if c.b&1 == 1 {
		last = ", its last frame"
	}
	switch c.kind {
	case makesCall:
		return fmt.Sprintf("call %d is made", c.a)
	case callsStale:
		return fmt.Sprintf("call %d is made for the incarnation before", c.a)
	case callerLeaves:
		return fmt.Sprintf("the caller of %d leaves", c.a)
	case makesNotificationOnStream:
		return fmt.Sprintf("the handler of question %d notifies on its stream", c.a)
	case returnsFromHandler:
		return fmt.Sprintf("the handler of question %d returns", c.a)
	case emptiesLink, reportsWritable:
		return fmt.Sprintf("%s (%s)", choiceNames[c.kind], [...]string{"none", "one frame", "any"}[c.a])
	case replies, answersError, answersMalformed, progresses:
		return fmt.Sprintf("%s %d on stream %d%s", choiceNames[c.kind], id, streamNumber, last)
	case notifies, sendsMalformed:
		return fmt.Sprintf("%s on stream %d%s", choiceNames[c.kind], streamNumber, last)
	case sendsRequest:
		return fmt.Sprintf("the peer asks question %d on stream %d", c.b, streamNumber)
	case cancelsRequest:
		return fmt.Sprintf("the peer cancels question %d on stream %d%s", id, streamNumber, last)
	case cancelsOwnCall:
		return fmt.Sprintf("the peer ends call %d, which stays, on stream %d%s", id, streamNumber, last)
	case fails:
		return fmt.Sprintf("call %d fails, unsent: %v", c.a, c.b == 1)
	case opensStream, losesStream:
		return fmt.Sprintf("%s %d", choiceNames[c.kind], streamNumber)
	case cutsStream:
		return fmt.Sprintf("stream %d is cut, with a delay asked for: %v", streamNumber, c.b == 1)
	case losesLink:
		return fmt.Sprintf("link %d is lost, what it had unsent: %v", c.a, c.b == 1)
	case opensLink, failsToOpen, completesHandshake, failsHandshake, endsInput, closesLink, admits:
		return fmt.Sprintf("%s (link %d)", choiceNames[c.kind], c.a)
	case firesTimer:
		return fmt.Sprintf("%s (%d), with signs of life: %v", choiceNames[c.kind], c.a, c.b == 1)
	case letsTimePass, answersProbe:
		return fmt.Sprintf("%s (%d)", choiceNames[c.kind], c.a)
	default:
		return choiceNames[c.kind]
	}
}

var choiceNames = [choiceKinds]string{
	makesNotification: "a notification is made", notifierLeaves: "the notification's caller leaves",
	replies: "an answer to", answersError: "an error for", answersMalformed: "a malformed answer to", progresses: "progress of", notifies: "a notification", sendsMalformed: "a malformed frame",
	fillsLink: "the link is full", emptiesLink: "the link has room", reportsWritable: "the link says writable, with room",
	rejectsNextFrame: "the next frame is too large", closesSending: "the link can send nothing more",
	opensStream: "the link opens stream", losesStream: "the link loses stream",
	opensLink: "a link opens", failsToOpen: "no link opens", completesHandshake: "the handshake is done", failsHandshake: "the handshake fails",
	endsInput: "the peer sends nothing more", closesLink: "the link is closed",
	drains: "drain", stops: "stop", wakes: "wake", firesTimer: "the timer fires", letsTimePass: "time passes, and the timer is late",
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
