package proptest

import (
	"context"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// An observer is told what passes through a transport. Its methods may be
// called from several goroutines at once.
type observer interface {
	// opened numbers a link, from 1.
	opened() (number int)

	// sent notes a message before the link may deliver it, and returns what
	// takes that back, should the link not accept it.
	sent(link int, m *jsonrpc.Message) (undo func())

	// received notes a frame before it is delivered; err is why it is no message.
	received(m *jsonrpc.Message, err error)

	// notSent notes what never left, although it was accepted.
	notSent(link int, tags ...transport.Tag)
}

// watch returns a transport that tells an observer what passes.
func watch(inner transport.Transport, by observer) transport.Transport {
	return opening(func(ctx context.Context) (transport.Link, error) {
		link, err := inner.Open(ctx)
		if err != nil {
			return nil, err
		}
		return &watched{Link: link, by: by, number: by.opened()}, nil
	})
}

// opening is a transport made of a function.
type opening func(context.Context) (transport.Link, error)

func (o opening) Open(ctx context.Context) (transport.Link, error) { return o(ctx) }

// A watched link tells its observer what passes.
type watched struct {
	transport.Link
	by       observer
	number   int
	receiver transport.Receiver
}

func (l *watched) Bind(r transport.Receiver) {
	l.receiver = r
	l.Link.Bind((*watching)(l))
}

func (l *watched) Send(o transport.Outbound) error {
	m, decodeErr := jsonrpc.Decode(o.Frame, jsonrpc.Limits{}) // before the frame is the link's
	undo := func() {}
	if decodeErr == nil {
		undo = l.by.sent(l.number, &m)
	}
	err := l.Link.Send(o)
	if err != nil {
		undo()
	}
	return err
}

// watching is a watched link as the receiver of the one behind it.
type watching watched

func (l *watching) Receive(in transport.Inbound) {
	m, err := jsonrpc.Message{}, in.Err
	if err == nil {
		m, err = jsonrpc.Decode(in.Frame, jsonrpc.Limits{})
	}
	l.by.received(&m, err)
	l.receiver.Receive(in)
}

func (l *watching) Failed(f transport.Failure) {
	if f.Unsent {
		l.by.notSent(l.number, f.Tag)
	}
	l.receiver.Failed(f)
}

func (l *watching) Lost(loss transport.Loss) {
	l.by.notSent(l.number, loss.Unsent...)
	l.receiver.Lost(loss)
}

func (l *watching) StreamOpened(s transport.Stream, tag transport.Tag) {
	l.receiver.StreamOpened(s, tag)
}
func (l *watching) StreamLost(loss transport.StreamLoss) { l.receiver.StreamLost(loss) }
func (l *watching) Writable()                            { l.receiver.Writable() }
func (l *watching) Ended()                               { l.receiver.Ended() }
