package guardian

import (
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// hangGuard limits how long a test waits for something that does not come.
const hangGuard = time.Minute

// received is what a link has delivered.
type received struct {
	frames chan string
	lost   chan transport.Loss
}

// bindTo binds a link to a receiver with room for everything that a test is sent.
func bindTo(link transport.Link) *received {
	r := &received{make(chan string, 64), make(chan transport.Loss, 1)}
	link.Bind(r)
	link.Grant(transport.Main, cap(r.frames))
	return r
}

func (r *received) Receive(in transport.Inbound)               { r.frames <- string(in.Frame) }
func (*received) Writable()                                    {}
func (*received) StreamOpened(transport.Stream, transport.Tag) {}
func (*received) StreamLost(transport.StreamLoss)              {}
func (*received) Failed(transport.Failure)                     {}
func (*received) Ended()                                       {}
func (r *received) Lost(loss transport.Loss)                   { r.lost <- loss }

func wait[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	guard := time.NewTimer(hangGuard)
	defer guard.Stop()
	select {
	case v := <-from:
		return v
	case <-guard.C:
		t.Fatalf("got no %s in time", what)
		panic("unreachable")
	}
}
