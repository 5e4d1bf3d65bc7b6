package conn

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/looplab/fsm"
	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite docs/design/STATE_TRANSITIONS.md")

var (
	states   = []State{Starting, Initializing, Ready, Backoff, Closing}
	triggers = []trigger{opened, handshaken, lost, retryDue, closed}
)

// TestEveryTriggerInEveryState compares the whole table with a second one, written by hand. A
// trigger that a state does not list there must be refused.
//
// Guarantees: G-0001.1, G-0001.2
func TestEveryTriggerInEveryState(t *testing.T) {
	want := map[State]map[trigger]State{
		Starting:     {opened: Initializing, lost: Backoff, closed: Closing},
		Initializing: {handshaken: Ready, lost: Backoff, closed: Closing},
		Ready:        {lost: Backoff, closed: Closing},
		Backoff:      {retryDue: Starting, closed: Closing},
		Closing:      {},
	}
	for _, from := range states {
		for _, given := range triggers {
			c := newBusyCore(initiator, &Options{})
			c.current = from
			to, allowed := want[from][given]
			if !allowed {
				to = from
			}
			if got := c.admit(given, Reason{}); got != allowed || c.state() != to || len(c.out) > 0 != allowed {
				t.Errorf("%s in %s: admitted %v, now %s with %d effects; want %v, %s", given, from, got, c.state(), len(c.out), allowed, to)
			}
		}
	}
}

// TestTransitionsMatchTheTable lets machines of looplab/fsm make every transition, and compares the
// result with what the shared machines predict. The shared ones never change their state.
//
// Guarantees: G-0001.1
func TestTransitionsMatchTheTable(t *testing.T) {
	for _, from := range states {
		for _, given := range triggers {
			moved := newMachine(from)
			err := moved.Event(t.Context(), string(given))
			to, ok := sharedMachines().next(from, given)
			if ok != (err == nil) || to != State(moved.Current()) {
				t.Errorf("%s in %s: got %v, %s; the machine moves to %s, %v", given, from, ok, to, moved.Current(), err)
			}
			if sharedMachines()[from].Current() != string(from) {
				t.Errorf("the shared machine of %s has moved, want it to stay", from)
			}
		}
	}
}

// TestTableHasNoRowTwice guards against looplab/fsm, where a later row for the
// same trigger and source silently replaces an earlier one.
func TestTableHasNoRowTwice(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range lifecycle {
		if seen[row.Name] {
			t.Errorf("%s leads to two states, want one", row.Name)
		}
		seen[row.Name] = true
		for _, from := range row.Src {
			key := row.Name + " in " + from
			if seen[key] {
				t.Errorf("%s has two rows, want one", key)
			}
			seen[key] = true
		}
	}
}

// TestStateTransitionsPageIsFresh compares the page with the table. With
// -update it rewrites it.
//
// Guarantees: G-0001.1
func TestStateTransitionsPageIsFresh(t *testing.T) {
	testenv.Page(t, "../docs/design/STATE_TRANSITIONS.md", stateTransitionsPage(t), *update)
}

