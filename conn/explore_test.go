package conn

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/explore"
)

var reach = flag.String("explore", "near", "how far TestExplore goes: near or full")

// TestExplore visits the states that a core can reach in a small environment, breadth first, and checks
// the invariants in each. By default it visits nearbyLimit states of each plan. With -explore=full it
// continues until a plan has no new states, or up to the limit of the plan:
//
//	go test ./conn -run TestExplore -explore=full -v
//
// Guarantees: G-0001.1, G-0001.2, G-0001.4, G-0001.6, G-0001.7, G-0001.10, G-0001.14, G-0003.1, G-0003.2, G-0003.4, G-0003.6, G-0003.10, G-0003.11, G-0003.18, G-0004.1, G-0009.2, G-0019.1, G-0019.4, G-0019.5
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

// nearbyLimit is how many states of each plan are visited by default.
const nearbyLimit = 1500

// world returns what the search needs to know about the plan's environment.
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

// A plan describes a small environment to be searched completely: which events may happen. Each call is
// made, each stream opened and each request of the peer sent at most once, so the states are finite.
type plan struct {
	name        string
	role        role
	credit      int
	epochs      uint64 // states of later incarnations are checked, but not continued
	calls       []callPlan
	requests    []peerRequest
	events      events
	prologue    []choice // what happens before the search begins
	full        int      // how many states the full search visits
	liveness    time.Duration
	initTimeout time.Duration // InitTimeout, which is not doubled beyond longestInit; 0: the default
	maxWaiting  int           // MaxWaiting; 0: one
	gated       bool
	closesNow   bool // links close at once; their loss is reported later
	options     Options
	callers     [maxStreams]*call // the callers by id; the first is that of the notification
}

// A callPlan is one request of this side. Its id is its position in the plan, from 1.
type callPlan struct {
	timeout   time.Duration
	limit     time.Duration // how long the timeout may become
	restarts  bool          // by progress
	streaming bool
	by        callOrigin
	within    uint8 // for a handler's call: the request that it serves, from 1
}

type callOrigin uint8

const (
	byProgram callOrigin = iota
	byHandshake
	byHandler
)

// A peerRequest is one request of the peer.
type peerRequest struct {
	streamNumber uint8
	id           int64
	kind         requestKind
	more         bool // it is in a batch, of which more is to come
	staysOpen    bool // the peer may send more on its stream
}

type requestKind uint8

const (
	ordinaryRequest requestKind = iota
	exclusiveRequest
	streamingRequest
	probeRequest
	nestedRequest
	immediateRequest // its handler runs in the step in which the request is served
	sessionRequest   // immediate, and no other request is served meanwhile
)

func (q peerRequest) isExclusive() bool {
	return q.kind == exclusiveRequest || q.kind == sessionRequest
}

// The streams of the model by number: Main, then one for each call by its id, then those that the peer
// opens.
const (
	ownStreams      = 3
	maxStreams      = 6
	noID            = 9 // the id of a request that is never made
	maxPeerRequests = 4
	epochs          = 5

	firstProbe = 10 // ids of probes begin here
	probes     = 4  // states with more probes are checked, but not continued
)

// A choice is one event that may happen next. The meaning of a and b depends on the kind.
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
	losesReader
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
	handlesNotifications
	answersProbe
	doubts
	admits
	choiceKinds
)

// events is the set of the kinds of choices that a plan has.
type events uint64

func eventSet(kinds ...choiceKind) (e events) {
	for _, kind := range kinds {
		e |= 1 << kind
	}
	return e
}

func (e events) has(kind choiceKind) bool { return e&(1<<kind) != 0 }

// wideLimit is how many states are visited of a plan that has very many.
const wideLimit = 200_000

