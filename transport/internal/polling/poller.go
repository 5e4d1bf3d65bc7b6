//go:build unix

package polling

import (
	"os"
	"runtime"
	"time"
)

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

	// longestPolls is how long a reader polls before it waits. While the processors are busy,
	// each poll takes as long as all other goroutines run, and until the reader waits, nobody
	// can close what it reads, and it notices no deadline.
	longestPolls = time.Millisecond

	// longestUnwaited is how long a reader may do without waiting. While it polls, Go looks
	// only every ten milliseconds whether other connections have something to read.
	longestUnwaited = 2 * time.Millisecond
)

// A poller decides what a reader does that has found nothing: read again immediately, or
// wait until the operating system wakes it. Waking it takes longer than a small call takes
// the peer, so polling pays while a peer answers quickly, and rarely happens while it does
// not (ADR-0065). The zero value never polls.
type poller struct {
	most    int           // how often it polls before a wait
	longest time.Duration // and for how long
	polls   int           // how often it has polled before this wait
	began   time.Time     // when the first of these polls was
	every   int           // the number of waits of which one has polls
	skipped int           // the number of waits without polls since the last one that had some
	waits   bool          // it waits, or has waited for what the next read finds
	waited  time.Time     // when it began to wait, or, if that is over, when it ended
}

// Variable is the environment variable that switches polling off, if it is "off".
const Variable = "BOWLINE_POLLING"

func newPoller(processors, most int) poller {
	if processors < 2 || os.Getenv(Variable) == "off" {
		return poller{} // with one processor, polling would keep the peer from it
	}
	return poller{most: most, longest: longestPolls, every: 1}
}

// processors is how many processors the program has. A program may be allowed fewer than
// the machine has, and may ask for more.
func processors() int { return min(runtime.NumCPU(), runtime.GOMAXPROCS(0)) }

// again reports whether to read again instead of waiting. Other goroutines run first.
func (p *poller) again() bool {
	if p.most == 0 {
		return false
	}
	now := time.Now()
	switch {
	case p.polls > 0 && (p.polls == p.most || now.Sub(p.began) > p.longest): // in vain
		p.every, p.skipped = min(2*p.every, rarestPolls), 0
		return p.wait(now)
	case p.polls > 0:
	case p.skipped+1 < p.every:
		p.skipped++
		return p.wait(now)
	case !p.waited.IsZero() && now.Sub(p.waited) > longestUnwaited:
		return p.wait(now)
	default:
		if p.began = now; p.waited.IsZero() {
			p.waited = now
		}
	}
	p.polls++
	runtime.Gosched()
	return true
}

// wait notes that the reader begins to wait.
func (p *poller) wait(now time.Time) (again bool) {
	p.polls, p.waits, p.waited = 0, true, now
	return false
}

// stop notes that the reader waits because it may not poll. It reads no clock, since with
// many callers no reader may: found does when the wait is over.
func (p *poller) stop() { p.polls, p.waits = 0, p.most > 0 }

// found must be called after a read that has found something.
func (p *poller) found() {
	if p.polls > 0 {
		p.polls, p.skipped, p.every = 0, 0, 1
	}
	if p.waits {
		p.waits, p.waited = false, time.Now()
	}
}
