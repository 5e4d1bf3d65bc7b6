package conn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A call that the link refuses as busy is offered three times more, and is then refused.
//
// Guarantees: G-0007.1
func TestBusyLinkIsOfferedACallThreeTimesMore(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	for range busyRetries {
		d.busy(d.wantTransmit(1))
		d.wantNothing("it is offered again later")
		d.advanceToDeadline()
	}
	d.busy(d.wantTransmit(1))
	if fx := d.wantSettled(1, Refused, NotSent); !errors.Is(fx.err, transport.ErrBusy) {
		t.Fatalf("the error is %v, want ErrBusy", fx.err)
	}
	if d.now != time.Second+busyRetries*busyDelay {
		t.Fatalf("it took %v, want %v", d.now-time.Second, busyRetries*busyDelay)
	}
}

// The delay before a busy link is tried again is between 5 and 15 ms.
//
// Guarantees: G-0007.1
func TestBusyWaitStaysWithinItsJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wait := busyWait(rapid.Float64Range(0, 1).Draw(t, "random"))
		if wait < 5*time.Millisecond || wait > 15*time.Millisecond {
			t.Fatalf("the delay is %v, want 5ms to 15ms", wait)
		}
	})
}

// While a frame waits for a busy link, later ones wait, too. All are sent in their order.
//
// Guarantees: G-0007.2
func TestNothingOvertakesBehindABusyLink(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.busy(d.wantTransmit(1))
	d.call(2, 0)
	d.sendNotification()
	d.call(3, 0)
	d.wantNothing("all of them wait for the first")
	d.stepCurrent(event{kind: writable})
	for _, id := range []int64{1, 2, 0, 3} {
		d.wantTransmit(id)
	}
}

// Frames keep their order if the link refuses one of them again.
//
// Guarantees: G-0007.2
func TestOrderSurvivesASecondRefusal(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.busy(d.wantTransmit(1))
	d.call(2, 0)
	d.call(3, 0)
	d.advanceToDeadline()
	d.wantTransmit(1)
	second, third := d.wantTransmit(2), d.wantTransmit(3)
	d.busy(second)
	d.notOffered(third)
	d.call(4, 0)
	d.stepCurrent(event{kind: writable})
	for _, id := range []int64{2, 3, 4} {
		d.wantTransmit(id)
	}
}

// A link that has room for a few frames at each writable event is offered few more than it takes.
//
// Guarantees: G-0007.2, G-0007.7
func TestLinkIsOfferedFewFramesThatItDoesNotTake(t *testing.T) {
	for room := 1; room <= 256; room *= 2 {
		c, now := driveReady(t, Options{}).core, time.Second
		for id := range int64(256) {
			c.outbound.retryLater(outboundFrame{id: id + 1, frame: []byte("{}")}, now, 0)
		}
		taken, offered, rounds := 0, 0, 0
		for !c.outbound.empty() {
			rounds++
			free := room
			events := []event{{kind: writable, epoch: c.epoch}}
			for ; len(events) > 0; events = events[1:] {
				for _, fx := range slices.Clone(c.step(now, &events[0])) {
					switch {
					case fx.kind == offerMore && len(events) == 1:
						events = append(events, event{kind: writable, epoch: c.epoch})
					case fx.kind != transmit:
					case free > 0:
						offered, free, taken = offered+1, free-1, taken+1
						if fx.out.id != int64(taken) {
							t.Fatalf("frame %d is taken after %d, want %d", fx.out.id, taken-1, taken)
						}
					default:
						offered++
						events = append(events, event{kind: busy, epoch: c.epoch, out: returned(fx.out), tried: len(events) == 1})
					}
				}
			}
		}
		if offered > 2*taken+rounds || rounds > 256/room {
			t.Errorf("room for %d: %d frames were offered in %d rounds, want %d in %d at most",
				room, offered, rounds, 2*taken+rounds, 256/room)
		}
	}
}

// A link that takes no frame for stuckAfter is lost.
//
// Guarantees: G-0007.4
func TestLinkThatTakesNothingIsLost(t *testing.T) {
	d := driveReady(t, Options{})
	in := d.request(1)
	d.handled(in)
	d.dropEffects()
	d.busy(outboundFrame{reply: true})
	busyAt := d.now
	for d.core.state() == Ready {
		d.advanceToDeadline()
		if d.core.state() == Ready {
			d.busy(d.wantReply())
		}
	}
	d.wantTransition(Backoff, PeerNotReading)
	if d.now-busyAt != stuckAfter {
		t.Fatalf("it was lost after %v, want %v", d.now-busyAt, stuckAfter)
	}
}

