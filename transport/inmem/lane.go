package inmem

import (
	"sync"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/queue"
)

// A lane is one direction of a pipe: the frames on their way, and the receiver
// at its end. Every call to that receiver is made with the lane's mutex held,
// which gives it order and silence after its loss. No mutex is taken while
// another lane's is held, so the two directions cannot deadlock.
type lane struct {
	mu      sync.Mutex
	queue   queue.Queue
	limit   int // bytes of one frame
	credit  int // positive only while the queue is empty
	to      transport.Receiver
	shut    bool            // its sender has called Close
	cut     bool            // the pipe is over
	loss    *transport.Loss // what the receiver was told, or will be when it is bound
	drained chan struct{}   // made by close, closed once nothing is queued
}

func (l *lane) bind(to transport.Receiver) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = to
	if l.loss != nil {
		to.Lost(*l.loss)
	}
}

func (l *lane) send(o transport.Outbound) error {
	if len(o.Frame) > l.limit {
		return &transport.OversizedError{Limit: l.limit, Size: len(o.Frame)}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.shut || l.cut:
		return transport.ErrClosed
	case l.credit > 0:
		l.deliver(o)
	case !l.queue.Push(o):
		return transport.ErrBusy
	}
	return nil
}

// grant delivers what is queued against n more credits, and reports whether
// that made room for a frame the sender was refused.
func (l *lane) grant(n int) (relieved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return false
	}
	for l.credit += n; l.credit > 0 && l.queue.Len() > 0; {
		next := l.queue.At(0)
		l.queue.Drop(1)
		l.deliver(next)
	}
	l.signalDrained()
	return l.queue.Relieved()
}

func (l *lane) deliver(o transport.Outbound) {
	l.credit--
	l.to.Receive(transport.Inbound{Stream: o.Stream, Frame: o.Frame})
}

// writable tells the lane's receiver that there is room in the other lane.
func (l *lane) writable() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut {
		l.to.Writable()
	}
}

// close accepts no more frames, and returns what is closed when all of those
// accepted have been delivered or given up.
func (l *lane) close() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = true
	if l.drained == nil {
		l.drained = make(chan struct{})
		l.signalDrained()
	}
	return l.drained
}

func (l *lane) signalDrained() {
	if l.drained == nil || l.queue.Len() > 0 {
		return
	}
	select {
	case <-l.drained:
	default:
		close(l.drained)
	}
}

// end stops the lane and returns the tags it has not delivered, and the reason
// its sender is told.
func (l *lane) end() (unsent []transport.Tag, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	unsent = l.queue.Tags()
	l.queue.Drop(l.queue.Len())
	l.signalDrained()
	if l.shut {
		return unsent, transport.ErrClosed
	}
	return unsent, transport.ErrPeerClosed
}

// lose tells the lane's receiver, now or when it is bound, that the pipe is
// over.
func (l *lane) lose(loss transport.Loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loss = &loss
	if l.to != nil {
		l.to.Lost(loss)
	}
}
