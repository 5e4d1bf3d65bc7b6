package guardian

import (
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/peertest"
	"github.com/bowline-mcp/bowline/transport"
)

// hangGuard limits how long a test waits for something that does not come.
const hangGuard = time.Minute

// received is what a link has delivered.
type received struct {
	peertest.Ignore
	frames chan string
	lost   chan transport.Loss
}

// bindTo binds a link to a receiver with room for everything that a test is sent.
func bindTo(link transport.Link) *received {
	r := &received{frames: make(chan string, 64), lost: make(chan transport.Loss, 1)}
	link.Bind(r)
	link.Grant(transport.Main, cap(r.frames))
	return r
}

func (r *received) Receive(in transport.Inbound) { r.frames <- string(in.Frame) }
func (r *received) Lost(loss transport.Loss)     { r.lost <- loss }

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
