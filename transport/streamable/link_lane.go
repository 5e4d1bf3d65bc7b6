package streamable

import (
	"context"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/eventstream"
)

// maxDelay is the longest wait that a server can ask for.
const maxDelay = time.Hour

// maxEventID is the longest event id that is sent back, in bytes.
const maxEventID = 1 << 10

// A lane is the receiving half of a stream: a request's, or Main. At any time
// one goroutine at most reads for it.
type lane struct {
	stream transport.Stream
	ctx    context.Context // until the stream is over
	cancel context.CancelFunc
	mu     sync.Mutex
	credit int
	more   chan struct{} // holds one: credit has come

	// Of whoever reads for the lane.
	eventID string        // of the last event, if it had one
	retry   time.Duration // as the stream has asked for
	opened  bool          // a GET has brought events

	broken bool // it can be resumed; guarded by the link's mu
	over   bool // nothing more is told of it; guarded by the delivery
}

func newLane(ctx context.Context, stream transport.Stream) *lane {
	in := &lane{stream: stream, more: make(chan struct{}, 1)}
	in.ctx, in.cancel = context.WithCancel(ctx)
	return in
}

func (in *lane) grant(frames int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.credit += frames
	select {
	case in.more <- struct{}{}:
	default: // a wake-up is due already
	}
}

// await waits for credit, and reports false when the stream is over first.
func (in *lane) await() bool {
	for {
		in.mu.Lock()
		ready := in.credit > 0
		in.mu.Unlock()
		if ready {
			return in.ctx.Err() == nil
		}
		select {
		case <-in.more:
		case <-in.ctx.Done():
			return false
		}
	}
}

// spend uses one credit, after await.
func (in *lane) spend() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.credit--
}

// note remembers where the stream is. An id that no header can carry is not
// one to go on from.
func (in *lane) note(e eventstream.Event) {
	if in.eventID = e.ID; !isPlain(e.ID) || len(e.ID) > maxEventID {
		in.eventID = ""
	}
	if e.Retry > 0 {
		in.retry = min(e.Retry, maxDelay)
	}
}
