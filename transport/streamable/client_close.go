package streamable

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

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
	l.ending.AwaitFinish(grace, l.expire)
	return errors.Join(l.left, left)
}

// endIf ends the link if reason is not nil.
func (l *clientLink) endIf(reason error) {
	if reason != nil {
		l.end(reason)
	}
}

// end begins the end of the link. The first reason counts.
func (l *clientLink) end(reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending.Begin(reason) {
		go l.finish(reason)
	}
	l.check()
}

// finish ends everything that the link owns, and reports the loss.
func (l *clientLink) finish(reason error) {
	defer l.ending.Finish()
	l.ending.AwaitSent()
	l.stop()
	l.left = l.endOlder(reason)
	if reason == transport.ErrClosed {
		l.deleteSession()
	}
	if err := l.ending.AwaitIdle(); err != nil {
		l.left = errors.Join(l.left, fmt.Errorf("streamable: %w", err))
	}
	l.expire()
	l.release()
	l.told.Lose(transport.Loss{Reason: reason, Unsent: l.unsentTags()})
}

// stop cancels what is running, and prevents further requests.
func (l *clientLink) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ending.Stop()
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

// check notices that a step of the ending is complete. The caller holds mu.
func (l *clientLink) check() { l.ending.Check(l.queue.frames == 0 && !l.posting) }