// A link that takes a frame or becomes writable is not lost.
//
// Guarantees: G-0007.4
func TestLinkThatTakesSomethingIsNotLost(t *testing.T) {
	for name, relief := range map[string]func(*driver, outboundFrame){
		"it becomes writable": func(d *driver, _ outboundFrame) { d.stepCurrent(event{kind: writable}) },
		"it takes another frame": func(d *driver, out outboundFrame) {
			d.stepCurrent(event{kind: busy, out: returned(out), tried: true, moved: true})
		},
		"it has taken all of them": func(d *driver, _ outboundFrame) { d.step(event{kind: tick, moved: true}) },
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			reply := outboundFrame{reply: true}
			d.busy(reply)
			d.now += stuckAfter - time.Second
			relief(d, reply)
			d.dropEffects()
			d.advance(2 * time.Second)
			d.wantState(Ready)
		})
	}
}

// A frame that is queued only because the one before it failed does not make the link count as busy.
//
// Guarantees: G-0007.4
func TestFailedFrameDoesNotMakeTheLinkBusy(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.busy(d.wantTransmit(1))
	d.call(2, 0)
	d.stepCurrent(event{kind: writable})
	first, second := d.wantTransmit(1), d.wantTransmit(2)
	d.stepCurrent(event{kind: failed, out: returned(first), unsent: true, err: &transport.OversizedError{}})
	d.wantSettled(1, Refused, NotSent)
	d.notOffered(second)
	d.advanceToDeadline()
	d.wantTransmit(2)
	d.advance(stuckAfter)
	d.wantState(Ready)
}

// A notification that waits for the link is removed when its caller gives up.
//
// Guarantees: G-0007.3
func TestWaitingNotificationIsWithdrawn(t *testing.T) {
	d := driveReady(t, Options{})
	d.busy(outboundFrame{reply: true})
	caller := d.sendNotification()
	d.wantNothing("it waits")
	leave := event{kind: callLeft, err: errors.New("gone"), out: &outboundFrame{call: caller}}
	d.step(leave)
	if fx := d.wantSettled(0, Cancelled, NotSent); fx.call != caller {
		t.Fatal("another caller was settled")
	}
	d.step(leave)
	d.wantNothing("the notification has ended")
}

// If the reply to a request cannot be sent, the peer gets an error instead, once.
//
// Guarantees: G-0003.10
func TestReplyThatCannotBeSentIsReplaced(t *testing.T) {
	d := driveReady(t, Options{})
	d.handled(d.request(7))
	d.want(serve)
	d.wantGrant(1)
	reply := d.wantReply()
	d.stepCurrent(event{kind: failed, out: returned(reply), unsent: true, err: &transport.OversizedError{Limit: 1, Size: 2}})
	d.wantNothing("the link is about to return the frames behind the reply")
	d.advanceToDeadline()
	replacement := d.wantReply()
	m, err := jsonrpc.Decode(replacement.frame, jsonrpc.Limits{})
	if id, _ := m.ID.Int64(); err != nil || id != 7 || m.Error == nil || m.Error.Code != jsonrpc.CodeInternalError {
		t.Fatalf("the peer gets %s, want an internal error for request 7", replacement.frame)
	}
	if !strings.Contains(m.Error.Message, "2 bytes") {
		t.Errorf("the peer is told %q, and not why it has no answer", m.Error.Message)
	}
	d.stepCurrent(event{kind: failed, out: returned(replacement), unsent: true, err: errors.New("again")})
	d.wantNothing("the replacement is not replaced")
}

// A reply is offered to a busy link again and again, as often as needed.
//
// Guarantees: G-0007.5
func TestRepliesAreNeverDropped(t *testing.T) {
	d := driveReady(t, Options{})
	d.busy(outboundFrame{reply: true})
	for range 100 {
		d.advanceToDeadline()
		d.busy(d.wantReply())
	}
}

// busyWait spreads the delay evenly over its random number.
//
// Guarantees: G-0007.1
func TestBusyWaitGrowsWithItsDraw(t *testing.T) {
	for random, want := range map[float64]time.Duration{0: 5, 0.5: 10, 1: 15} {
		if wait := busyWait(random); wait != want*time.Millisecond {
			t.Errorf("random %v: the delay is %v, want %v", random, wait, want*time.Millisecond)
		}
	}
}

