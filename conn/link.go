package conn

import (
	"context"
	"errors"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// A running incarnation is a link and the context of everything that runs for it.
type running struct {
	epoch  uint64
	ctx    context.Context
	cancel context.CancelCauseFunc
	link   transport.Link // nil until attached
}

// cancelAll ends the contexts of everything that runs for the incarnation.
func (l *loop) cancelAll(why error) {
	if l.inc != nil {
		l.inc.cancel(why)
	}
	l.tasks.cancel(why)
}

// open asks the transport for a link.
func (l *loop) open(epoch uint64) {
	inc := l.incarnate(epoch)
	c, opening := l.conn, l.tasks.add("opening a link", inc.cancel)
	ev := event{kind: linkOpened, epoch: epoch, task: opening}
	go l.carryOut(opening, func() (err error) {
		if ev.link, err = c.transport.Open(inc.ctx); err == nil && ev.link == nil {
			return errNoLink
		}
		if hearing, ok := ev.link.(transport.Hearing); ok && err == nil {
			_, ev.counted = hearing.Heard()
		}
		return err
	}, func(err error) {
		if err != nil {
			if ev.link != nil {
				closeUnwanted(ev.link)
			}
			ev.kind, ev.link, ev.random = openFailed, nil, random()
			ev.reason, ev.timeout = openReason(err), askedDelay(err)
		}
		if !c.mailbox.post(ev) && ev.link != nil {
			closeUnwanted(ev.link)
		}
	})
}

func (l *loop) incarnate(epoch uint64) *running {
	l.inc = &running{epoch: epoch}
	l.inc.ctx, l.inc.cancel = context.WithCancelCause(l.ctx)
	return l.inc
}

// errNoLink is a transport's that has given neither a link nor an error.
var errNoLink = errors.New("conn: the transport has opened no link, and not said why")

// bind attaches the link: from here on its events come in. One that panics is
// lost.
func (l *loop) bind(link transport.Link, epoch uint64) {
	if l.inc == nil { // an acceptor's
		l.incarnate(epoch)
	}
	l.inc.link = link
	l.hearing, _ = link.(transport.Hearing)
	l.hears()
	err := guard(func() error {
		link.Bind(&receiver{conn: l.conn, epoch: epoch, dialect: l.core.dialect})
		return nil
	})
	if err != nil {
		l.inc.link = unbound{link}
		l.conn.mailbox.post(event{kind: linkLost, epoch: epoch, reason: Reason{LinkBroken, err}, random: random()})
	}
}

// An unbound is a link that could not be bound, and is only to be closed.
type unbound struct{ transport.Link }

func (unbound) Send(transport.Outbound) error { return transport.ErrClosed }
func (unbound) Grant(transport.Stream, int)   {}

// handshake runs the strategy that makes the link ready.
func (l *loop) handshake(epoch uint64) {
	c, ctx := l.conn, l.inc.ctx
	shaking := l.tasks.add("handshake", l.inc.cancel)
	go l.carryOut(shaking, func() error {
		if c.options.Handshake == nil {
			return nil
		}
		return c.options.Handshake(ctx, &Incarnation{conn: c, epoch: epoch})
	}, func(err error) {
		ev := event{kind: handshakeDone, epoch: epoch, task: shaking}
		if err != nil {
			ev.kind, ev.random = handshakeFailed, random()
			ev.reason, ev.timeout = handshakeReason(err), askedDelay(err)
		}
		c.mailbox.post(ev)
	})
}

// closeLink closes the link of an incarnation, or one that was never attached.
func (l *loop) closeLink(epoch uint64, link transport.Link, grace time.Duration) {
	if link == nil && l.inc != nil && l.inc.epoch == epoch {
		link = l.inc.link
	}
	if link == nil {
		return
	}
	c, closing := l.conn, l.tasks.add("closing the link", func(error) {})
	go l.carryOut(closing, func() error { return link.Close(grace) }, func(err error) {
		c.mailbox.post(event{kind: linkGone, epoch: epoch, task: closing, err: err})
	})
}
