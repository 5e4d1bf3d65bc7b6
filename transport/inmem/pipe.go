package inmem

import (
	"fmt"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/queue"
)

// Options bound a pipe. Each direction has its own queue.
type Options struct {
	MaxFrame    int // bytes of one frame; default 16 MiB
	QueueFrames int // default 256
	QueueBytes  int // default 16 MiB; one frame always fits an empty queue
}

// Pipe returns two links bound together: what is sent on one is received on
// the other. It has no goroutine of its own. A frame is handed over, not
// copied: in the goroutine of the Send when the receiver has credit, else in
// the goroutine of the Grant that lets it through.
//
// Close waits, within its grace, until the peer has taken what is queued for
// it. Then its own side is lost with transport.ErrClosed and the peer's with
// transport.ErrPeerClosed, each with the tags of what the other never took.
func Pipe(options Options) (a, b transport.Link) {
	p := &pipe{toA: newLane(options), toB: newLane(options)}
	p.a = link{pipe: p, in: &p.toA, out: &p.toB}
	p.b = link{pipe: p, in: &p.toB, out: &p.toA}
	return &p.a, &p.b
}

type pipe struct {
	toA, toB lane
	a, b     link
	over     sync.Once
}

func newLane(o Options) lane {
	limit := o.MaxFrame
	if limit <= 0 {
		limit = 16 << 20
	}
	return lane{limit: limit, queue: queue.Queue{Frames: o.QueueFrames, Bytes: o.QueueBytes}}
}

// end ends the pipe for both sides, once; later calls wait for the first.
func (p *pipe) end() {
	p.over.Do(func() {
		unsentByB, reasonForB := p.toA.end()
		unsentByA, reasonForA := p.toB.end()
		p.toA.lose(transport.Loss{Reason: reasonForA, Unsent: unsentByA})
		p.toB.lose(transport.Loss{Reason: reasonForB, Unsent: unsentByB})
	})
}

// A link is one end of a pipe.
type link struct {
	pipe    *pipe
	in, out *lane
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

// Resume implements transport.Link. Main is never lost while the link lives.
func (l *link) Resume(transport.Stream) {}

// End implements transport.Link. There is no stream but Main.
func (l *link) End(transport.Stream) {}

func (l *link) Close(grace time.Duration) error {
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-l.out.close():
	case <-patience.C:
	}
	l.pipe.end()
	return nil
}