// plans returns the environments to be searched.
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
			name: "lifecycle", role: initiator, credit: 1, epochs: 3, initTimeout: longestInit,
			events: incarnations | ways | eventSet(letsTimePass, endsInput, sendsMalformed),
		},
		{
			name: "delays", role: initiator, credit: 1, epochs: 3, initTimeout: longestInit,
			events: incarnations | eventSet(firesTimer),
		},
		{
			name: "events after a lost link", role: initiator, credit: 1, epochs: 2, calls: []callPlan{untimed, {by: byHandler}}, full: wideLimit,
			requests: []peerRequest{{0, 7, ordinaryRequest, false, false}},
			prologue: []choice{{opensLink, 1, 0}, {completesHandshake, 1, 0}, {sendsRequest, 0, 0}},
			events:   ours | eventSet(callsStale, returnsFromHandler, makesNotificationOnStream, makesNotification, opensLink, completesHandshake, losesLink, closesLink, firesTimer, fillsLink),
		},
		{
			name: "lifecycle with a gate", role: initiator, credit: 1, epochs: 3, gated: true,
			events: incarnations | ways | eventSet(letsTimePass, admits, endsInput),
		},
		{
			name: "links that close at once", role: initiator, credit: 1, epochs: 3, initTimeout: longestInit, closesNow: true,
			calls:  []callPlan{timed},
			events: incarnations | ways | eventSet(makesCall, letsTimePass, endsInput),
		},
		{
			name: "immediate requests of the peer", role: acceptor, credit: 2, epochs: 1, closesNow: true,
			requests: []peerRequest{{0, 7, sessionRequest, false, false}, {0, 8, ordinaryRequest, false, false}, {0, 8, immediateRequest, false, false}},
			events:   eventSet(sendsRequest, cancelsRequest, returnsFromHandler, drains, stops, losesLink, endsInput, firesTimer, rejectsNextFrame) | busyness,
		},
		{
			name: "lifecycle with a call", role: initiator, credit: 1, epochs: 2, calls: []callPlan{timed},
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
			name: "requests of the peer", role: acceptor, credit: 1, epochs: 1,
			requests: []peerRequest{{0, 7, ordinaryRequest, false, false}, {0, 7, exclusiveRequest, false, false}, {0, 8, streamingRequest, false, false}},
			events:   eventSet(sendsRequest, cancelsRequest, returnsFromHandler, drains, losesLink, closesLink, endsInput, firesTimer) | busyness,
		},
		{
			name: "requests that stay open behind an exclusive one", role: acceptor, credit: 1, epochs: 1, maxWaiting: 2,
			requests: []peerRequest{{0, 7, exclusiveRequest, false, false}, {0, 8, streamingRequest, false, false}, {0, 9, streamingRequest, false, false}},
			events:   eventSet(sendsRequest, cancelsRequest, returnsFromHandler, drains, losesLink, firesTimer, letsTimePass),
		},
		{
			name: "requests of the peer on streams", role: acceptor, credit: 2, epochs: 1,
			requests: []peerRequest{{4, 7, ordinaryRequest, false, true}, {5, 7, streamingRequest, false, false}},
			events:   eventSet(sendsRequest, cancelsRequest, returnsFromHandler, drains, losesLink, firesTimer) | busyness | streamEvents | eventSet(losesReader),
		},
		{
			name: "a handler notifies", role: acceptor, credit: 1, epochs: 1,
			requests: []peerRequest{{4, 7, ordinaryRequest, false, false}},
			events:   eventSet(sendsRequest, cancelsRequest, returnsFromHandler, drains, losesLink, firesTimer, makesNotificationOnStream, notifierLeaves) | busyness | streamEvents,
		},
		{
			name: "a batch", role: acceptor, credit: 1, epochs: 1,
			requests: []peerRequest{{4, 7, ordinaryRequest, true, false}, {4, 8, exclusiveRequest, false, false}, {5, 7, probeRequest, false, false}},
			events:   eventSet(sendsRequest, cancelsRequest, returnsFromHandler, losesLink, firesTimer, rejectsNextFrame) | busyness | streamEvents | eventSet(losesReader),
		},
		{
			name: "requests of a server", full: wideLimit, role: initiator, credit: 1, epochs: 1, calls: []callPlan{timed, {by: byHandler}},
			requests: []peerRequest{{1, 7, ordinaryRequest, false, false}, {0, 7, exclusiveRequest, false, false}},
			events:   ours | streamEvents | eventSet(sendsRequest, cancelsRequest, returnsFromHandler, opensLink, completesHandshake, losesLink, firesTimer, drains),
		},
		{
			name: "many replies wait", role: acceptor, credit: 2, epochs: 1, prologue: queueReplies(repliesHigh - 1), full: 50_000,
			requests: []peerRequest{{0, 7, probeRequest, false, false}, {0, 8, ordinaryRequest, false, false}, {4, 7, probeRequest, false, false}},
			events:   eventSet(sendsRequest, returnsFromHandler, losesLink, firesTimer, notifies, stops) | busyness | streamEvents,
		},
		{
			name: "a crowd of notifications", full: wideLimit, role: acceptor, credit: 2, epochs: 1, calls: []callPlan{untimed, staysOpen},
			requests: []peerRequest{{0, 7, ordinaryRequest, false, false}, {4, 7, streamingRequest, false, false}},
			events:   ours | ways | streamEvents | eventSet(sendsRequest, returnsFromHandler, notifies, handlesNotifications, losesLink, closesLink, crowds, eases) | busyness,
		},
		{
			name: "nested requests of a server", full: wideLimit, role: initiator, credit: 1, epochs: 1, calls: []callPlan{extended, prolonged},
			requests: []peerRequest{{0, 7, nestedRequest, false, false}, {1, 7, nestedRequest, false, false}, {1, 8, nestedRequest, false, false}},
			events:   ours | streamEvents | eventSet(sendsRequest, cancelsRequest, returnsFromHandler, progresses, opensLink, completesHandshake, losesLink, firesTimer),
		},
		{
			name: "calls of handlers", full: wideLimit, role: acceptor, credit: 2, epochs: 1,
			calls:    []callPlan{{timeout: time.Second, by: byHandler, within: 1}, {by: byHandler, within: 2}},
			requests: []peerRequest{{4, 7, ordinaryRequest, false, true}, {5, 7, streamingRequest, false, true}},
			events:   ours | streamEvents | eventSet(sendsRequest, cancelsRequest, returnsFromHandler, answersError, losesLink, firesTimer, drains) | busyness,
		},
		{
			name: "calls of handlers after a loss", full: wideLimit, role: initiator, credit: 1, epochs: 2,
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
			name: "a link in doubt", full: wideLimit, role: initiator, credit: 1, epochs: 1, liveness: 5 * time.Second,
			events: eventSet(opensLink, completesHandshake, losesLink, firesTimer, doubts, answersProbe, notifies),
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
			Dialect: cancellingDialect{},
			Tuning: Tuning{
				Credit:       p.credit,
				MaxServing:   1,
				MaxStreaming: 1,
				MaxWaiting:   max(p.maxWaiting, 1),
				MaxMalformed: 2,
				BackoffMax:   2 * time.Second,
				Liveness:     p.liveness,
				InitTimeout:  p.initTimeout,
			},
		}
		if p.gated {
			p.options.Gate = new(Gate) // the environment plays its part
		}
		for i := range p.callers {
			p.callers[i] = new(call)
		}
	}
	return list
}

