package fault

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A link wraps another link. Only its pump calls the receiver. It calls the wrapped link with out.mu held, so from one
// goroutine at a time; the calls of the wrapped link are queued for the pump.
type link struct {
	inner  transport.Link
	plan   *Plan
	number int
	record *record
	to     transport.Receiver // the receiver; set by Bind

	out outbound
	in  inbound

	halfOpen atomic.Bool
	lastRead atomic.Pointer[time.Time] // the LastRead before the link was half open; nil: none
	closing  atomic.Bool
	bound    atomic.Bool
	death    atomic.Pointer[InjectedError] // the fault that has ended the link; nil if none has
	wake     chan struct{}                 // wakes the pump; capacity one
	over     chan struct{}                 // closed when the pump has ended
}

func newLink(inner transport.Link, plan *Plan, number int, r *record) *link {
	l := &link{
		inner: inner, plan: plan, number: number, record: r,
		wake: make(chan struct{}, 1), over: make(chan struct{}),
	}
	l.out.link, l.out.flushed, l.out.doubled = l, make(chan struct{}), map[transport.Tag]bool{}
	l.in.credit = make(map[transport.Stream]int)
	return l
}

// Bind starts the pump, which ends when it has reported the loss.
func (l *link) Bind(r transport.Receiver) {
	l.to = r
	l.bound.Store(true)
	go newPump(l).run()
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	l.inner.Bind((*innerReceiver)(l))
}

func (l *link) Send(o transport.Outbound) error { return l.out.send(o) }

func (l *link) Grant(stream transport.Stream, frames int) {
	l.in.grant(stream, frames)
	l.rouse()
}

// Resume leaves the work to the pump. The pump itself resumes a stream that a fault has
// cut, and passes Resume of any other stream on to the wrapped link.
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

// Close sends what is held back, unless a stall prevents it, and closes the
// wrapped link with the rest of the grace.
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
	timeout := time.NewTimer(grace)
	defer timeout.Stop()
	select {
	case <-l.out.flushed:
	case <-l.over:
	case <-timeout.C:
	}
}

// die makes the pump lose the link, once.
func (l *link) die(e Entry) {
	if !l.closing.Load() && l.death.CompareAndSwap(nil, injected(e)) {
		l.record.add(e)
		l.rouse()
	}
}

// rouse makes the pump run another turn.
func (l *link) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // the pump has a token already
	}
}

// An innerReceiver is a link as the receiver of the link that it wraps. It queues
// every call for the pump.
type innerReceiver link

func (a *innerReceiver) queue(x arrival) {
	l := (*link)(a)
	l.in.arrive(x)
	l.rouse()
}

func (a *innerReceiver) Receive(in transport.Inbound) {
	if in.Room != nil { // a fault may lose the frame
		in.Room.Release()
		in.Room = nil
	}
	a.queue(arrival{kind: received, stream: in.Stream, in: in})
}

func (a *innerReceiver) StreamOpened(stream transport.Stream, tag transport.Tag) {
	a.queue(arrival{kind: streamOpened, stream: stream, tag: tag})
}

func (a *innerReceiver) StreamLost(loss transport.StreamLoss) {
	a.queue(arrival{kind: streamLost, stream: loss.Stream, streamLoss: loss})
}

func (a *innerReceiver) Writable()                  { a.queue(arrival{kind: writable}) }
func (a *innerReceiver) Failed(f transport.Failure) { a.queue(arrival{kind: failed, failure: f}) }
func (a *innerReceiver) Ended()                     { a.queue(arrival{kind: ended}) }
func (a *innerReceiver) Lost(loss transport.Loss)   { a.queue(arrival{kind: lost, loss: loss}) }

// Doubt implements transport.Doubter.
func (a *innerReceiver) Doubt(tag transport.Tag, why error) {
	a.queue(arrival{kind: doubted, tag: tag, why: why})
}

// Keep implements transport.Keeper. A link has no Unwrap, because it delays what the wrapped
// link sends and delivers: to flush that one would be too early, and to close it too.
func (l *link) Keep(state []byte) {
	if keeper, ok := transport.As[transport.Keeper](l.inner); ok {
		keeper.Keep(state)
	}
}

// Kept implements transport.Keeper.
func (l *link) Kept() (state []byte, continues bool) {
	if keeper, ok := transport.As[transport.Keeper](l.inner); ok {
		return keeper.Kept()
	}
	return nil, false
}

// LinkTraits implements transport.LinkDescriber. LastRead stands still while the link is half
// open.
func (l *link) LinkTraits() transport.LinkTraits {
	traits := transport.LinkTraitsOf(l.inner)
	if !traits.RecordsReads {
		return traits
	}
	if !l.halfOpen.Load() {
		l.lastRead.Store(&traits.LastRead)
	}
	if lastRead := l.lastRead.Load(); lastRead != nil {
		traits.LastRead = *lastRead
	} else {
		traits.LastRead = time.Time{}
	}
	return traits
}

// An arrival is one call of the wrapped link to its receiver, or an End or Resume
// of a stream.
type arrival struct {
	kind       arrivalKind
	stream     transport.Stream
	tag        transport.Tag
	in         transport.Inbound
	streamLoss transport.StreamLoss
	cut        bool // streamLost: CutStream is the reason, so the pump itself resumes the stream
	failure    transport.Failure
	why        error // doubted
	loss       transport.Loss
}

type arrivalKind uint8

const (
	received arrivalKind = iota
	streamOpened
	streamLost
	streamEnded   // this side has ended the stream
	streamResumed // Resume was called
	writable
	failed
	doubted
	ended
	lost
)

// inbound queues arrivals and credit for the pump. The frames in it are bounded
// by the credit of the wrapped link.
type inbound struct {
	mu       sync.Mutex
	arrivals []arrival
	credit   map[transport.Stream]int // credit granted since the pump last took it
}

func (in *inbound) arrive(a arrival) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.arrivals = append(in.arrivals, a)
}

func (in *inbound) grant(stream transport.Stream, frames int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.credit[stream] += frames
}

func (in *inbound) take() (arrivals []arrival, credit map[transport.Stream]int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	arrivals, credit = in.arrivals, in.credit
	in.arrivals, in.credit = nil, make(map[transport.Stream]int)
	return arrivals, credit
}

// An inboundStream is the state of one stream.
type inboundStream struct {
	credit int       // how much credit of the receiver is unused
	asked  int       // how much credit of the wrapped link is unused
	ready  []arrival // what to deliver, in this order; frames need credit
	tag    transport.Tag
	cut    bool // CutStream has hit the stream: nothing is delivered before Resume
	muted  bool // LoseStream or MuteStream has hit the stream: nothing arrives any more
}

// A late frame is held back until enough others have overtaken it, or time has
// passed.
type late struct {
	arrival
	after int // the number of the frame that releases it
	due   time.Time
}

// maxHeld bounds the frames held back in each direction. While that many are
// held, the wrapped link gets no credit.
const maxHeld = 256
