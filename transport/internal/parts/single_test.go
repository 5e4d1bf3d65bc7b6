package parts_test

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// A collecting receiver keeps what it gets.
type collecting struct {
	transport.Receiver
	got []transport.Inbound
}

func (c *collecting) Receive(in transport.Inbound) { c.got = append(c.got, in) }

// A receiver that is no Runner is promised no work.
func TestAReceiverWithoutWork(t *testing.T) {
	var r parts.Receiver
	to := new(collecting)
	if r.Bind(to); !r.Receive(transport.Inbound{Stream: 1}) || len(to.got) != 1 || to.got[0].Work {
		t.Errorf("got %+v, want one frame without work", to.got)
	}
}

// A link without streams has only the credit of Main, and sends a frame of just the limit.
func TestALinkWithoutStreams(t *testing.T) {
	var s parts.Single
	if s.Grant(1, 5); s.Credit.Left() != 0 {
		t.Errorf("credit of another stream counts: %d", s.Credit.Left())
	}
	if s.Grant(transport.Main, 2); s.Credit.Left() != 2 {
		t.Errorf("got credit for %d frames, want 2", s.Credit.Left())
	}
	if err := s.Refuses(transport.Outbound{Frame: make([]byte, 10)}, "test", 10); err != nil {
		t.Errorf("a frame of the limit: got %v", err)
	}
	var oversized *transport.OversizedError
	if err := s.Refuses(transport.Outbound{Frame: make([]byte, 11)}, "test", 10); !errors.As(err, &oversized) || *oversized != (transport.OversizedError{Limit: 10, Size: 11}) {
		t.Errorf("a longer frame: got %v", err)
	}
	if err := s.Refuses(transport.Outbound{Stream: 3}, "test", 10); !errors.Is(err, transport.ErrNoRoute) || !strings.Contains(err.Error(), "stream 3") {
		t.Errorf("another stream: got %v", err)
	}
}

// Only bytes count as read, and not the end of a stream.
func TestOnlyBytesAreRead(t *testing.T) {
	var reads parts.Reads
	if _, err := reads.Reader(iotest.ErrReader(errors.New("broken"))).Read(make([]byte, 1)); err == nil || !reads.Last().IsZero() {
		t.Errorf("after %v bytes have come in at %v, want none", err, reads.Last())
	}
	if _, err := reads.Reader(strings.NewReader("x")).Read(make([]byte, 1)); err != nil || reads.Last().IsZero() {
		t.Errorf("got %v, and no time of the byte", err)
	}
}

// A queue lists only the tags of what it still holds, and by default holds 16 MiB.
func TestAQueueHoldsWhatIsLeft(t *testing.T) {
	var q parts.Queue
	for tag := range transport.Tag(3) {
		if !q.Push(transport.Outbound{Tag: tag + 1, Frame: make([]byte, parts.DefaultBytes/4)}) {
			t.Fatalf("frame %d does not fit", tag)
		}
	}
	q.Drop(1)
	if got := q.Tags(); len(got) != 2 || got[0] != 2 || got[1] != 3 {
		t.Errorf("got the tags %v, want 2 and 3", got)
	}
	if !q.Push(transport.Outbound{Frame: make([]byte, parts.DefaultBytes/2)}) || q.Push(transport.Outbound{Frame: []byte("x")}) {
		t.Error("the queue holds less than 16 MiB, or more")
	}
}