// When one of two callers gives up, only its own notification is removed.
//
// Guarantees: G-0007.3
func TestOnlyTheNotificationOfTheCallerIsWithdrawn(t *testing.T) {
	for _, leaves := range []int{0, 1} {
		d := driveReady(t, Options{})
		callers := []*call{d.sendNotification(), nil}
		d.busy(d.wantTransmit(0))
		callers[1] = d.sendNotification()
		d.step(event{kind: callLeft, err: context.Canceled, out: &outboundFrame{call: callers[leaves]}})
		if fx := d.wantSettled(0, Cancelled, NotSent); fx.call != callers[leaves] {
			t.Fatal("another caller was settled")
		}
		d.stepCurrent(event{kind: writable})
		if out := d.wantTransmit(0); out.call != callers[1-leaves] {
			t.Fatal("the notification of the caller that gave up is sent")
		}
		d.wantNothing("the other notification is removed")
	}
}

// A notification that the link cannot send is settled with NotSent.
//
// Guarantees: G-0003.2
func TestNotificationThatCannotBeSentIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want Cause
	}{
		"too large":   {&transport.OversizedError{Limit: 1, Size: 2}, Refused},
		"link closed": {transport.ErrClosed, LinkLost},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			d.sendNotification()
			d.stepCurrent(event{kind: failed, out: returned(d.wantTransmit(0)), err: c.err})
			d.wantSettled(0, c.want, NotSent)
		})
	}
}

// A frame that was not sent is replaced with an error only if it is a result and has a route.
func TestFailedFrameIsNotAlwaysReplaced(t *testing.T) {
	for name, ev := range map[string]event{
		"no answer":               {out: &outboundFrame{frame: []byte("cancel")}, err: errors.New("no")},
		"no answer, no route":     {out: &outboundFrame{frame: []byte("cancel")}, err: transport.ErrNoRoute},
		"an answer, no route":     {out: &outboundFrame{reply: true, answers: new(Incoming)}, err: transport.ErrNoRoute},
		"an answer with an error": {out: &outboundFrame{reply: true}, err: errors.New("no")},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveReady(t, Options{})
			ev.kind, ev.unsent = failed, true
			d.stepCurrent(ev)
			d.stepCurrent(event{kind: writable})
			d.wantNothing("the frame is not replaced")
		})
	}
}

// If the link fails to send a call during a drain, the reply that was offered after that call is
// still sent before the Conn closes.
//
// Guarantees: G-0007.5, G-0009.6
func TestReplyBehindAFailureIsSent(t *testing.T) {
	d := driveReady(t, Options{})
	in := d.request(7)
	d.call(1, 0)
	call := d.frame(1)
	d.drain(time.Minute)
	d.handled(in)
	d.dropEffects()
	d.stepCurrent(event{kind: failed, out: returned(call), err: errNotFits, unsent: true})
	d.wantSettled(1, Refused, NotSent)
	d.wantNothing("the link will return the reply behind the call, too")
	d.notOffered(outboundFrame{reply: true})
	d.stepCurrent(event{kind: writable})
	d.wantReply()
	d.advanceToDeadline()
	d.wantTransition(Closing, Drained)
}

// After a link failed to take a frame, it is offered only one frame next, like a busy link.
//
// Guarantees: G-0007.7
func TestFailureReducesWhatIsOffered(t *testing.T) {
	c, now := driveReady(t, Options{}).core, time.Second
	for id := range int64(16) {
		c.outbound.retryLater(outboundFrame{id: id + 1, frame: []byte("{}")}, now, 0)
	}
	offered := func(ev event) (frames []outboundFrame) {
		ev.epoch = c.epoch
		for _, fx := range c.step(now, &ev) {
			if fx.kind == transmit {
				frames = append(frames, fx.out)
			}
		}
		return frames
	}
	one, two := offered(event{kind: writable}), offered(event{kind: writable})
	if len(one) != 1 || len(two) != 2 {
		t.Fatalf("%d and %d frames were offered, want 1 and 2", len(one), len(two))
	}
	offered(event{kind: failed, out: returned(two[1]), err: errNotFits, unsent: true})
	if next := offered(event{kind: writable}); len(next) != 1 {
		t.Errorf("%d frames are offered after a failure, want 1", len(next))
	}
}

var errNotFits = errors.New("it does not fit")

