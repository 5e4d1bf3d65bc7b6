//go:build unix

package polling

import "runtime"

// A poll takes about half a microsecond.
const (
	// pipePolls is how often the reader of a pipe polls before it waits.
	pipePolls = 100

	// connPolls is how often the reader of a TCP connection polls before it waits. A peer
	// takes longer to answer over HTTP.
	connPolls = 200

	// rarestPolls is the number of waits in a row of which one has polls, as long as
	// polling finds nothing.
	rarestPolls = 64
)

// A poller decides what a reader does that has found nothing: read again immediately, or
// wait until the operating system wakes it. Waking it takes longer than a small call takes
// the peer, so polling pays while a peer answers quickly, and rarely happens while it does
// not (ADR-0065). The zero value never polls.
type poller struct {
	most    int // how often it polls before a wait
	polls   int // how often it has polled before this wait
	every   int // the number of waits of which one has polls
	skipped int // the number of waits without polls since the last one that had some
}

func newPoller(processors, most int) poller {
	if processors < 2 {
		return poller{} // polling would keep the peer from the only processor
	}
	return poller{most: most, every: 1}
}

// again reports whether to read again instead of waiting. Other goroutines run first.
func (p *poller) again() bool {
	if p.polls == 0 && p.skipped+1 < p.every {
		p.skipped++
		return false
	}
	if p.polls == p.most {
		p.polls, p.skipped = 0, 0
		p.every = min(2*p.every, rarestPolls)
		return false
	}
	p.polls++
	runtime.Gosched()
	return true
}

// found must be called after a read that has found something.
func (p *poller) found() {
	if p.polls > 0 {
		p.polls, p.skipped, p.every = 0, 0, 1
	}
}
