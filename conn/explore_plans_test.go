package conn

import "time"

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
	gated     bool
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
)

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
			name: "life", role: initiator, credit: 1, epochs: 3,
			events: incarnations | ways | some(lapses, endsInput, sendsGarbage),
		},
		{
			name: "life behind a gate", role: initiator, credit: 1, epochs: 3, gated: true,
			events: incarnations | ways | some(lapses, admits, endsInput),
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
			events: ours | ways | some(faults, progresses, lapses, losesLink, closesLink, endsOurs),
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
			events: ours | lanes | some(fires, losesLink, drains, fails, endsOurs),
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
			Credit: p.credit, MaxServing: 1, MaxStreaming: 1, MaxWaiting: 1, MaxMalformed: 2, Dialect: cancels{}, BackoffMax: 2 * time.Second,
			Liveness: p.liveness,
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
