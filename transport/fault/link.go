package fault

import (
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A link stands between the link it wraps and that one's receiver. Its pump
// alone calls the receiver. The wrapped link is called with out.mu held, so by
// one goroutine at a time; what it reports meanwhile is only noted.
type link struct {
	inner  transport.Link
	plan   *Plan
	number int
	record *record
	to     transport.Receiver // set by Bind

	out outbound
	in  inbound

	halfOpen atomic.Bool
	heard    atomic.Uint64 // when it was last asked, and not half open
	closing  atomic.Bool
	bound    atomic.Bool
	death    atomic.Pointer[InjectedError] // set once the link dies by a fault
	wake     chan struct{}                 // of the pump; capacity one
	over     chan struct{}                 // closed when the pump has ended
}

func newLink(inner transport.Link, plan *Plan, number int, r *record) *link {
	l := &link{
		inner: inner, plan: plan, number: number, record: r,
		wake: make(chan struct{}, 1), over: make(chan struct{}),
	}
	l.out.link, l.out.flushed = l, make(chan struct{})
	l.in.credit = make(map[transport.Stream]int)
	return l
}

// Bind starts the pump, which ends with the link's loss.
func (l *link) Bind(r transport.Receiver) {
	l.to = r
	l.bound.Store(true)
	go newPump(l).run()
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	l.inner.Bind((*arriving)(l))
}

func (l *link) Send(o transport.Outbound) error { return l.out.send(o) }

func (l *link) Grant(stream transport.Stream, frames int) {
	l.in.grant(stream, frames)
	l.rouse()
}

// Resume leaves it to the pump whether the stream was cut here or further on.
func (l *link) Resume(stream transport.Stream) {
	l.in.arrive(arrival{kind: streamResumed, stream: stream})
	l.rouse()
}

func (l *link) End(stream transport.Stream) {
	if stream == transport.Main {
		return
	}
	l.in.arrive(arrival{kind: streamEnded, stream: stream})
	l.out.end(stream)
}

// Close flushes what is held back, as far as a stall lets it, and closes the
// wrapped link with what is left of the grace.
func (l *link) Close(grace time.Duration) error {
	began := time.Now()
	l.closing.Store(true)
	l.out.close()
	l.rouse()
	if l.bound.Load() {
		l.awaitFlush(grace)
	}
	if l.plan.SlowClose > 0 {
		l.record.add(Entry{Link: l.number, Kind: SlowClose})
		slow := time.NewTimer(l.plan.SlowClose)
		<-slow.C
	}
	err := l.inner.Close(max(grace-time.Since(began), 0))
	if l.bound.Load() {
		l.rouse()
		<-l.over
	}
	return err
}

func (l *link) awaitFlush(grace time.Duration) {
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-l.out.flushed:
	case <-l.over:
	case <-patience.C:
	}
}

// die loses the link, once. The pump does it.
func (l *link) die(e Entry) {
	if !l.closing.Load() && l.death.CompareAndSwap(nil, injected(e)) {
		l.record.add(e)
		l.rouse()
	}
}

// rouse has the pump look at everything once more.
func (l *link) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// arriving is a link as the receiver of the one it wraps. It notes what comes
// for the pump, and returns.
type arriving link

func (a *arriving) note(x arrival) {
	l := (*link)(a)
	l.in.arrive(x)
	l.rouse()
}

func (a *arriving) Receive(in transport.Inbound) {
	a.note(arrival{kind: received, stream: in.Stream, in: in})
}

func (a *arriving) StreamOpened(stream transport.Stream, tag transport.Tag) {
	a.note(arrival{kind: streamOpened, stream: stream, tag: tag})
}

func (a *arriving) StreamLost(loss transport.StreamLoss) {
	a.note(arrival{kind: streamLost, stream: loss.Stream, streamLoss: loss})
}

func (a *arriving) Writable()                  { a.note(arrival{kind: writable}) }
func (a *arriving) Failed(f transport.Failure) { a.note(arrival{kind: failed, failure: f}) }
func (a *arriving) Ended()                     { a.note(arrival{kind: ended}) }
func (a *arriving) Lost(loss transport.Loss)   { a.note(arrival{kind: lost, loss: loss}) }
