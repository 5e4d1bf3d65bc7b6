package stdio

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/transport"
)

// TestMain acts as a child instead of running tests if the environment says so.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		playRole(role)
		return
	}
	testenv.Once()
	goleak.VerifyTestMain(m)
}

// hangGuard limits how long a test waits for something that does not come.
const hangGuard = time.Minute

// bubble runs a test in virtual time, which stands still while the test waits for a lock. So the test is guarded in real time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	testenv.Within(t, "the test in virtual time ends", func() { synctest.Test(t, test) })
}

// frames is a receiver with room for everything that a test sends. received is closed
// when nothing more can come.
type frames struct {
	received chan []byte
	refused  chan error
	writable chan struct{}
	ended    chan struct{}
	lost     chan transport.Loss
}

func newFrames() *frames {
	return &frames{
		received: make(chan []byte, 4096),
		refused:  make(chan error, 4096),
		writable: make(chan struct{}, 4096),
		ended:    make(chan struct{}),
		lost:     make(chan transport.Loss, 1),
	}
}

func (f *frames) Receive(in transport.Inbound) {
	if in.Err != nil {
		f.refused <- in.Err
		return
	}
	f.received <- in.Frame
}

func (f *frames) Writable()                                  { f.writable <- struct{}{} }
func (*frames) StreamOpened(transport.Stream, transport.Tag) {}
func (*frames) StreamLost(transport.StreamLoss)              {}
func (f *frames) Failed(transport.Failure)                   {}
func (f *frames) Ended()                                     { close(f.ended); close(f.received) }

func (f *frames) Lost(loss transport.Loss) {
	f.lost <- loss
	select {
	case <-f.ended:
	default:
		close(f.received)
	}
}

// A peer is a link under test, and what it receives.
type peer struct {
	t testing.TB
	transport.Link
	*frames
}

// open opens a link, binds it, and grants credit for all frames of a test. It closes
// the link at the end of the test.
func open(t testing.TB, from transport.Transport) *peer {
	t.Helper()
	p := openWithoutCredit(t, from)
	p.Grant(transport.Main, cap(p.received))
	return p
}

func openWithoutCredit(t testing.TB, from transport.Transport) *peer {
	t.Helper()
	link, err := from.Open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, Link: link, frames: newFrames()}
	t.Cleanup(func() { closeWithin(t, link, 0) })
	link.Bind(p.frames)
	return p
}

func (p *peer) send(frame string) {
	p.t.Helper()
	if err := p.Send(transport.Outbound{Frame: []byte(frame)}); err != nil {
		p.t.Fatal(err)
	}
}

// fill sends tagged frames until the link is busy, and returns the last tag that was
// accepted.
func (p *peer) fill(size int) transport.Tag {
	p.t.Helper()
	for tag := transport.Tag(1); ; tag++ {
		err := p.Send(transport.Outbound{Tag: tag, Frame: make([]byte, size)})
		switch {
		case errors.Is(err, transport.ErrBusy):
			return tag - 1
		case err != nil:
			p.t.Fatal(err)
		}
	}
}

func (p *peer) want(frame string) {
	p.t.Helper()
	if got, ok := receive(p.t, p.received, "frame"); !ok || string(got) != frame {
		p.t.Fatalf("received %.80q, want %.80q", got, frame)
	}
}

func (p *peer) wantNothingMore() {
	p.t.Helper()
	if got, ok := receive(p.t, p.received, "end"); ok {
		p.t.Fatalf("received %.80q, want nothing more", got)
	}
}

func (p *peer) waitLoss() transport.Loss {
	p.t.Helper()
	loss, _ := receive(p.t, p.lost, "Lost")
	return loss
}

func (p *peer) close(grace time.Duration) {
	p.t.Helper()
	if err := closeWithin(p.t, p.Link, grace); err != nil {
		p.t.Fatal(err)
	}
}

// closeWithin closes a link. After a failure, which may be that it does not close, it waits for a shorter time.
func closeWithin(t testing.TB, link transport.Link, grace time.Duration) error {
	t.Helper()
	patience := hangGuard
	if t.Failed() {
		patience = forcedWait
	}
	closed := make(chan error, 1)
	go func() { closed <- link.Close(grace) }()
	guard := time.NewTimer(patience)
	defer guard.Stop()
	select {
	case err := <-closed:
		return err
	case <-guard.C:
		t.Errorf("the link has not closed within %v", patience)
		return nil
	}
}

func receive[T any](t testing.TB, from <-chan T, what string) (T, bool) {
	t.Helper()
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	select {
	case v, ok := <-from:
		return v, ok
	case <-guard.C:
		t.Fatalf("got no %s in time", what)
		panic("unreachable")
	}
}

// lossAs returns the reason of the loss as a typed error.
func lossAs[E error](p *peer) E {
	p.t.Helper()
	var typed E
	if loss := p.waitLoss(); !errors.As(loss.Reason, &typed) {
		p.t.Fatalf("lost with %T %v, want %T", loss.Reason, loss.Reason, typed)
	}
	return typed
}
