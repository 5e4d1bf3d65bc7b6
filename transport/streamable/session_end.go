package streamable

import (
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

// forcedWait is how long HTTP requests may take to end after their writes were
// interrupted, before they count as left behind.
const forcedWait = 5 * time.Second

// Close implements transport.Link. There is nobody to ask: what is queued on
// open responses is flushed within 70 % of the grace. A request that nothing
// was sent for is answered with 503.
func (s *serverSession) Close(grace time.Duration) error { return s.end(transport.ErrClosed, grace) }

// end ends the session for a reason, unless it has one.
func (s *serverSession) end(reason error, grace time.Duration) error {
	if !s.giveReason(reason) {
		endWithin(s.gone, grace, s.force)
		<-s.gone
		return s.left
	}
	if !endWithin(s.table.remove(s), grace, s.force) {
		s.left = errors.New("streamable: an HTTP request has not ended")
	}
	s.to.Lose(transport.Loss{Reason: reason, Unsent: s.collectUnsent()})
	close(s.gone)
	return s.left
}

func (s *serverSession) giveReason(reason error) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != nil {
		return false
	}
	s.reason, s.gone = reason, make(chan struct{})
	close(s.closing)
	return true
}

// force has nothing more written, and interrupts the writes under way.
func (s *serverSession) force() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forced = true
	for _, a := range s.answers {
		a.interrupt()
	}
	for _, l := range s.listeners {
		l.interrupt()
	}
}

func (s *serverSession) addUnsent(tag transport.Tag) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsent = append(s.unsent, tag)
}

// collectUnsent takes what no request has written, and none will.
func (s *serverSession) collectUnsent() []transport.Tag {
	s.mu.Lock()
	defer s.mu.Unlock()
	unsent := s.unsent // taken from the queues, so they are older than what is left there
	if s.main != nil {
		unsent = append(unsent, s.main.queue.Tags()...)
	}
	for _, a := range s.answers {
		unsent = append(unsent, a.box.queue.Tags()...)
	}
	return unsent
}

// endWithin waits for done, and forces it after 70 % of the grace.
func endWithin(done <-chan struct{}, grace time.Duration, force func()) bool {
	if latch.IsRaised(done) || grace > 0 && latch.Within(done, grace/10*7) {
		return true
	}
	force()
	return latch.Within(done, forcedWait)
}
