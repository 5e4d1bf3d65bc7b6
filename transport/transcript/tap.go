package transcript

import (
	"context"
	"sync/atomic"
	"time"

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

// Check implements transport.Checked.
func (t *tap) Check() error {
	if checked, ok := t.inner.(transport.Checked); ok {
		return checked.Check()
	}
	return nil
}

// Name implements transport.Named.
func (t *tap) Name() string {
	if named, ok := t.inner.(transport.Named); ok {
		return named.Name()
	}
	return ""
}

// Endpoint implements transport.Located.
func (t *tap) Endpoint() string {
	if located, ok := t.inner.(transport.Located); ok {
		return located.Endpoint()
	}
	return ""
}

// StartsProcess implements transport.ProcessStarter.
func (t *tap) StartsProcess() bool {
	starter, ok := t.inner.(transport.ProcessStarter)
	return ok && starter.StartsProcess()
}

// MirrorsArguments implements transport.ArgumentMirror.
func (t *tap) MirrorsArguments() bool {
	mirror, ok := t.inner.(transport.ArgumentMirror)
	return ok && mirror.MirrorsArguments()
}

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

// Requests implements transport.RequestPerMessage.
func (l *tapped) Requests() bool {
	requesting, ok := l.Link.(transport.RequestPerMessage)
	return ok && requesting.Requests()
}

// Heard implements transport.ActivityRecorder.
func (l *tapped) Heard() (last time.Time, ok bool) {
	if hearing, ok := l.Link.(transport.ActivityRecorder); ok {
		return hearing.Heard()
	}
	return time.Time{}, false
}

// Keep implements transport.Keeper.
func (l *tapped) Keep(state []byte) {
	if keeper, ok := l.Link.(transport.Keeper); ok {
		keeper.Keep(state)
	}
}

// Kept implements transport.Keeper.
func (l *tapped) Kept() (state []byte, continues bool) {
	if keeper, ok := l.Link.(transport.Keeper); ok {
		return keeper.Kept()
	}
	return nil, false
}

// Network implements transport.Networked.
func (l *tapped) Network() transport.Network {
	if networked, ok := l.Link.(transport.Networked); ok {
		return networked.Network()
	}
	return transport.Network{}
}

// receiving is a tapped link as the receiver of the link behind it.
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
	if doubter, ok := l.receiver.(transport.Doubter); ok {
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
