package conn

import (
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// congested returns a Conn whose link takes no answers, so that credit waits.
func congested(t *testing.T) *driver {
	t.Helper()
	d := driveAcceptor(t, Options{})
	for range repliesHigh {
		d.busy(outboundFrame{reply: true})
	}
	return d
}

// relieve lets the link take the answers, and looks past them.
func (d *driver) relieve() {
	d.forget()
	d.own(event{kind: writable})
	d.effects = d.effects[repliesHigh:]
}

// Guarantees: G-0019.1
func TestStreamThatIsOverIsOwedNoCredit(t *testing.T) {
	d := congested(t)
	for _, number := range []transport.Stream{1, 2} {
		d.streamOpened(number, 0)
		d.own(event{kind: notified, incoming: &Incoming{}, stream: number, frames: 1})
	}
	d.streamLost(1)
	d.relieve()
	d.want(stallEnded)
	d.wantGrantOn(2, 1)
	d.wantNothing("the other is over")
	if owed := d.core.streams.owed; owed[:cap(owed)][0] != nil {
		t.Fatal("a stream that is owed nothing is kept alive")
	}
}

// Main has no end: what a transport calls its last frame is a frame like any.
//
// Guarantees: G-0019.1
func TestMainIsNeverComplete(t *testing.T) {
	d := driveReady(t, Options{})
	d.own(event{kind: notified, incoming: &Incoming{}, frames: 1, last: true})
	d.want(notify)
	d.wantGrantOn(transport.Main, 1)
}

// Guarantees: G-0019.3
func TestStreamsAreTakenUpWhenEachIsDue(t *testing.T) {
	d := driveReady(t, Options{})
	d.streamOpened(1, 0)
	d.streamOpened(2, 0)
	d.forget()
	d.streamCut(1, 2*time.Minute)
	d.streamCut(2, time.Minute)
	for _, number := range []transport.Stream{2, 1} {
		d.atDeadline()
		if fx := d.want(resumeStream); fx.stream != number {
			t.Fatalf("stream %d was taken up, want %d", fx.stream, number)
		}
		d.wantNothing("the other is not due")
	}
	if cut := d.core.streams.cut; cut[:cap(cut)][0] != nil {
		t.Fatal("a stream that was taken up is kept alive")
	}
}

// Guarantees: G-0019.3
func TestSecondCutDoesNotPutOffTheResumption(t *testing.T) {
	d := driveReady(t, Options{})
	d.streamCut(transport.Main, time.Minute)
	d.streamCut(transport.Main, time.Hour)
	d.atDeadline()
	d.want(resumeStream)
	if d.now != time.Second+time.Minute {
		t.Fatalf("it is taken up at %v", d.now)
	}
}

// Guarantees: G-0019.4
func TestAnswerThatEndsAnotherStreamEndsItsOwn(t *testing.T) {
	d := driveReady(t, Options{})
	d.call(1, 0)
	d.streamOpened(6, 1)
	d.streamOpened(7, 0)
	d.forget()
	d.own(event{kind: replied, id: 1, frames: 1, stream: 7, last: true})
	d.wantSettled(1, Answered, Sent)
	d.wantEnded(6)
	d.wantEnded(7)
}
