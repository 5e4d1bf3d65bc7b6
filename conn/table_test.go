package conn

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A stage is a core brought into a state, with as much going on as the state
// allows: call 1 is pending, and request 7 of the peer's is being served.
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
	{"ready", initiator, (*driver).work, nil},
	{"ready, draining", initiator, func(d *driver) { d.work(); d.drain(time.Hour) }, nil},
	{"backoff", initiator, func(d *driver) { d.work(); d.lost(); d.gone() }, nil},
	{"closing", initiator, func(d *driver) { d.work(); d.stop() }, nil},
	{"ready (acceptor)", acceptor, (*driver).work, nil},
}

// work makes a core ready and has both sides ask something.
func (d *driver) work() {
	if d.core.role == initiator {
		d.open()
		d.handshaken()
	}
	d.call(1, time.Minute)
	d.request(7)
}

// reached returns the core of a stage, and the request it serves or served.
func (s stage) reached(t *testing.T) (*driver, *Incoming) {
	d := drive(t, s.role, Options{Dialect: cancels{}, Gate: s.gate})
	d.start()
	s.reach(d)
	served := incomingRequest(7)
	for _, fx := range d.effects {
		if fx.kind == serve {
			served = fx.incoming
		}
	}
	d.forget()
	return d, served
}

// An occasion is an event, as one of its kind typically is.
type occasion struct {
	kind  eventKind
	when  string
	event event
}

var occasions = []occasion{
	{callMade, "a call is made", event{timeout: time.Minute, out: outboundFrame{id: 2, call: new(call)}}},
	{notificationMade, "a notification is made", event{out: outboundFrame{call: new(call), notification: true}}},
	{callLeft, "the caller of a pending call gives up", event{id: 1}},
	{woken, "Wake", event{}},
	{drainAsked, "Close", event{timeout: time.Minute}},
	{stopAsked, "Stop", event{}},
	{crowded, "many notifications wait for their handler", event{}},
	{eased, "few of them wait again", event{}},
	{admitted, "the gate has a place", event{}},
	{linkOpened, "a link is open", event{link: deadLink{}}},
	{openFailed, "no link can be opened", event{reason: Reason{Kind: OpenFailed}}},
	{handshakeDone, "the handshake is done", event{}},
	{handshakeFailed, "the handshake has failed", event{reason: Reason{Kind: HandshakeFailed}}},
	{linkEnded, "the peer will send nothing more", event{}},
	{linkLost, "the link is lost", event{reason: Reason{Kind: LinkBroken}}},
	{linkGone, "the link is closed", event{}},
	{replied, "an answer", event{id: 1, frames: 1}},
	{requested, "a request", event{incoming: incomingRequest(8), frames: 1}},
	{notified, "a notification", event{incoming: &Incoming{}, frames: 1}},
	{progressed, "progress of the call", event{id: 1, frames: 1}},
	{cancelled, "the peer cancels its request", event{incoming: incomingRequest(7), frames: 1}},
	{probed, "the peer probes", event{out: outboundFrame{reply: true}, frames: 1}},
	{malformed, "a malformed frame", event{frames: 1}},
	{streamOpened, "a stream is opened", event{stream: 4}},
	{streamLost, "a stream is lost", event{reason: Reason{Kind: StreamLost}}},
	{busy, "the link has refused the frame of the call", event{out: outboundFrame{id: 1}, tried: true}},
	{failed, "the frame of the call was not sent", event{out: outboundFrame{id: 1}, unsent: true, err: errors.New("too large")}},
	{writable, "the link has room again", event{}},
	{handled, "the handler has returned", event{out: outboundFrame{reply: true, answers: jsonrpc.IntegerID(7)}}},
	{tick, "the next deadline has passed", event{random: 0.5}},
}

// happens has an event happen at a stage, and says what comes of it.
func (o occasion) happens(t *testing.T, s stage) string {
	d, served := s.reached(t)
	ev := o.event
	ev.kind, ev.epoch = o.kind, d.core.epoch
	if o.kind == handled {
		ev.incoming = served
	}
	if o.kind == tick {
		d.now = max(d.core.deadline(), d.now)
	}
	d.step(ev)
	var said []string
	for _, fx := range d.effects {
		said = append(said, o.says(&fx))
	}
	if len(said) == 0 {
		return "–"
	}
	return strings.Join(slices.Compact(said), ", ")
}

// says puts an effect in words.
func (occasion) says(fx *effect) string {
	switch fx.kind {
	case transitioned:
		return fmt.Sprintf("**%s**", fx.to)
	case settle:
		return fmt.Sprintf("settles: %s, %s", fx.cause, fx.delivery)
	case transmit:
		return "sends"
	case grant:
		return "gives credit"
	case askPlace:
		return "asks for a place"
	case leaveGate:
		return "leaves the gate"
	case openLink:
		return "opens a link"
	case closeLink:
		return "closes the link"
	case endTasks:
		return "ends what runs"
	case cancelServing:
		return "ends the handler's context"
	case bind:
		return "binds the link"
	case progress, notify, serve:
		return "hands it on"
	case handshake:
		return "shakes hands"
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

// TestEveryEventIsInTheTable guards against a kind of event that the table
// forgets. One begins a core, and two are the shell's own.
//
// Guarantees: G-0001.1
func TestEveryEventIsInTheTable(t *testing.T) {
	for kind := started + 1; kind < overdue; kind++ {
		if !slices.ContainsFunc(occasions, func(o occasion) bool { return o.kind == kind }) {
			t.Errorf("%s is not in the table", eventNames[kind])
		}
	}
}

// What is reported of an incarnation that is over changes nothing, in no state,
// but for a link that has to be closed.
//
// Guarantees: G-0001.6
func TestWhatIsOverChangesNothing(t *testing.T) {
	for _, s := range stages {
		for _, o := range occasions {
			if o.kind < admitted || o.kind >= handled {
				continue // not of an incarnation
			}
			d, _ := s.reached(t)
			before := *d.core
			ev := o.event
			ev.kind, ev.epoch = o.kind, d.core.epoch-1
			d.step(ev)
			if o.kind == linkOpened && len(d.effects) == 1 && d.effects[0].kind == closeLink {
				continue
			}
			if len(d.effects) > 0 || d.core.current != before.current || d.core.pending.len() != before.pending.len() || d.core.incoming.len() != before.incoming.len() {
				t.Errorf("%s, in %s: %v", o.when, s.name, d.effects)
			}
		}
	}
}

// eventTable is every event in every state, as the core takes it.
func eventTable(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| Event |")
	for _, s := range stages {
		fmt.Fprintf(&b, " %s |", s.name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(stages)) + "\n")
	for _, o := range occasions {
		fmt.Fprintf(&b, "| %s |", o.when)
		for _, s := range stages {
			fmt.Fprintf(&b, " %s |", o.happens(t, s))
		}
		b.WriteString("\n")
	}
	return b.String()
}
