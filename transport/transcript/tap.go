package transcript

import (
	"context"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/transport"
)

// A Kind says what an Entry reports.
type Kind uint8

// The kinds of entries. They correspond to the methods of transport.Link and
// transport.Receiver.
const (
	Opened       Kind = iota // a link was opened
	Sent                     // a frame is about to be sent
	Refused                  // the link did not accept the last frame that the same goroutine sent
	Failed                   // the link accepted a frame but did not send it
	Received                 // a frame came in
	Skipped                  // a frame came in, and the link refused it
	StreamOpened             // a stream other than Main began
	StreamLost               // a stream ended or broke off
	Ended                    // the peer will send nothing more
	Lost                     // the link ended
)

var kinds = [...]string{"opened", "sent", "refused", "failed", "received", "skipped", "stream opened", "stream lost", "ended", "lost"}

func (k Kind) String() string { return kinds[k] }

// An Entry is one frame, or one event, of a link.
type Entry struct {
	Kind   Kind
	Link   int // counted from 1, in the order in which the links were opened
	Stream transport.Stream
	Frame  []byte          // for Sent, Refused and Received; observers must not keep or change it
	Err    error           // why; nil for frames and for Opened, StreamOpened and Ended
	Unsent []transport.Tag // for Failed and Lost: the frames that were certainly not sent
	Tag    transport.Tag   // for Sent and Refused
}

// Tap returns a transport that wraps inner and reports every frame and event to observe.
// It reports a sent frame before the link delivers it, and everything else before the
// receiver gets it. It reports the entries of one stream and direction in order, and may
// otherwise call observe from several goroutines at the same time. The link waits until
// observe returns. So observe must not call the link.
func Tap(inner transport.Transport, observe func(Entry)) transport.Transport {
	return &tap{inner: inner, observe: observe}
}

type tap struct {
	inner   transport.Transport
	observe func(Entry)
	links   atomic.Int64
}

func (t *tap) Open(ctx context.Context) (transport.Link, error) {
	link, err := t.inner.Open(ctx)
	if err != nil {
		return nil, err
	}
	return TapLink(link, int(t.links.Add(1)), t.observe), nil
}

// Unwrap keeps the facts about inner, and what else it can do.
func (t *tap) Unwrap() transport.Transport { return t.inner }

// TapLink is Tap for one link, for instance that of an acceptor. Its entries have the
// given number.
func TapLink(inner transport.Link, number int, observe func(Entry)) transport.Link {
	observe(Entry{Kind: Opened, Link: number})
	return &tapped{Link: inner, number: number, observe: observe}
}

// A tapped link passes everything on between a link and its user, and reports it.
type tapped struct {
	transport.Link
	number   int
	observe  func(Entry)
	receiver transport.Receiver
}

func (l *tapped) Bind(r transport.Receiver) {
	l.receiver = r
	l.Link.Bind((*receiving)(l))
}

func (l *tapped) Send(o transport.Outbound) error {
	e := Entry{Kind: Sent, Link: l.number, Stream: o.Stream, Tag: o.Tag, Frame: o.Frame}
	l.observe(e)
	err := l.Link.Send(o)
	if err != nil { // the frame is still the caller's
		e.Kind, e.Err = Refused, err
		l.observe(e)
	}
	return err
}

// Unwrap keeps the facts about the link, and what else it can do.
func (l *tapped) Unwrap() transport.Link { return l.Link }

// receiving is a tapped link as the receiver of the link behind it. It is no Runner, and
// hides whether its own receiver is one, because it has to see every stream that opens.
type receiving tapped

func (l *receiving) Receive(in transport.Inbound) {
	e := Entry{Kind: Received, Link: l.number, Stream: in.Stream, Frame: in.Frame, Err: in.Err}
	if in.Err != nil {
		e.Kind = Skipped
	}
	l.observe(e)
	l.receiver.Receive(in)
}

func (l *receiving) StreamOpened(s transport.Stream, tag transport.Tag) {
	l.observe(Entry{Kind: StreamOpened, Link: l.number, Stream: s, Tag: tag})
	l.receiver.StreamOpened(s, tag)
}

func (l *receiving) StreamLost(loss transport.StreamLoss) {
	l.observe(Entry{Kind: StreamLost, Link: l.number, Stream: loss.Stream, Err: loss.Reason})
	l.receiver.StreamLost(loss)
}

func (l *receiving) Writable() { l.receiver.Writable() }

func (l *receiving) Failed(f transport.Failure) {
	e := Entry{Kind: Failed, Link: l.number, Tag: f.Tag, Err: f.Err}
	if f.Unsent {
		e.Unsent = []transport.Tag{f.Tag}
	}
	l.observe(e)
	l.receiver.Failed(f)
}

// Doubt implements transport.Doubter. The failure of the message is recorded.
func (l *receiving) Doubt(tag transport.Tag, why error) {
	if doubter, ok := transport.As[transport.Doubter](l.receiver); ok {
		doubter.Doubt(tag, why)
	}
}

func (l *receiving) Ended() {
	l.observe(Entry{Kind: Ended, Link: l.number})
	l.receiver.Ended()
}

func (l *receiving) Lost(loss transport.Loss) {
	l.observe(Entry{Kind: Lost, Link: l.number, Err: loss.Reason, Unsent: loss.Unsent})
	l.receiver.Lost(loss)
}
