package conn

import (
	"cmp"
	"container/list"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/telemetry"
)

// A Gate limits how many initiators connect at the same time. To share a Gate, put it
// into the Options of several Conns. A Conn takes a place at the Gate before it opens
// a link, and returns it when it is ready, has failed or stops. If no place is free,
// the Conn waits; the one that has waited longest goes first. InitTimeout does not
// run while a Conn waits. A Conn that has held its place for Hold loses it to the
// next one that waits, so a server that hangs does not block the others (ADR-0027).
//
// The zero value is ready to use. A Gate must not be copied, and its fields must
// not be changed once a Conn has it.
type Gate struct {
	Places int           // how many Conns connect at the same time; default 64
	Hold   time.Duration // how long a place is kept while others wait; default 1 s

	mu      sync.Mutex
	held    list.List // of *visit, the longest held first
	waiting list.List // of *visit, the oldest first
	timer   *time.Timer
	armed   bool // the timer runs
}

// A visit is one incarnation at the gate. Its loop refers to it while it waits
// for a place or holds one.
type visit struct {
	loop  *loop
	epoch uint64
	since time.Time // when the place was given
}

// Stats returns how many Conns connect and how many wait for a place.
func (g *Gate) Stats() telemetry.GateSample {
	g.mu.Lock()
	defer g.mu.Unlock()
	return telemetry.GateSample{Holding: g.held.Len(), Waiting: g.waiting.Len()}
}

// ask has a loop wait for a place. An event tells it that it has one.
func (g *Gate) ask(l *loop, epoch uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.visit = g.waiting.PushBack(&visit{loop: l, epoch: epoch})
	g.admit()
}

// leave gives up what a loop has here, be it a place or the wait for one.
func (g *Gate) leave(l *loop) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.visit == nil {
		return
	}
	g.held.Remove(l.visit) // each does nothing with what is not in it
	g.waiting.Remove(l.visit)
	l.visit = nil
	g.admit()
}

// admit gives the places there are to those who have waited longest. A loop
// that takes no events is over, and gets none.
func (g *Gate) admit() {
	for g.waiting.Len() > 0 && g.free() {
		next := g.waiting.Remove(g.waiting.Front()).(*visit)
		if next.loop.mailbox.post(event{kind: admitted, epoch: next.epoch}) {
			next.since = time.Now()
			next.loop.visit = g.held.PushBack(next)
		}
	}
	g.arm()
}

// free reports whether there is a place, and takes one back to that end if it
// was held for long enough.
func (g *Gate) free() bool {
	if g.held.Len() < cmp.Or(max(g.Places, 0), defaultPlaces) {
		return true
	}
	if g.untilFree() > 0 {
		return false
	}
	g.held.Remove(g.held.Front())
	return true
}

const (
	defaultPlaces = 64
	defaultHold   = time.Second
)

// untilFree is how long the oldest place can be kept, while all are held.
func (g *Gate) untilFree() time.Duration {
	oldest := g.held.Front().Value.(*visit)
	return cmp.Or(max(g.Hold, 0), defaultHold) - time.Since(oldest.since)
}

// arm sees that the timer runs while somebody waits, and only then. One that
// fires too early, because that place was given back, is set again.
func (g *Gate) arm() {
	waits := g.waiting.Len() > 0
	switch {
	case waits == g.armed:
		return
	case !waits:
		g.timer.Stop()
	case g.timer == nil:
		g.timer = time.AfterFunc(g.untilFree(), g.turn)
	default:
		g.timer.Reset(g.untilFree())
	}
	g.armed = waits
}

func (g *Gate) turn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = false
	g.admit()
}
