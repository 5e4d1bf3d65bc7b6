// Package inmem connects a client and a server in one process. It passes frames on
// without copying them, and has no goroutine. Use it for tests, and for servers that
// are part of your program.
package inmem

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// Options limit a pipe. Each direction has a separate queue.
type Options struct {
	MaxFrame    int // the maximum size of a frame, in bytes; default: 16 MiB
	QueueFrames int // how many frames may be queued; default: 256
	QueueBytes  int // how many bytes may be queued; default: 16 MiB; one frame always fits an empty queue
}

// New returns a transport. Each Open creates a pipe, calls accept with one end, and
// returns the other end after accept has returned. So accept must not block: the caller
// of Open waits for it, even if its context ends. Both accept and the caller of Open
// must close their end. New panics if accept is nil.
func New(accept func(transport.Link), options Options) transport.Transport {
	if accept == nil {
		panic("inmem: New needs an accept function")
	}
	return &acceptor{accept, options}
}

type acceptor struct {
	accept  func(transport.Link)
	options Options
}

// Traits implements transport.Describer.
func (a *acceptor) Traits() transport.Traits { return transport.Traits{OpensAtOnce: true} }

func (a *acceptor) Open(ctx context.Context) (transport.Link, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	ours, theirs := Pipe(a.options)
	a.accept(theirs)
	return ours, nil
}

// Pipe returns two connected links: each receives what the other sends. Frames are not
// copied. If the receiver has credit, it receives a frame on the goroutine that calls
// Send, otherwise on the goroutine that grants the credit. A receiver that is a
// transport.Runner processes the frame on the goroutine that calls Flush.
//
// Close waits, for at most its grace, until the peer has received what is queued for
// it. Then its own link is lost with transport.ErrClosed, and the peer's link with
// transport.ErrPeerClosed. Each Loss lists the tags of the frames that the other side
// did not receive.
func Pipe(options Options) (a, b transport.Link) {
	p := &pipe{toA: newDirection(options), toB: newDirection(options)}
	p.a = link{pipe: p, in: &p.toA, out: &p.toB}
	p.b = link{pipe: p, in: &p.toB, out: &p.toA}
	return &p.a, &p.b
}

type pipe struct {
	toA, toB direction
	a, b     link
	over     sync.Once
}

// end ends the pipe for both sides, once. Later calls wait for the first. The sender of
// the direction flushed is going to call Flush; nil: nobody is.
func (p *pipe) end(flushed *direction) {
	p.over.Do(func() {
		unsentByB, reasonForB := p.toA.end()
		unsentByA, reasonForA := p.toB.end()
		p.toA.lose(transport.Loss{Reason: reasonForA, Unsent: unsentByA}, flushed == &p.toA)
		p.toB.lose(transport.Loss{Reason: reasonForB, Unsent: unsentByB}, flushed == &p.toB)
	})
}

// A link is one end of a pipe.
type link struct {
	pipe    *pipe
	in, out *direction
}

func (l *link) Bind(r transport.Receiver) { l.in.bind(r) }

func (l *link) Send(o transport.Outbound) error {
	if o.Stream != transport.Main {
		return fmt.Errorf("inmem: send on stream %d: %w", o.Stream, transport.ErrNoRoute)
	}
	return l.out.send(o)
}

func (l *link) Grant(stream transport.Stream, frames int) {
	if stream == transport.Main && l.in.grant(frames) {
		l.out.writable()
	}
}

// Flush implements transport.Flusher: it has the peer work on what it was sent.
func (l *link) Flush(depth int) {
	if !l.out.lending.Load() {
		l.out.lending.Store(true)
	}
	if l.out.owed.Load() && l.out.owed.Swap(false) {
		l.out.runner.Work(depth + 1)
	}
}

// Resume implements transport.Link. Main is never lost while the link lives.
func (l *link) Resume(transport.Stream) {}

// End implements transport.Link. There is no stream but Main.
func (l *link) End(transport.Stream) {}

func (l *link) Close(grace time.Duration) error {
	drained := l.out.close()
	select {
	case <-drained:
	default:
		await(drained, grace)
	}
	l.pipe.end(nil)
	return nil
}