// A queue moves its frames to the front only when it is full and more than half of its slots are
// free, so adding costs little. A queue with few frames at a time stays small.
func TestSlotsOfTheQueue(t *testing.T) {
	for _, c := range []struct {
		name             string
		slots, room      int // its length and its capacity
		taken, takenThen int // the free slots at the front, before and after
	}{
		{"not full", 6, 8, 5, 5},
		{"full, few slots free", 8, 8, 1, 1},
		{"full, half free", 8, 8, 4, 4},
		{"full, most free", 8, 8, 5, 0},
	} {
		o := outbound{slots: make([]outboundFrame, c.slots, c.room), head: c.taken}
		o.add(outboundFrame{id: 7})
		if waiting := o.waiting(); o.head != c.takenThen || len(waiting) != c.slots-c.taken+1 || waiting[len(waiting)-1].id != 7 {
			t.Errorf("%s: %d slots are free and %d frames wait, want %d and %d",
				c.name, o.head, len(waiting), c.takenThen, c.slots-c.taken+1)
		}
	}
	var busy outbound
	for id := range int64(10_000) {
		if busy.add(outboundFrame{id: id}); id >= 10 {
			busy.take()
		}
	}
	if cap(busy.slots) > 64 {
		t.Errorf("ten frames at a time need %d slots, want 64 at most", cap(busy.slots))
	}
}

// An empty queue keeps up to keepSlots slots. A parked core keeps none.
func TestSlotsOfAnEmptyQueue(t *testing.T) {
	for slots, kept := range map[int]int{16: 16, keepSlots: keepSlots, keepSlots + 1: 0} {
		o := outbound{slots: make([]outboundFrame, 0, slots)}
		o.add(outboundFrame{id: 1})
		o.take()
		if cap(o.slots) != kept {
			t.Errorf("of %d slots it keeps %d, want %d", slots, cap(o.slots), kept)
		}
	}
	c := driveReady(t, Options{}).core
	c.outbound.slots = make([]outboundFrame, 0, 16)
	c.streams.main.withheld = 1 // so that the parked core keeps its queue
	if c.park(); c.outbound.slots != nil {
		t.Errorf("a parked core keeps %d slots, want none", cap(c.outbound.slots))
	}
}

// The route of a frame is its own, or else that of the answer in it.
func TestRouteOfAFrame(t *testing.T) {
	id := jsonrpc.IntegerID(7)
	own := &transport.Route{Kind: jsonrpc.KindNotification}
	answered := func(failed bool) *Incoming {
		return &Incoming{key: incomingKey{id: id}, failed: failed, failure: jsonrpc.CodeInternalError}
	}
	for name, row := range map[string]struct {
		frame outboundFrame
		want  transport.Route
	}{
		"its own":   {outboundFrame{route: own, answers: answered(true)}, *own},
		"an error":  {outboundFrame{answers: answered(true)}, transport.Route{Kind: jsonrpc.KindError, ID: id, Code: jsonrpc.CodeInternalError}},
		"a result":  {outboundFrame{answers: answered(false)}, transport.Route{Kind: jsonrpc.KindResult, ID: id}},
		"no answer": {outboundFrame{}, transport.Route{}},
	} {
		if got := row.frame.routed(); got != row.want {
			t.Errorf("%s: got %+v, want %+v", name, got, row.want)
		}
	}
}

// event.notice returns the caller of a notification, and nil for other frames.
func TestCallerOfANotificationEvent(t *testing.T) {
	caller := &call{}
	for name, row := range map[string]struct {
		out  *outboundFrame
		want *call
	}{
		"a notification": {&outboundFrame{call: caller, notification: true}, caller},
		"a request":      {&outboundFrame{call: caller}, nil},
		"no frame":       {nil, nil},
	} {
		if got := (&event{out: row.out}).notice(); got != row.want {
			t.Errorf("%s: got %p, want %p", name, got, row.want)
		}
	}
}

// A notification that must not wait is refused if the link is busy, or if a frame waits already.
func TestNotificationThatMayNotWaitIsRefused(t *testing.T) {
	notify := func(d *driver) {
		d.stepCurrent(event{kind: notificationMade, out: &outboundFrame{call: new(call), notification: true, once: true}})
	}
	d := driveReady(t, Options{})
	notify(d)
	d.busy(d.wantTransmit(0))
	d.wantSettled(0, Refused, NotSent)
	d.wantNothing("it was refused")
	d.advance(time.Second)
	d.wantNothing("what was refused is not sent later")

	d.call(1, time.Minute)
	d.busy(d.wantTransmit(1))
	d.dropEffects()
	notify(d)
	d.wantSettled(0, Refused, NotSent)
}
