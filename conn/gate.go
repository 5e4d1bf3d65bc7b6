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
	held    list.List // elements are *gatePlace; the place that was held longest is first
	waiting list.List // elements are *gatePlace; the oldest is first
	timer   *time.Timer
	armed   bool // whether the timer runs
}

// A gatePlace is what an incarnation has at a Gate, or waits for. The Gate's lock guards it.
type gatePlace struct {
	mailbox *mailbox // of the loop, which gets the event admitted
	epoch   uint64
	since   time.Time     // when the incarnation got it
	at      *list.Element // in one of the two lists, unless another incarnation has taken the place
}

// Stats returns how many Conns connect and how many wait for a place.
func (g *Gate) Stats() telemetry.GateSample {
	g.mu.Lock()
	defer g.mu.Unlock()
	return telemetry.GateSample{Holding: g.held.Len(), Waiting: g.waiting.Len()}
}

// ask lets an incarnation wait for a place. When it gets one, its mailbox is sent the event
// admitted. The loop must give what ask returns to leave, once.
func (g *Gate) ask(m *mailbox, epoch uint64) *gatePlace {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := &gatePlace{mailbox: m, epoch: epoch}
	p.at = g.waiting.PushBack(p)
	g.admit()
	return p
}

// leave gives up a place, or takes an incarnation out of the queue for one.
func (g *Gate) leave(p *gatePlace) {
	if p == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held.Remove(p.at) // a list ignores an element of the other list
	g.waiting.Remove(p.at)
	g.admit()
}

// admit gives the free places to those who have waited longest. A loop that takes no events has
// ended, and gets none. Posting never blocks and takes no lock of a Gate, so the lock may be
// held.
func (g *Gate) admit() {
	for g.waiting.Len() > 0 && g.free() {
		next := g.waiting.Remove(g.waiting.Front()).(*gatePlace)
		if next.mailbox.post(event{kind: admitted, epoch: next.epoch}) {
			next.since = time.Now()
			next.at = g.held.PushBack(next)
		}
	}
	g.arm()
}

// free reports whether a place is free. If none is, it takes back the place that was held
// longest, provided that Hold has passed.
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

// untilFree returns how long the place that was held longest can still be kept.
func (g *Gate) untilFree() time.Duration {
	oldest := g.held.Front().Value.(*gatePlace)
	return cmp.Or(max(g.Hold, 0), defaultHold) - time.Since(oldest.since)
}

// arm makes the timer run while somebody waits, and only then. If the timer fires too
// early, because its place was given back meanwhile, it is set again.
func (g *Gate) arm() {
	waits := g.waiting.Len() > 0
	switch {
	case waits == g.armed:
		return
	case !waits:
		g.timer.Stop()
	case g.timer == nil:
		g.timer = time.AfterFunc(g.untilFree(), g.expire)
	default:
		g.timer.Reset(g.untilFree())
	}
	g.armed = waits
}

// expire is the function of the timer.
func (g *Gate) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = false
	g.admit()
}
