package conn

import (
	"fmt"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A driver feeds a core events at chosen times, and keeps the effects until a test has checked
// them. It replaces the loop, and performs no effect.
type driver struct {
	t interface {
		Helper()
		Fatalf(string, ...any)
	}
	core    *core
	now     instant
	calls   map[int64]*call
	effects []effect // not checked yet, oldest first
}

type failer = interface {
	Helper()
	Fatalf(string, ...any)
}

func drive(t failer, r role, o Options) *driver {
	return &driver{t: t, core: newBusyCore(r, &o), now: time.Second, calls: map[int64]*call{}}
}

// newBusyCore returns a core with the memory that its loop gives it.
func newBusyCore(r role, o *Options) *core {
	common, own := o.split()
	c := newCore(r, sharedMachines(), common, own.dialect)
	c.final = own.final
	c.unpark(new(scratch))
	return c
}

// defaults returns the options of a Conn without any set.
func defaults() *Tuning {
	o := Tuning{}.withDefaults()
	return &o
}

// driveReady returns an initiator that has just become ready.
func driveReady(t failer, o Options) *driver {
	d := drive(t, initiator, o)
	d.start()
	d.open()
	d.handshaken()
	d.dropEffects()
	return d
}

// driveAcceptor returns an acceptor that has just become ready.
func driveAcceptor(t failer, o Options) *driver {
	d := drive(t, acceptor, o)
	d.start()
	d.dropEffects()
	return d
}

// cloneEffects copies effects, because the next step of the core overwrites them.
func cloneEffects(effects []effect) []effect {
	cloned := slices.Clone(effects)
	for i := range cloned {
		if p := cloned[i].eventExtra; p != nil {
			copied := *p
			cloned[i].eventExtra = &copied
		}
	}
	return cloned
}

func (d *driver) step(ev event) {
	effects := cloneEffects(d.core.step(d.now, &ev))
	more := slices.IndexFunc(effects, func(fx effect) bool { return fx.kind == offerMore })
	if d.effects = append(d.effects, effects...); more >= 0 { // this link takes every frame
		at := len(d.effects) - len(effects) + more
		d.effects = slices.Delete(d.effects, at, at+1)
		d.stepCurrent(event{kind: writable})
	}
}

// stepCurrent steps an event of the present incarnation.
func (d *driver) stepCurrent(ev event) {
	ev.epoch = d.core.epoch
	d.step(ev)
}

func (d *driver) start() { d.step(event{kind: started, eventExtra: &eventExtra{link: deadLink{}}}) }
func (d *driver) open() {
	d.stepCurrent(event{kind: linkOpened, eventExtra: &eventExtra{link: deadLink{}}})
}
func (d *driver) handshaken() { d.stepCurrent(event{kind: handshakeDone}) }
func (d *driver) linkGone()   { d.stepCurrent(event{kind: linkGone}) }
func (d *driver) stop()       { d.step(event{kind: stopAsked}) }
func (d *driver) wake()       { d.step(event{kind: woken}) }

func (d *driver) drain(within time.Duration) { d.step(event{kind: drainAsked, timeout: within}) }

// advance lets time pass, and then steps a tick.
func (d *driver) advance(wait time.Duration) {
	d.now += wait
	d.step(event{kind: tick, random: 0.5})
}

// advanceToDeadline lets time pass until the core's deadline, and then steps a tick.
func (d *driver) advanceToDeadline() {
	d.t.Helper()
	due := d.core.deadline()
	if due == 0 {
		d.t.Fatalf("the core has no deadline, want one")
	}
	d.advance(max(due-d.now, 0))
}

func (d *driver) call(id int64, timeout time.Duration) {
	d.calls[id] = new(call)
	d.stepCurrent(event{kind: callMade, timeout: timeout, out: returned(d.frame(id))})
}

func (d *driver) frame(id int64) outboundFrame {
	return outboundFrame{id: id, call: d.calls[id], frame: []byte(fmt.Sprintf(`{"id":%d}`, id))}
}

func (d *driver) sendNotification() *call {
	caller := new(call)
	d.stepCurrent(event{kind: notificationMade, out: &outboundFrame{call: caller, notification: true}})
	return caller
}

func (d *driver) reply(id int64) {
	d.stepCurrent(event{kind: replied, id: id, frames: 1, payload: []byte("{}")})
}

// loseLink reports the loss of the link, and the tags of the frames that were not sent.
func (d *driver) loseLink(unsent ...transport.Tag) {
	d.stepCurrent(event{kind: linkLost, random: 0.5, eventExtra: &eventExtra{reason: Reason{Kind: LinkBroken}, tags: unsent}})
}

// busy returns a frame to the core that the link has refused as busy.
func (d *driver) busy(out outboundFrame) {
	d.stepCurrent(event{kind: busy, out: returned(out), tried: true, random: 0.5})
}

// notOffered returns a frame to the core that was not offered, because the link was busy.
func (d *driver) notOffered(out outboundFrame) {
	d.stepCurrent(event{kind: busy, out: returned(out), random: 0.5})
}

func incomingRequest(id int64) *Incoming {
	return &Incoming{Method: "work", key: incomingKey{transport.Main, jsonrpc.IntegerID(id)}}
}

func (d *driver) request(id int64) *Incoming {
	in := incomingRequest(id)
	d.stepCurrent(event{kind: requested, incoming: in, frames: 1})
	return in
}

func (d *driver) cancel(id int64) {
	d.stepCurrent(event{kind: cancelled, incoming: incomingRequest(id), frames: 1})
}

func (d *driver) handled(in *Incoming) {
	d.step(event{kind: handled, incoming: in, payload: []byte("reply")})
}

// dropEffects drops the effects that have not been checked yet.
func (d *driver) dropEffects() { d.effects = nil }

// dropEffectsOf drops the effects of this kind that have not been checked yet.
func (d *driver) dropEffectsOf(kind effectKind) {
	d.effects = slices.DeleteFunc(d.effects, func(fx effect) bool { return fx.kind == kind })
}

// want removes the next effect, which must be of this kind, and returns it.
func (d *driver) want(kind effectKind) effect {
	d.t.Helper()
	if len(d.effects) == 0 {
		d.t.Fatalf("want %s, got no effect", effectNames[kind])
	}
	fx := d.effects[0]
	d.effects = d.effects[1:]
	if fx.kind != kind {
		d.t.Fatalf("want %s, got %s: %+v", effectNames[kind], effectNames[fx.kind], fx)
	}
	return fx
}

func (d *driver) wantTransition(to State, why ReasonKind) effect {
	d.t.Helper()
	fx := d.want(transitioned)
	if fx.to != to || fx.reason.Kind != why || d.core.state() != to {
		d.t.Fatalf("want a transition to %s (%s), got one to %s (%v), and the state is %s", to, why, fx.to, fx.reason, d.core.state())
	}
	return fx
}

func (d *driver) wantSettled(id int64, cause Cause, delivery Delivery) effect {
	d.t.Helper()
	fx := d.want(settle)
	if fx.id != id || fx.cause != cause || fx.delivery != delivery {
		d.t.Fatalf("want %d settled with %s, %s; got %d with %s, %s (%v)",
			id, cause, delivery, fx.id, fx.cause, fx.delivery, fx.err)
	}
	if id != 0 && fx.call != d.calls[id] {
		d.t.Fatalf("request %d settled another call than its own", id)
	}
	return fx
}

func (d *driver) wantTransmit(id int64) outboundFrame {
	d.t.Helper()
	fx := d.want(transmit)
	if fx.out.id != id {
		d.t.Fatalf("want %d transmitted, got %d", id, fx.out.id)
	}
	return fx.out
}

func (d *driver) wantReply() outboundFrame {
	d.t.Helper()
	fx := d.want(transmit)
	if !fx.out.reply {
		d.t.Fatalf("want a reply transmitted, got %+v", fx.out)
	}
	return fx.out
}

func (d *driver) wantGrant(frames int) {
	d.t.Helper()
	if fx := d.want(grant); fx.frames != frames {
		d.t.Fatalf("want %d frames granted, got %d", frames, fx.frames)
	}
}

func (d *driver) wantNothing(why string) {
	d.t.Helper()
	if len(d.effects) > 0 {
		d.t.Fatalf("want no effect (%s), got %s: %+v", why, effectNames[d.effects[0].kind], d.effects[0])
	}
}

func (d *driver) wantState(want State) {
	d.t.Helper()
	if got := d.core.state(); got != want {
		d.t.Fatalf("the state is %s, want %s", got, want)
	}
}

// count returns how many of the effects that have not been checked yet are of this kind.
func (d *driver) count(kind effectKind) int {
	n := 0
	for _, fx := range d.effects {
		if fx.kind == kind {
			n++
		}
	}
	return n
}

var effectNames = [...]string{
	askPlace: "askPlace", leaveGate: "leaveGate",
	openLink: "openLink", bind: "bind", handshake: "handshake", transmit: "transmit", offerMore: "offerMore", grant: "grant", settle: "settle",
	stuck: "stuck", progress: "progress", serve: "serve", cancelServing: "cancelServing", notify: "notify", awaitQuiet: "awaitQuiet", endTasks: "endTasks",
	closeLink: "closeLink", transitioned: "transitioned", violation: "violation", late: "late", unknown: "unknown",
	terminate: "terminate", detach: "detach", endStream: "endStream", resumeStream: "resumeStream",
	unserved: "unserved", stallBegun: "stallBegun", stallEnded: "stallEnded", missed: "missed",
}

// A deadLink does nothing.
type deadLink struct{}

func (deadLink) Bind(transport.Receiver)       {}
func (deadLink) Send(transport.Outbound) error { return nil }
func (deadLink) Resume(transport.Stream)       {}
func (deadLink) End(transport.Stream)          {}

func (deadLink) Grant(transport.Stream, int) {}
func (deadLink) Close(time.Duration) error   { return nil }