// queueReplies returns the choices that let a full link refuse so many replies.
func queueReplies(replies int) []choice {
	steps := []choice{{kind: fillsLink}}
	for range replies {
		steps = append(steps, choice{kind: sendsMalformed}, choice{kind: notifies})
	}
	return steps
}

// String describes the choice in a trace.
func (c choice) String() string {
	streamNumber, id, last := c.a, c.b>>1, ""
	if c.b&1 == 1 {
		last = ", its last frame"
	}
	switch c.kind {
	case makesCall:
		return fmt.Sprintf("call %d is made", c.a)
	case callsStale:
		return fmt.Sprintf("call %d is made for the previous incarnation", c.a)
	case callerLeaves:
		return fmt.Sprintf("the caller of call %d gives up", c.a)
	case makesNotificationOnStream:
		return fmt.Sprintf("the handler of request %d notifies on its stream", c.a)
	case returnsFromHandler:
		return fmt.Sprintf("the handler of request %d returns", c.a)
	case emptiesLink, reportsWritable:
		return fmt.Sprintf("%s (%s)", choiceNames[c.kind], [...]string{"none", "one frame", "any"}[c.a])
	case replies, answersError, answersMalformed, progresses:
		return fmt.Sprintf("%s %d on stream %d%s", choiceNames[c.kind], id, streamNumber, last)
	case notifies, sendsMalformed:
		return fmt.Sprintf("%s on stream %d%s", choiceNames[c.kind], streamNumber, last)
	case sendsRequest:
		return fmt.Sprintf("the peer sends request %d on stream %d", c.b, streamNumber)
	case cancelsRequest:
		return fmt.Sprintf("the peer cancels request %d on stream %d%s", id, streamNumber, last)
	case cancelsOwnCall:
		return fmt.Sprintf("the peer cancels streaming call %d on stream %d%s", id, streamNumber, last)
	case fails:
		return fmt.Sprintf("call %d fails, unsent: %v", c.a, c.b == 1)
	case opensStream, losesStream, losesReader:
		return fmt.Sprintf("%s %d", choiceNames[c.kind], streamNumber)
	case cutsStream:
		return fmt.Sprintf("stream %d is cut, the peer asks for a delay: %v", streamNumber, c.b == 1)
	case losesLink:
		return fmt.Sprintf("link %d is lost, its frames unsent: %v", c.a, c.b == 1)
	case opensLink, failsToOpen, completesHandshake, failsHandshake, endsInput, closesLink, admits:
		return fmt.Sprintf("%s (link %d)", choiceNames[c.kind], c.a)
	case firesTimer:
		return fmt.Sprintf("%s (%d), bytes have come in: %v", choiceNames[c.kind], c.a, c.b == 1)
	case letsTimePass, answersProbe, doubts:
		return fmt.Sprintf("%s (%d)", choiceNames[c.kind], c.a)
	default:
		return choiceNames[c.kind]
	}
}