// CloseNow implements transport.Flusher.
func (l *link) CloseNow() bool {
	if !l.out.closeEmpty() {
		return false
	}
	l.pipe.end(l.out)
	return true
}

func await(drained <-chan struct{}, grace time.Duration) {
	timeout := time.NewTimer(grace)
	defer timeout.Stop()
	select {
	case <-drained:
	case <-timeout.C:
	}
}

// A direction is one half of a pipe: the frames under way, and the receiver at
// its end. It calls that receiver with its mutex held, so that the calls come one
// at a time and none follows the loss. No goroutine holds the mutexes of both
// directions, so that they cannot deadlock.
type direction struct {
	mu      sync.Mutex
	queue   parts.Queue
	limit   int // the maximum size of a frame, in bytes
	credit  int // positive only while the queue is empty
	to      transport.Receiver
	runner  transport.Runner // the receiver, if it is one
	lending atomic.Bool      // whether the sender calls Flush
	owed    atomic.Bool      // the runner was promised that Work is called
	shut    bool             // the sender has called Close
	over    bool             // the pipe has ended
	loss    *transport.Loss  // a loss that bind must report
	drained chan struct{}    // created by close; closed when the queue is empty
}

func newDirection(o Options) direction {
	limit := o.MaxFrame
	if limit <= 0 {
		limit = parts.DefaultMaxFrame
	}
	return direction{limit: limit, queue: parts.Queue{Frames: o.QueueFrames, Bytes: o.QueueBytes}}
}

func (d *direction) bind(to transport.Receiver) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = to
	d.runner, _ = transport.As[transport.Runner](to)
	if d.loss != nil {
		to.Lost(*d.loss)
	}
}

func (d *direction) send(o transport.Outbound) error {
	if len(o.Frame) > d.limit {
		return &transport.OversizedError{Limit: d.limit, Size: len(o.Frame)}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.shut || d.over:
		return transport.ErrClosed
	case d.credit > 0:
		d.deliver(o, d.runner != nil && d.lending.Load())
	case !d.queue.Push(o):
		return transport.ErrBusy
	}
	return nil
}

// grant delivers what is queued against n more credits. It reports whether a
// frame that was refused would fit now.
func (d *direction) grant(n int) (relieved bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return false
	}
	for d.credit += n; d.credit > 0 && d.queue.Len() > 0; {
		next := d.queue.At(0)
		d.queue.Drop(1)
		d.deliver(next, false)
	}
	d.signalDrained()
	return d.queue.Relieved()
}

func (d *direction) deliver(o transport.Outbound, work bool) {
	d.credit--
	d.to.Receive(transport.Inbound{Stream: o.Stream, Frame: o.Frame, Work: work})
	if work {
		d.owed.Store(true)
	}
}

// writable tells the receiver of this direction that the other one has room.
func (d *direction) writable() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		d.to.Writable()
	}
}

// close accepts no more frames. It returns a channel that is closed when all
// accepted frames were delivered or given up.
func (d *direction) close() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shut = true
	if d.drained == nil {
		d.drained = make(chan struct{})
		d.signalDrained()
	}
	return d.drained
}

// closeEmpty accepts no more frames, if all that were accepted are delivered. Else it does
// nothing and returns false.
func (d *direction) closeEmpty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queue.Len() > 0 {
		return false
	}
	d.shut = true
	return true
}

func (d *direction) signalDrained() {
	if d.drained == nil || d.queue.Len() > 0 {
		return
	}
	select {
	case <-d.drained:
	default:
		close(d.drained)
	}
}

// end stops the direction. It returns the tags that were not delivered, and the
// reason why the sender's link is lost.
func (d *direction) end() (unsent []transport.Tag, reason error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	unsent = d.queue.Tags()
	d.queue.Drop(d.queue.Len())
	d.signalDrained()
	if d.shut {
		return unsent, transport.ErrClosed
	}
	return unsent, transport.ErrPeerClosed
}

// lose reports the loss to the receiver, now or when there is one.
func (d *direction) lose(loss transport.Loss, flushed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.to == nil {
		d.loss = new(transport.Loss)
		*d.loss = loss
		return
	}
	if loss.Work = flushed && d.runner != nil && d.lending.Load(); loss.Work {
		d.owed.Store(true)
	}
	d.to.Lost(loss)
}
