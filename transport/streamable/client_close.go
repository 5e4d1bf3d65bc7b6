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

// cancelPatience is how long a cancelled HTTP request may take to return before
// Close reports it as left behind.
const cancelPatience = 5 * time.Second

// Close implements transport.Link. It posts what is queued within 70 % of the
// grace. Then it cancels the requests under way, and deletes a legacy session in
// what is left of the grace.
func (l *clientLink) Close(grace time.Duration) error {
	if grace <= 0 {
		l.expire()
	}
	l.end(transport.ErrClosed)
	var left error
	if older := l.fellBack(); older != nil {
		left = older.Close(grace)
	}
	flush := grace / 10 * 7
	if !latch.Within(l.gone.Raised, flush) {
		l.forced.Raise()
	}
	if !latch.Within(l.gone.Raised, grace-flush) {
		l.expire()
	}
	<-l.gone.Raised
	return errors.Join(l.left, left)
}

// endIf ends the link if reason is not nil.
func (l *clientLink) endIf(reason error) {
	if reason != nil {
		l.end(reason)
	}
}

// end starts to end the link. The first reason counts; a later one other than ErrClosed
// stops the flushing.
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

// finish ends everything that the link owns, and reports the loss.
func (l *clientLink) finish(reason error) {
	defer l.gone.Raise()
	if reason == transport.ErrClosed {
		l.flush()
	}
	l.stop()
	l.left = l.endOlder(reason)
	if reason == transport.ErrClosed {
		l.deleteSession()
	}
	if !latch.Within(l.idle.Raised, cancelPatience) {
		l.left = errors.Join(l.left, errors.New("streamable: an HTTP request has not returned"))
	}
	l.expire()
	l.release()
	l.told.Lose(transport.Loss{Reason: reason, Unsent: l.unsentTags()})
}

// flush waits until everything queued was written, or its time is over.
func (l *clientLink) flush() {
	select {
	case <-l.flushed.Raised:
	case <-l.forced.Raised:
	case <-l.life.Done():
	}
}

// stop cancels what is running, and prevents further requests.
func (l *clientLink) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.cancel()
	l.workers.dismiss()
	l.check()
}

// deleteSession tells a legacy server that the client has finished with its session. Its
// failure has no consequences: a server may refuse it.
func (l *clientLink) deleteSession() {
	r := l.remote.newRequest(http.MethodDelete, nil)
	if r.joinSession(); !r.inSession || l.life.Err() != nil {
		return
	}
	if response, err := r.do(l.life); err == nil {
		response.Body.Close()
	}
}

// unsentTags lists the messages that were accepted and not sent, in the order of Send.
func (l *clientLink) unsentTags() (tags []transport.Tag) {
	l.mu.Lock()
	defer l.mu.Unlock()
	unsent := append(l.unsent, l.queue.waiting...)
	slices.SortFunc(unsent, func(a, b *outgoing) int { return cmp.Compare(a.number, b.number) })
	for _, m := range unsent {
		if m.Tag != 0 && !l.wasEnded(m) {
			tags = append(tags, m.Tag)
		}
	}
	return append(tags, l.olderUnsent...)
}

// check sets the latches that finish waits for. The caller holds mu.
func (l *clientLink) check() {
	if l.ending && l.queue.frames == 0 && !l.posting {
		l.flushed.Raise()
	}
	if l.over && l.running == 0 {
		l.idle.Raise()
	}
}
