// Package peertest has the far side of a link for tests: a Peer whose frames the test writes and reads,
// and receivers for tests that look at little of what a link delivers. A Peer starts no goroutine: the
// link's goroutine calls it.
package peertest

import (
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
)

// An Ignore is a receiver that ignores everything. Others embed it for what they do not look at.
type Ignore struct{}

func (Ignore) Receive(transport.Inbound)                    {}
func (Ignore) Writable()                                    {}
func (Ignore) StreamOpened(transport.Stream, transport.Tag) {}
func (Ignore) StreamLost(transport.StreamLoss)              {}
func (Ignore) Failed(transport.Failure)                     {}
func (Ignore) Ended()                                       {}
func (Ignore) Lost(transport.Loss)                          {}

// Receive returns a receiver that passes each frame to a function, and ignores everything else.
func Receive(each func(transport.Inbound)) transport.Receiver { return receiving{each: each} }

type receiving struct {
	Ignore
	each func(transport.Inbound)
}

func (r receiving) Receive(in transport.Inbound) { r.each(in) }

// From returns a link all of whose messages come from one sender, as a transport says that knows who is at the other end (a login, a user
// of the operating system). Tests of what belongs to whom need it: a plain link names nobody.
func From(origin *transport.Origin, link transport.Link) transport.Link {
	return &fromLink{link, origin}
}

type fromLink struct {
	transport.Link
	origin *transport.Origin
}

func (l *fromLink) Bind(r transport.Receiver) { l.Link.Bind(&fromReceiver{r, l.origin}) }

// fromReceiver stands before the receiver, since the origin is a matter of each message.
type fromReceiver struct {
	transport.Receiver
	origin *transport.Origin
}

func (r *fromReceiver) Receive(in transport.Inbound) {
	in.Origin = r.origin
	r.Receiver.Receive(in)
}

// A Peer exchanges single frames over a link.
type Peer struct {
	Ignore
	T      testing.TB
	Link   transport.Link
	Frames chan string // what the other side sends; closed when the link is lost
}

// frames is how many frames a Peer takes before the test reads them.
const frames = 100

// Bind returns a peer that is bound to a link, with credit for all frames that it has room for.
func Bind(t testing.TB, link transport.Link) *Peer {
	p := &Peer{T: t, Link: link, Frames: make(chan string, frames)}
	link.Bind(p)
	link.Grant(transport.Main, frames)
	return p
}

// Receive implements transport.Receiver.
func (p *Peer) Receive(in transport.Inbound) { p.Frames <- string(in.Frame) }

// Lost implements transport.Receiver.
func (p *Peer) Lost(transport.Loss) { close(p.Frames) }

// Send sends frames.
func (p *Peer) Send(all ...string) {
	p.T.Helper()
	for _, frame := range all {
		if err := p.Link.Send(transport.Outbound{Frame: []byte(frame)}); err != nil {
			p.T.Fatal(err)
		}
	}
}

// Next returns the next frame of the other side. It fails the test if none comes.
func (p *Peer) Next() string {
	p.T.Helper()
	frame := testenv.Receive(p.T, p.Frames, "a frame")
	if frame == "" {
		p.T.Fatal("the link was lost, want a frame")
	}
	return frame
}

// Want checks that the next frame contains every fragment.
func (p *Peer) Want(fragments ...string) {
	p.T.Helper()
	frame := p.Next()
	for _, fragment := range fragments {
		if !strings.Contains(frame, fragment) {
			p.T.Errorf("got %s\nwant %s in it", frame, fragment)
		}
	}
}
