package command

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// forward passes frames between this process's standard streams and a server, until
// either ends.
func forward(ctx context.Context, server transport.Transport) error {
	to, err := server.Open(ctx)
	if err != nil {
		return connect.Cause(err)
	}
	host, err := new(stdio.Server).Open(ctx)
	if err != nil {
		return errors.Join(err, to.Close(process.EndGrace))
	}
	up, down := newForwarder(to), newForwarder(host) // to the server, and to the host
	up.reverse, down.reverse = down, up
	host.Bind(up)
	to.Bind(down)
	host.Grant(transport.Main, 1)
	to.Grant(transport.Main, 1)
	var lost error
	select {
	case <-up.ended: // the host sends nothing more: the server answers the remaining requests and ends
		lost = to.Close(process.FinishGrace)
	case lost = <-down.lost:
		lost = errors.New("the server has ended: " + connect.Ending(lost))
	case broken := <-up.lost: // the host does not read any more
		lost = errors.Join(fmt.Errorf("the host is gone: %w", broken), to.Close(process.EndGrace))
	case <-ctx.Done():
		lost = errors.Join(context.Cause(ctx), to.Close(process.EndGrace))
	}
	return errors.Join(lost, host.Close(process.EndGrace))
}

// A forwarder is a receiver that sends on what it receives. It takes one frame at a time: while
// the other link is busy, it grants no credit.
type forwarder struct {
	to      transport.Link
	reverse *forwarder // where frames come from

	mu      sync.Mutex
	waiting []byte // a frame that found no room

	ended chan struct{} // closed when nothing more comes in, though the link lives
	once  sync.Once
	lost  chan error
}

// newForwarder returns a forwarder to a link. Its channels never block the links: Lost comes once.
func newForwarder(to transport.Link) *forwarder {
	return &forwarder{to: to, ended: make(chan struct{}), lost: make(chan error, 1)}
}

// Receive implements transport.Receiver. A frame that is too long is lost; the link
// has recorded that in the transcript.
func (f *forwarder) Receive(in transport.Inbound) {
	if in.Err != nil {
		f.grantNext()
		return
	}
	f.mu.Lock()
	f.waiting = in.Frame
	f.mu.Unlock()
	f.sendWaiting()
}

// sendWaiting sends the waiting frame, unless the link is busy.
func (f *forwarder) sendWaiting() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == nil || errors.Is(f.to.Send(transport.Outbound{Frame: f.waiting}), transport.ErrBusy) {
		return
	}
	f.waiting = nil // sent, or the link that it was for is gone
	f.grantNext()
}

// grantNext grants credit for the next frame.
func (f *forwarder) grantNext() { f.reverse.to.Grant(transport.Main, 1) }

// Writable implements transport.Receiver. It sends the waiting frame of the other direction.
func (f *forwarder) Writable() { f.reverse.sendWaiting() }

// Ended implements transport.Receiver.
func (f *forwarder) Ended() { f.once.Do(func() { close(f.ended) }) }

// Lost implements transport.Receiver.
func (f *forwarder) Lost(loss transport.Loss) { f.lost <- loss.Reason }

// StreamOpened implements transport.Receiver.
func (*forwarder) StreamOpened(transport.Stream, transport.Tag) {}

// StreamLost implements transport.Receiver.
func (*forwarder) StreamLost(transport.StreamLoss) {}

// Failed implements transport.Receiver.
func (*forwarder) Failed(transport.Failure) {}