var choiceNames = [choiceKinds]string{
	makesNotification: "a notification is made", notifierLeaves: "the notification's caller gives up",
	replies: "an answer to", answersError: "an error for", answersMalformed: "a malformed answer to", progresses: "progress of", notifies: "a notification", sendsMalformed: "a malformed frame",
	fillsLink: "the link is full", emptiesLink: "the link has room", reportsWritable: "the link reports writable, with room",
	rejectsNextFrame: "the next frame is too large", closesSending: "the link can send nothing more",
	opensStream: "the link opens stream", losesStream: "the link loses stream", losesReader: "nobody reads any more stream",
	opensLink: "a link opens", failsToOpen: "no link opens", completesHandshake: "the handshake is done", failsHandshake: "the handshake fails",
	endsInput: "the peer sends nothing more", closesLink: "the link is closed",
	drains: "drain", stops: "stop", wakes: "wake", firesTimer: "the timer fires", letsTimePass: "time passes, and the timer is late",
	admits: "the gate has a place",
	crowds: "many notifications wait", eases: "few notifications wait", handlesNotifications: "the handler has got all notifications", answersProbe: "the peer answers probe",
	doubts: "something else answers message",
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
	busy: "busy", failed: "failed", doubted: "doubted", writable: "writable", handled: "handled", tick: "tick",
	admitted: "admitted", overdue: "overdue", interrupted: "interrupted", parkDue: "parkDue",
	crowded: "crowded", eased: "eased", quiet: "quiet",
}
