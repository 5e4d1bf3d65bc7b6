package clustertest

import (
	"sync"
	"time"
)

// A lane is one direction of a connection. What is sent on it arrives in the order in which it
// was sent. The mutex of the Service guards it, and is held while something arrives.
type lane struct {
	mu      sync.Locker // of the Service
	waiting []parcel
	timer   *time.Timer // nil while nothing waits
	busy    bool        // something is arriving; what it sends does not overtake the others
}

type parcel struct {
	at     time.Time
	arrive func()
}

// send calls arrive after a delay, and not before what was sent earlier has arrived: at once if
// there is nothing to wait for.
func (l *lane) send(delay time.Duration, arrive func()) {
	if delay <= 0 && len(l.waiting) == 0 && !l.busy {
		arrive()
		return
	}
	at := time.Now().Add(delay)
	if n := len(l.waiting); n > 0 && at.Before(l.waiting[n-1].at) {
		at = l.waiting[n-1].at
	}
	l.waiting = append(l.waiting, parcel{at, arrive})
	if l.timer == nil {
		l.timer = time.AfterFunc(delay, l.due)
	}
}

// due lets everything arrive whose time has come.
func (l *lane) due() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	l.busy = true
	for len(l.waiting) > 0 && !l.waiting[0].at.After(time.Now()) {
		next := l.waiting[0]
		l.waiting = l.waiting[1:]
		next.arrive()
	}
	l.busy = false
	if len(l.waiting) > 0 && l.timer == nil {
		l.timer = time.AfterFunc(time.Until(l.waiting[0].at), l.due)
	}
}

// clear loses what is on its way.
func (l *lane) clear() {
	l.waiting = nil
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}
