package conn

import (
	"context"
	"time"
)

// lingering is how long the loop of a Conn that is run keeps a goroutine, and
// what else only work needs, after the last event. Who calls less often than that
// does not feel the new one.
const lingering = 100 * time.Millisecond

// A stay is the time in which a goroutine waits between the turns of a loop that
// is run. One that was started has none.
type stay struct {
	linger func() (first bool) // waits for the next turn; nil while the loop rests
	woken  chan struct{}       // ends that, capacity one; nil likewise
	timer  *time.Timer         // posts quiet; nil likewise
	busyAt instant             // of the last event that was no tick
}

// run begins to have the turns, while Run waits for their end. A stack does not
// shrink back to what it was made with, and Conns are many and mostly idle: so
// the work is done on one that is not kept.
func (c *Conn) run(ctx context.Context, entered chan<- func(), ended chan<- error) {
	var l *loop
	l, leave, err := c.enter(ctx, func() { l.wake() }, nil)
	if err != nil {
		close(entered)
		ended <- err
		return
	}
	entered <- leave
	l.stay, l.ends = new(stay), func(err error) { ended <- err }
	l.heed(ctx)
	l.runWhileBusy()
}

// wake has a loop that is run go on. It is called once per idleness, so that the
// channel has room.
func (l *loop) wake() {
	if l.stay.woken == nil {
		go l.runWhileBusy()
		return
	}
	l.stay.woken <- struct{}{}
}

// resting reports whether nobody waits between turns.
func (s *stay) resting() bool { return s == nil || s.linger == nil }

// next is what a goroutine that has nothing to do goes on with.
func (s *stay) next() func() (first bool) {
	if s == nil {
		return nil
	}
	return s.linger
}

// note keeps the time of an event, and has the goroutine stay.
func (l *loop) note(now instant) {
	s := l.stay
	if s == nil {
		return
	}
	if s.busyAt = now; s.linger != nil {
		return
	}
	woken := make(chan struct{}, 1)
	s.woken, s.linger = woken, func() bool { <-woken; return true }
	s.timer = time.AfterFunc(lingering, func() { l.conn.mailbox.post(event{kind: quiet}) })
}

// onQuiet has the loop rest, unless something has happened meanwhile.
func (s *stay) onQuiet(now instant) {
	if left := s.busyAt + lingering - now; left > 0 {
		s.timer.Reset(left)
		return
	}
	s.linger, s.woken, s.timer = nil, nil, nil
}

// end is for a loop that is over.
func (s *stay) end() {
	if s != nil {
		stop(s.timer)
	}
}

// rest gives up what only work needs, when none is in sight.
func (l *loop) rest() {
	l.spare, l.batch = nil, nil
	if l.stay != nil && l.core.deadline() == 0 {
		stop(l.timer)
		l.timer, l.armed = nil, 0
	}
	l.conn.mailbox.rest()
	l.core.rest()
	l.tasks.rest()
}
