package conn

import (
	"context"
	"errors"
	"io/fs"
	"os/exec"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// incarnate begins an incarnation. The one before has ended: its context is cancelled, and its
// link closed or given up.
func (l *loop) incarnate(epoch uint64) *Incarnation {
	i := &Incarnation{caller: &l.caller, epoch: epoch}
	l.incarnation = i
	return i
}

// contextOf returns the context of everything that runs for an incarnation. The handlers of
// requests have contexts of their own, so an idle server has never needed it.
func (l *loop) contextOf(i *Incarnation) context.Context {
	if i.ctx == nil {
		i.ctx, i.cancel = context.WithCancelCause(l.served)
	}
	return i.ctx
}

// cancelAll ends the contexts of everything that runs for the incarnation.
func (l *loop) cancelAll(why error) {
	if l.incarnation != nil {
		l.contextOf(l.incarnation) // so that what needs it later finds that it has ended
		l.incarnation.cancel(why)
	}
	l.tasks.cancel(why)
	if j := l.opening.takeLast(true); j != nil { // the caller of Open has not taken the job yet
		go l.runJob(j)
	}
}

// open asks the transport for a link. It runs as a task, since a transport may take as long as it
// likes. A link that comes too late is closed by whoever finds that: the task, the core, or
// discard.
func (l *loop) open(epoch uint64) {
	i := l.incarnate(epoch)
	one := new(struct { // one allocation
		ev event
		of eventExtra
	})
	ev := &one.ev
	*ev = event{kind: linkOpened, epoch: epoch, eventExtra: &one.of}
	ctx := transport.WithWaker(l.contextOf(i), l.conn)
	if l.own.name != "" {
		ctx = transport.WithConnectionName(ctx, l.own.name)
	}
	l.do("opening a link", i.cancel, func() (err error) {
		if ev.link, err = l.transport.Open(ctx); err == nil && ev.link == nil {
			return errNoLink
		}
		if err == nil {
			traits := transport.LinkTraitsOf(ev.link)
			ev.reportsBytes, ev.requestPerProbe = traits.RecordsReads, traits.RequestPerMessage
		}
		return err
	}, func(err error) event {
		if err == nil {
			return *ev
		}
		if ev.link != nil {
			closeUnwanted(ev.link)
		}
		return event{kind: openFailed, epoch: epoch, random: random(), timeout: askedDelay(err), eventExtra: &eventExtra{reason: openReason(err)}}
	})
}

// errNoLink is reported for a transport that returns neither a link nor an error.
var errNoLink = errors.New("conn: the transport returned neither a link nor an error")

// bind attaches the link, whose events come in from here on. If Bind panics, the
// link is lost.
func (l *loop) bind(link transport.Link, epoch uint64) {
	if l.incarnation == nil { // the link of an acceptor
		l.incarnate(epoch)
	}
	l.incarnation.link = link
	if l.describer, _ = transport.As[transport.LinkDescriber](link); l.describer != nil && !l.describer.LinkTraits().RecordsReads {
		l.describer = nil
	}
	l.lastRead()
	l.flush().flush(0) // the link before this one may have left something to it
	l.flusher = nil
	err := guard(func() error {
		link.Bind(&receiver{record: l.record, loop: l, epoch: epoch, dialect: l.core.dialect})
		return nil
	})
	if err != nil {
		l.incarnation.link = unbound{link}
		l.mailbox.post(event{kind: linkLost, epoch: epoch, random: random(), eventExtra: &eventExtra{reason: Reason{LinkBroken, err}}})
		return
	}
	l.flusher, _ = transport.As[transport.Flusher](link)
	l.flush().flush(0)
}

// openReason says why a link could not be opened. The Kind decides when the Conn tries again: see
// isTemporary.
func openReason(err error) Reason {
	switch {
	case transport.IsDenied(err):
		return Reason{AuthRequired, err}
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return Reason{ExecutableMissing, err}
	default:
		return Reason{OpenFailed, err}
	}
}

// handshakeReason says why a handshake has failed.
func handshakeReason(err error) Reason {
	switch {
	case errors.Is(err, ErrIncompatible):
		return Reason{Incompatible, err}
	case transport.IsDenied(err):
		return Reason{AuthRequired, err}
	default:
		return Reason{HandshakeFailed, err}
	}
}

// askedDelay returns the delay that the peer has asked for (Retry-After), or zero.
func askedDelay(err error) time.Duration {
	if err == nil || err == transport.ErrPeerClosed || err == transport.ErrClosed {
		return 0
	}
	var status *transport.StatusError
	if errors.As(err, &status) {
		return status.RetryAfter
	}
	return 0
}

// lossReason says why a link was lost, as the link has reported it.
func lossReason(err error) Reason {
	switch err { // a fast path for the two common reasons: errors.As is slow
	case transport.ErrPeerClosed:
		return Reason{PeerEnded, err}
	case transport.ErrClosed:
		return Reason{LinkBroken, err}
	}
	var exit *transport.ExitError
	var oversized *transport.OversizedError
	switch {
	case errors.As(err, &exit):
		return Reason{Exited, err}
	case errors.As(err, &oversized):
		return Reason{Oversized, err}
	case errors.Is(err, transport.ErrPeerClosed):
		return Reason{PeerEnded, err}
	case errors.Is(err, transport.ErrSessionExpired):
		return Reason{SessionExpired, err}
	default:
		return Reason{LinkBroken, err}
	}
}

// An unbound is a link that could not be bound. It can only be closed.
type unbound struct{ transport.Link }

func (unbound) Send(transport.Outbound) error { return transport.ErrClosed }
func (unbound) Grant(transport.Stream, int)   {}

// handshake runs Options.Handshake for the link. The context ends with the incarnation, so a
// handshake cannot outlive its link unless it ignores that.
func (l *loop) handshake() {
	strategy, i := l.own.handshake, l.incarnation
	ctx := l.contextOf(i)
	l.do("handshake", i.cancel, func() error {
		if strategy == nil {
			return nil
		}
		return strategy(ctx, i)
	}, func(err error) event {
		if err == nil {
			return event{kind: handshakeDone, epoch: i.epoch}
		}
		return event{kind: handshakeFailed, epoch: i.epoch, random: random(), timeout: askedDelay(err), eventExtra: &eventExtra{reason: handshakeReason(err)}}
	})
}

// closeLink closes the given link, or that of the incarnation if it is nil.
func (l *loop) closeLink(epoch uint64, link transport.Link, grace time.Duration) {
	if link == nil && l.incarnation != nil && l.incarnation.epoch == epoch {
		link = l.incarnation.link
	}
	if link == nil || l.closeNow(epoch, link) {
		return
	}
	l.do("closing the link", func(error) {}, func() error { return link.Close(grace) }, func(err error) event {
		return event{kind: linkGone, epoch: epoch, err: err}
	})
}

// closeNow closes a link whose close does not block. The core gets the event linkGone in the
// same step.
func (l *loop) closeNow(epoch uint64, link transport.Link) (closed bool) {
	closing, ok := transport.As[transport.Flusher](link)
	if !ok {
		return false
	}
	err := guard(func() error { closed = closing.CloseNow(); return nil })
	if closed = closed || err != nil; closed {
		l.reportPanic("closing the link", err)
		l.linkClosed(err)
		l.buffers.follow(event{kind: linkGone, epoch: epoch})
	}
	return closed
}
