package fault

import (
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// An arrival is one thing the wrapped link has reported, or a stream's End or
// Resume.
type arrival struct {
	kind       arrivalKind
	stream     transport.Stream
	tag        transport.Tag
	in         transport.Inbound
	streamLoss transport.StreamLoss
	cut        bool // streamLost: by a fault, so that it is resumed here
	failure    transport.Failure
	loss       transport.Loss
}

type arrivalKind uint8

const (
	received arrivalKind = iota
	streamOpened
	streamLost
	streamEnded   // from this side
	streamResumed // by Resume
	writable
	failed
	ended
	lost
)

// inbound is what the pump has still to look at. Frames in it are bounded by
// the credit the wrapped link was given.
type inbound struct {
	mu       sync.Mutex
	arrivals []arrival
	credit   map[transport.Stream]int // granted since the pump looked
}

func (in *inbound) arrive(a arrival) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.arrivals = append(in.arrivals, a)
}

func (in *inbound) grant(stream transport.Stream, frames int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.credit[stream] += frames
}

func (in *inbound) take() (arrivals []arrival, credit map[transport.Stream]int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	arrivals, credit = in.arrivals, in.credit
	in.arrivals, in.credit = nil, make(map[transport.Stream]int)
	return arrivals, credit
}

// A lane is one stream on its way in.
type lane struct {
	credit int       // that the receiver has given and not used
	asked  int       // that the wrapped link was given and has not used
	ready  []arrival // to be told in this order; frames need credit
	tag    transport.Tag
	cut    bool // by a fault: nothing is told before it is resumed
	muted  bool // by a fault: nothing arrives any more
}

// A late frame is held back until later ones have come, or time has passed.
type late struct {
	arrival
	after int // the number of the frame that lets it through
	due   time.Time
}

// maxHeld bounds what is held back in each direction. Held frames are those
// of at most this many credits; with more, the wrapped link is given none.
const maxHeld = 256
