package conn

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A request that has waited for Patience is refused at that moment, whatever it waits for. It holds
// nothing any more, and no place that gets free later serves it.
//
// Guarantees: G-0084.1
func TestRequestThatHasWaitedTooLongIsRefused(t *testing.T) {
	for name, test := range map[string]struct{ first, waiting *Incoming }{
		"behind a full number of handlers":   {&Incoming{}, &Incoming{}},
		"behind an exclusive request":        {&Incoming{exclusive: true}, &Incoming{}},
		"an exclusive request":               {&Incoming{}, &Incoming{exclusive: true}},
		"a request that stays open":          {&Incoming{exclusive: true}, &Incoming{streaming: true}},
		"a request that we wait for as well": {&Incoming{}, &Incoming{nested: true}},
	} {
		t.Run(name, func(t *testing.T) {
			d := driveAcceptor(t, Options{Tuning: Tuning{MaxServing: 1, Patience: time.Minute}})
			first, waiting := test.first, test.waiting
			for id, in := range []*Incoming{first, waiting} {
				in.key, in.size = incomingKey{id: jsonrpc.IntegerID(int64(id))}, 100
				d.stepCurrent(event{kind: requested, incoming: in, frames: 1})
				d.advance(time.Second)
			}
			d.dropEffects()
			d.advance(time.Minute - time.Second - 1)
			d.wantNothing("its time has not passed")
			d.advanceToDeadline()
			d.wantRefusal(jsonrpc.CodeOverloaded)
			d.wantNothing("it is refused once")
			if in := &d.core.incoming; in.len() != 1 || in.bytes != 100 || in.waitingStreaming != 0 || d.core.deadline() != 0 || d.core.streams.main.nested != 0 {
				t.Fatalf("%d requests, %d bytes, %d that stay open, %d nested, the deadline is %v; want only the first request",
					in.len(), in.bytes, in.waitingStreaming, d.core.streams.main.nested, d.core.deadline())
			}
			d.handled(first)
			d.wantReply()
			d.wantNothing("nothing waits")
		})
	}
}

// A place that gets free too late serves nobody whose time has passed, even if the timer has not fired yet.
//
// Guarantees: G-0084.1
func TestPlaceThatGetsFreeTooLate(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxServing: 1}})
	first := d.request(1)
	d.request(2)
	d.now += 5 * time.Second
	third := d.request(3)
	d.dropEffects()
	d.now += 5 * time.Second
	d.handled(first)
	d.wantReply()
	d.wantRefusal(jsonrpc.CodeOverloaded)
	if fx := d.want(serve); fx.incoming != third || fx.at != d.now+5*time.Second {
		t.Fatalf("%v is served, to start by %v; want the third request, by %v", fx.incoming.key.id, fx.at, d.now+5*time.Second)
	}
}

// Without patience, a request waits until it is served.
//
// Guarantees: G-0084.1
func TestNegativePatienceIsNoLimit(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxServing: 1, Patience: -1}})
	first, second := d.request(1), &Incoming{key: incomingKey{id: jsonrpc.IntegerID(2)}}
	d.stepCurrent(event{kind: requested, incoming: second, timeout: time.Hour})
	d.dropEffects()
	d.advance(time.Hour)
	d.wantNothing("the request waits")
	if due := d.core.deadline(); due != 0 {
		t.Fatalf("the deadline is %v, want none", due)
	}
	d.handled(first)
	d.wantReply()
	if fx := d.want(serve); fx.incoming != second || fx.at != 0 {
		t.Fatalf("%v is served, to start by %v; want the second request, at any time", fx.incoming.key.id, fx.at)
	}
}

// The time for which the link has held a request counts, and lets it wait before those that came later.
//
// Guarantees: G-0084.2
func TestTimeInTheLinkCounts(t *testing.T) {
	d := driveReady(t, Options{Tuning: Tuning{MaxServing: 1}})
	held := func(id int64, held time.Duration) *Incoming {
		in := incomingRequest(id)
		d.stepCurrent(event{kind: requested, incoming: in, timeout: held})
		return in
	}
	held(1, 10*time.Second)
	d.wantRefusal(jsonrpc.CodeOverloaded) // although there is a place
	first, second := held(2, 10*time.Second-1), held(3, 0)
	d.want(serve)
	third := held(4, 7*time.Second)
	held(5, 7*time.Second)
	d.handled(first)
	d.wantReply()
	if fx := d.want(serve); fx.incoming != third {
		t.Fatalf("%v is served, want 4, which the link has held longest", fx.incoming.key.id)
	}
	d.advance(3 * time.Second)
	d.wantRefusal(jsonrpc.CodeOverloaded)
	if waiting := d.core.incoming.waiting; len(waiting) != 1 || waiting[0].Incoming != second {
		t.Fatalf("%v wait, want only the request that came without delay", waiting)
	}
}

// The refusal of a request ends its stream, and takes its place among the answers of its batch.
//
// Guarantees: G-0084.1
func TestRefusalEndsStreamOrBatch(t *testing.T) {
	d := driveAcceptor(t, Options{Tuning: Tuning{MaxServing: 1}})
	first := d.request(1)
	d.requestOnStream(2, 7)
	d.dropEffects()
	d.advanceToDeadline()
	if out := d.wantReply(); !out.last || out.stream != 2 {
		t.Fatalf("got %+v, want the last frame of stream 2", out)
	}
	d.wantNothing("the stream has ended")
	d.streamOpened(3, 0)
	d.batchOf(&batch{due: 3}, 1, 2)
	d.advanceToDeadline()
	if out := d.wantReply(); !out.last || out.stream != 3 || bytes.Count(out.frame, []byte("-32050")) != 2 {
		t.Fatalf("got %+v, want two refusals as the last frame of stream 3", out)
	}
	d.handled(first)
	d.wantReply()
	d.wantNothing("nothing waits")
}