func stateTransitionsPage(t *testing.T) string {
	diagram, err := fsm.VisualizeForMermaidWithGraphType(newMachine(Starting), fsm.StateDiagram)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# The states of a connection

Generated from the table in conn/lifecycle.go; `+"`make docs`"+` rewrites it.
[ADR-0001](../adr/0001-state-machine.md) explains the states. An initiator begins in *%s*. An acceptor begins in
*%s*, because it already has its link. *%s* is final.

`+"```mermaid\n%s```\n\n", Starting, Initializing, Closing, diagram)
	b.WriteString("This table shows the next state for every trigger in every state. A dash means that the trigger is refused and\nnothing changes.\n\n| State |")
	for _, given := range triggers {
		fmt.Fprintf(&b, " %s |", given)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(triggers)) + "\n")
	for _, from := range states {
		fmt.Fprintf(&b, "| %s |", from)
		for _, given := range triggers {
			fmt.Fprintf(&b, " %s |", destination(from, given))
		}
		b.WriteString("\n")
	}
	b.WriteString("\nWhat causes each trigger:\n\n")
	for _, given := range triggers {
		fmt.Fprintf(&b, "- **%s**: %s\n", given, causedBy[given])
	}
	b.WriteString(`
The next table shows what the core does, in order, for every event in every state. A dash means that it does nothing. In
*starting, queued* the Conn waits for a place at its gate; in the other columns it has no gate
([ADR-0027](../adr/0027-bounded-starts.md)). In *ready* one call of this side is pending, and one request of the peer is being
served. In *backoff* the old link is closed; in *closing* it is not closed yet. An event of an incarnation that has ended
changes nothing in any state, except that a link that opens too late is closed.

`)
	b.WriteString(eventTable(t))
	return b.String()
}

func destination(from State, given trigger) string {
	for _, row := range lifecycle {
		if row.Name == string(given) && slices.Contains(row.Src, string(from)) {
			return row.Dst
		}
	}
	return "–"
}

var causedBy = map[trigger]string{
	opened:     "the transport has opened a link. An acceptor has one from the start.",
	handshaken: "the handshake has succeeded. An acceptor has no handshake, and is ready when its link is attached.",
	lost:       "the link of an initiator could not be opened, or was lost; the handshake failed, or was not done within `InitTimeout`; too many frames were malformed; or the peer did not read for 10 s, or did not react to probes.",
	retryDue:   "the delay has passed or Wake was called, and the old link is closed.",
	closed:     "Stop; Close when no work is left; the end of Run's context; a reason that is final; and, for an acceptor, any loss.",
}

// A stage is a core in a state. If the state allows it, call 1 is pending and request 7
// of the peer is being served.
type stage struct {
	name  string
	role  role
	reach func(d *driver)
	gate  *Gate
}

var stages = []stage{
	{"starting, queued", initiator, func(*driver) {}, new(Gate)},
	{"starting", initiator, func(*driver) {}, nil},
	{"initializing", initiator, (*driver).open, nil},
	{"ready", initiator, (*driver).makeBusy, nil},
	{"ready, draining", initiator, func(d *driver) { d.makeBusy(); d.drain(time.Hour) }, nil},
	{"backoff", initiator, func(d *driver) { d.makeBusy(); d.loseLink(); d.linkGone() }, nil},
	{"closing", initiator, func(d *driver) { d.makeBusy(); d.stop() }, nil},
	{"ready (acceptor)", acceptor, (*driver).makeBusy, nil},
}

// makeBusy makes a core ready, makes a call, and receives a request.
func (d *driver) makeBusy() {
	if d.core.role == initiator {
		d.open()
		d.handshaken()
	}
	d.call(1, time.Minute)
	d.request(7)
}

// drive returns the core of a stage, and the request that it serves or has served.
func (s stage) drive(t *testing.T) (*driver, *Incoming) {
	d := drive(t, s.role, Options{Dialect: cancellingDialect{}, Tuning: Tuning{Gate: s.gate}})
	d.start()
	s.reach(d)
	served := incomingRequest(7)
	for _, fx := range d.effects {
		if fx.kind == serve {
			served = fx.incoming
		}
	}
	d.dropEffects()
	return d, served
}

// A sample is a typical event of its kind.
type sample struct {
	kind  eventKind
	when  string
	event event
}

var samples = []sample{
	{callMade, "a call is made", event{timeout: time.Minute, out: &outboundFrame{id: 2, call: new(call)}}},
	{notificationMade, "a notification is made", event{out: &outboundFrame{call: new(call), notification: true}}},
	{callLeft, "the caller of a pending call gives up", event{id: 1}},
	{woken, "Wake", event{}},
	{drainAsked, "Close", event{timeout: time.Minute}},
	{stopAsked, "Stop", event{}},
	{crowded, "many notifications wait for their handler", event{}},
	{eased, "few of them wait again", event{}},
	{quiet, "all of them were handled", event{}},
	{admitted, "the gate has a place", event{}},
	{linkOpened, "a link is open", event{eventExtra: &eventExtra{link: deadLink{}}}},
	{openFailed, "no link can be opened", event{eventExtra: &eventExtra{reason: Reason{Kind: OpenFailed}}}},
	{handshakeDone, "the handshake is done", event{}},
	{handshakeFailed, "the handshake has failed", event{eventExtra: &eventExtra{reason: Reason{Kind: HandshakeFailed}}}},
	{linkEnded, "the peer will send nothing more", event{}},
	{linkLost, "the link is lost", event{eventExtra: &eventExtra{reason: Reason{Kind: LinkBroken}}}},
	{linkGone, "the link is closed", event{}},
	{replied, "an answer", event{id: 1, frames: 1}},
	{requested, "a request", event{incoming: incomingRequest(8), frames: 1}},
	{notified, "a notification", event{incoming: &Incoming{}, frames: 1}},
	{progressed, "progress of the call", event{id: 1, frames: 1}},
	{cancelled, "the peer cancels its request", event{incoming: incomingRequest(7), frames: 1}},
	{probed, "the peer probes", event{out: &outboundFrame{reply: true}, frames: 1}},
	{malformed, "a malformed frame", event{frames: 1}},
	{streamOpened, "a stream is opened", event{stream: 4}},
	{streamLost, "a stream is lost", event{eventExtra: &eventExtra{reason: Reason{Kind: StreamLost}}}},
	{busy, "the link has refused the frame of the call", event{out: &outboundFrame{id: 1}, tried: true}},
	{failed, "the frame of the call was not sent", event{out: &outboundFrame{id: 1}, unsent: true, err: errors.New("too large")}},
	{doubted, "something else than the peer has answered", event{id: 9, out: &outboundFrame{id: 1}}},
	{writable, "the link has room again", event{}},
	{handled, "the handler has returned", event{}},
	{tick, "the next deadline has passed", event{random: 0.5}},
}

// apply applies the event to a stage, and returns a description of the effects.
func (o sample) apply(t *testing.T, s stage) string {
	d, served := s.drive(t)
	ev := o.event
	ev.kind, ev.epoch = o.kind, d.core.epoch
	if o.kind == handled {
		ev.incoming = served
	}
	if o.kind == tick {
		d.now = max(d.core.deadline(), d.now)
	}
	d.step(ev)
	var effects []string
	for _, fx := range d.effects {
		effects = append(effects, o.describe(&fx))
	}
	if len(effects) == 0 {
		return "–"
	}
	return strings.Join(slices.Compact(effects), ", ")
}

// describe returns a description of an effect.
func (sample) describe(fx *effect) string {
	switch fx.kind {
	case transitioned:
		return fmt.Sprintf("**%s**", fx.to)
	case settle:
		return fmt.Sprintf("settles: %s, %s", fx.cause, fx.delivery)
	case transmit:
		return "sends"
	case grant:
		return "grants credit"
	case askPlace:
		return "asks for a place"
	case leaveGate:
		return "leaves the gate"
	case openLink:
		return "opens a link"
	case closeLink:
		return "closes the link"
	case endTasks:
		return "cancels what runs"
	case cancelServing:
		return "ends the handler's context"
	case bind:
		return "binds the link"
	case progress, notify, serve:
		return "passes it on"
	case handshake:
		return "runs the handshake"
	case violation, late, unknown:
		return "reports it"
	case endStream:
		return "ends the stream"
	case terminate:
		return "ends"
	default:
		return effectNames[fx.kind]
	}
}

// TestEveryEventIsInTheTable checks that the table has every kind of event, except the
// one that begins a core and the three that only the shell uses.
//
// Guarantees: G-0001.1
func TestEveryEventIsInTheTable(t *testing.T) {
	for kind := started + 1; kind < overdue; kind++ {
		if !slices.ContainsFunc(samples, func(o sample) bool { return o.kind == kind }) {
			t.Errorf("%s is not in the table", eventNames[kind])
		}
	}
}

// Events of an incarnation that has ended change nothing in any state, except that a link that
// opens too late is closed.
//
// Guarantees: G-0001.6
func TestReportsOfAnEndedIncarnationChangeNothing(t *testing.T) {
	for _, s := range stages {
		for _, o := range samples {
			if o.kind < admitted || o.kind >= handled {
				continue // the event does not belong to an incarnation
			}
			d, _ := s.drive(t)
			before := *d.core
			ev := o.event
			ev.kind, ev.epoch = o.kind, d.core.epoch-1
			d.step(ev)
			if o.kind == linkOpened && len(d.effects) == 1 && d.effects[0].kind == closeLink {
				continue
			}
			if len(d.effects) > 0 || d.core.current != before.current || d.core.pending.len() != before.pending.len() || d.core.incoming.len() != before.incoming.len() {
				t.Errorf("%s, in %s: effects %v, want none and the same state", o.when, s.name, d.effects)
			}
		}
	}
}

// eventTable returns a table with the effects of every event in every state.
func eventTable(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| Event |")
	for _, s := range stages {
		fmt.Fprintf(&b, " %s |", s.name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(stages)) + "\n")
	for _, o := range samples {
		fmt.Fprintf(&b, "| %s |", o.when)
		for _, s := range stages {
			fmt.Fprintf(&b, " %s |", o.apply(t, s))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// Each delay is at most BackoffJitter away from its interval, and between BackoffMin and BackoffMax.
//
// Guarantees: G-0001.4
func TestDelaysAreSpreadWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{Tuning: Tuning{
			BackoffMin:    time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "min")),
			BackoffMax:    time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "max")),
			BackoffJitter: rapid.Float64Range(0.01, 0.99).Draw(t, "jitter"),
		}}.withDefaults()
		s := newSchedule(&o)
		d := o.BackoffMin
		for range 20 {
			random := rapid.Float64Range(0, 1).Draw(t, "random")
			wait := s.next(random)
			low := max(float64(d)*(1-o.BackoffJitter), float64(o.BackoffMin))
			high := min(float64(d)*(1+o.BackoffJitter), float64(o.BackoffMax))
			if float64(wait) < low-1 || float64(wait) > high+1 {
				t.Fatalf("the delay for %v is %v, want one in [%v, %v]", d, wait, low, high)
			}
			d = min(2*d, o.BackoffMax)
		}
	})
}

// The first delay and the longest are spread evenly over what the limits leave of their interval.
// So not many of them are equal to the limit.
//
// Guarantees: G-0001.4
func TestFirstAndCappedDelaysDoNotPileUp(t *testing.T) {
	first := func(random float64) time.Duration {
		s := newSchedule(defaults())
		return s.next(random)
	}
	capped := func(random float64) time.Duration {
		s := newSchedule(defaults())
		for range 10 {
			s.next(0)
		}
		return s.next(random)
	}
	for name, c := range map[string]struct {
		delay     func(float64) time.Duration
		low, high time.Duration
	}{
		"first":  {first, time.Second, 1200 * time.Millisecond},
		"capped": {capped, 24 * time.Second, 30 * time.Second},
	} {
		if low, high := c.delay(0), c.delay(1); low != c.low || high != c.high {
			t.Errorf("%s: from %v to %v, want %v to %v", name, low, high, c.low, c.high)
		}
		if middle := c.delay(0.5); middle != (c.low+c.high)/2 {
			t.Errorf("%s: the middle is %v, want %v", name, middle, (c.low+c.high)/2)
		}
	}
}

// After a session of a proven incarnation has expired, the next attempt is made at once. Before
// it is proven again, a further loss waits for the backoff.
//
// Guarantees: G-0001.18
func TestAnExpiredSessionIsReplacedAtOnceAndOnce(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{BackoffJitter: 1e-9}})
	again := func(ready time.Duration) time.Duration {
		d.now += ready
		d.stepCurrent(event{kind: linkLost, random: 0.5, eventExtra: &eventExtra{reason: Reason{Kind: SessionExpired}}})
		began := d.now
		d.linkGone()
		d.advanceToDeadline()
		waited := d.now - began
		d.wantState(Starting)
		d.open()
		d.handshaken()
		return waited.Round(time.Millisecond)
	}
	const proven = 30 * time.Second
	for i, c := range []struct{ ready, want time.Duration }{
		{proven - 1, time.Second}, {proven, 0}, {proven - 1, time.Second}, {0, 2 * time.Second}, {proven, 0}, {proven, 0},
	} {
		if got := again(c.ready); got != c.want {
			t.Fatalf("loss %d, after %v of being ready: waited %v, want %v", i+1, c.ready, got, c.want)
		}
	}
}
