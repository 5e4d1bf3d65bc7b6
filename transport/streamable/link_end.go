package streamable

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/latch"
)

// leaveTime is how long a cancelled HTTP request may take to return before it
// counts as left behind.
const leaveTime = 5 * time.Second

// Close implements transport.Link. What is queued is posted within 70 % of the
// grace, then requests under way are cancelled, and a legacy session is deleted
// in what is left of it.
func (l *clientLink) Close(grace time.Duration) error {
	if grace <= 0 {
		l.expire()
	}
	l.end(transport.ErrClosed)
	flush := grace / 10 * 7
	if !latch.Within(l.gone.Raised, flush) {
		l.forced.Raise()
	}
	if !latch.Within(l.gone.Raised, grace-flush) {
		l.expire()
	}
	<-l.gone.Raised
	return l.left
}

// end begins the end of the link. The first reason counts; a later one but
// Close's stops the flush.
func (l *clientLink) end(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if reason != transport.ErrClosed {
		l.over = true
		l.forced.Raise()
	}
	if l.ending {
		return
	}
	l.ending = true
	l.check()
	go l.finish(reason)
}

// finish ends everything the link owns, and tells the loss.
func (l *clientLink) finish(reason error) {
	defer l.gone.Raise()
	if reason == transport.ErrClosed {
		l.flush()
	}
	l.stop()
	if reason == transport.ErrClosed {
		l.deleteSession()
	}
	if !latch.Within(l.idle.Raised, leaveTime) {
		l.left = errors.New("streamable: an HTTP request has not returned")
	}
	l.expire()
	l.release()
	l.Lose(transport.Loss{Reason: reason, Unsent: l.unsentTags()})
}

// flush waits until what is queued is written, or has had its time.
func (l *clientLink) flush() {
	select {
	case <-l.flushed.Raised:
	case <-l.forced.Raised:
	case <-l.life.Done():
	}
}

// stop starts nothing more, and cancels what is under way.
func (l *clientLink) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.cancel()
	l.check()
}

// deleteSession tells a legacy server that its session is not needed any more.
// The server need not allow it, and nothing depends on it.
func (l *clientLink) deleteSession() {
	a := l.newAttempt(http.MethodDelete, "")
	if a.joinSession(); !a.inSession || l.life.Err() != nil {
		return
	}
	if response, err := a.do(l.life); err == nil {
		response.Body.Close()
	}
}

// unsentTags lists what was accepted and never left, in the order of Send.
func (l *clientLink) unsentTags() (tags []transport.Tag) {
	l.mu.Lock()
	defer l.mu.Unlock()
	unsent := append(l.unsent, l.out.waiting...)
	slices.SortFunc(unsent, func(a, b *outgoing) int { return cmp.Compare(a.number, b.number) })
	for _, o := range unsent {
		if o.Tag != 0 && !l.isEnded(o) {
			tags = append(tags, o.Tag)
		}
	}
	return tags
}

// run starts a goroutine that the link waits for at its end.
func (l *clientLink) run(work func()) {
	if l.over {
		return
	}
	l.running++
	go func() {
		work()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.running--
		l.check()
	}()
}

// check raises the signals of an end.
func (l *clientLink) check() {
	if l.ending && l.out.frames == 0 && !l.posting {
		l.flushed.Raise()
	}
	if l.over && l.running == 0 {
		l.idle.Raise()
	}
}