// A request whose sender has cancelled it, or has gone, while it waits is dropped at once, and never served.
//
// Guarantees: G-0084.3
func TestWaitingRequestIsDropped(t *testing.T) {
	for name, leave := range map[string]func(d *driver){
		"cancelled":           func(d *driver) { d.cancelOnMain(7) },
		"its stream has gone": func(d *driver) { d.streamLost(2) },
	} {
		t.Run(name, func(t *testing.T) {
			d := driveAcceptor(t, Options{Tuning: Tuning{MaxServing: 1}})
			first := d.request(1)
			d.requestOnStream(2, 7)
			d.dropEffects()
			leave(d)
			if in := &d.core.incoming; len(in.waiting) != 0 || len(in.waitingByKey) != 0 || d.core.deadline() != 0 {
				t.Fatalf("%d requests wait, the deadline is %v; want none", len(in.waiting), d.core.deadline())
			}
			d.dropEffects()
			d.handled(first)
			d.wantReply()
			d.wantNothing("the request was dropped")
		})
	}
}

// If nobody can get the answers of a stream any more, what waits on it is dropped, and what is being served goes on.
//
// Guarantees: G-0084.3
func TestRequestsThatNobodyReadsAreDroppedWhileTheyWait(t *testing.T) {
	d := driveAcceptor(t, Options{Tuning: Tuning{MaxServing: 1}})
	first := d.requestOnStream(2, 1)
	d.requestOnStream(3, 2)
	last := d.requestOnStream(4, 3)
	d.dropEffects()
	for _, number := range []transport.Stream{2, 3} {
		d.stepCurrent(event{kind: streamLost, stream: number, serving: true, eventExtra: &eventExtra{reason: Reason{StreamLost, transport.ErrPeerClosed}}})
	}
	d.wantEnded(3)
	d.wantNothing("what is being served goes on")
	d.handled(first)
	d.wantReply()
	if fx := d.want(serve); fx.incoming != last {
		t.Fatalf("the request of stream %d is served, want that of stream 4", fx.incoming.key.stream)
	}
}

// A handler whose request was cancelled before it could start does not start, on the goroutine of the link or on
// a worker. Nor does one whose time has passed meanwhile; that one is refused. The Auditor is told of both.
//
// Guarantees: G-0071.1, G-0084.1, G-0084.3
func TestHandlerThatIsNotWantedDoesNotStart(t *testing.T) {
	for name, test := range map[string]struct {
		here    bool
		startBy instant // 0: the request is cancelled
	}{
		"cancelled, on the goroutine of the link": {true, 0},
		"cancelled, on a worker":                  {false, 0},
		"late, on the goroutine of the link":      {true, 1},
		"late, on a worker":                       {false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, r := readyReceiver(t, func(context.Context, *Incoming) { t.Error("the handler was called") })
				auditor := &endedRequests{Handler: l.own.handler}
				l.own.handler = auditor
				l.unpark()
				advance(1)
				in := r.incoming(transport.Main, &jsonrpc.Message{ID: jsonrpc.IntegerID(1), Method: "m"}, 0, source{})
				w := &worker{requests: make(chan served, 1)}
				if l.options.Wheel.workers.add(w); test.here {
					l.buffers.pace, l.buffers.keepUpTo = 1, 1
				}
				l.serve(in, test.startBy)
				if test.startBy == 0 {
					in.serving.cancel(ErrPeerCancelled)
				}
				if kept := l.takeKept(served{}); (kept.Incoming != nil) != test.here {
					t.Fatalf("kept for the goroutine of the link: %v, want %v", !test.here, test.here)
				} else if test.here {
					l.serveOne(kept)
				}
				go w.serveAll()
				synctest.Wait()
				events := taken(l)
				for _, ev := range events {
					if refused := bytes.Contains(ev.payload, []byte("-32050")); ev.kind == handled && refused != (test.startBy != 0) {
						t.Errorf("the answer is %q, want a refusal only of the late request", ev.payload)
					}
				}
				if l.stepAll(events); l.tasks.n != 0 {
					t.Errorf("%d tasks are left, want none", l.tasks.n)
				}
				if told := auditor.told; len(told) != 1 || told[0] != in {
					t.Errorf("the Auditor was told of %d requests, want this one", len(told))
				}
				finish(l)
			})
		})
	}
}

// TestAStreamIsServedWhileTheConnDrains checks that the handler of a stream starts although the Conn drains, and can end the stream in
// good order; one that was cancelled for another reason does not start.
//
// Guarantees: G-0020.7
func TestAStreamIsServedWhileTheConnDrains(t *testing.T) {
	gone := errors.New("gone")
	for why, want := range map[error]error{ErrDraining: nil, gone: gone} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if got := (&served{Incoming: &Incoming{streaming: true}, ctx: ctx}).unwanted(1, time.Second); !errors.Is(got, want) {
			t.Errorf("a request that ends because of %v: got %v, want %v", why, got, want)
		}
	}
}
