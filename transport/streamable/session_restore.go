package streamable

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

const (
	// restorePatience is how long a request waits until its session is here.
	restorePatience = 5 * time.Second
)

// A wanted session is one that a request names, and that is not here.
type wanted struct {
	session string
	origin  *transport.Origin // the sender
	by      serverChooser     // the request
}

// A serverChooser knows which server a request is for.
type serverChooser interface {
	chooseWith(ctx context.Context) (transport.Acceptor, *refusal)
}

// restore restores the session that a request names, if it is not here and the store has it.
// Requests of one session that come at the same time wait for one attempt.
func (h *Handler) restore(ctx context.Context, what wanted) *refusal {
	session, origin := what.session, what.origin
	ctx, cancel := context.WithTimeout(ctx, restorePatience)
	defer cancel()
	for !h.table.has(session) {
		attempt, first := h.restores.join(session, origin.Identity)
		if attempt == nil {
			return shuttingDown(jsonrpc.ID{})
		}
		// This request makes the attempt, on its goroutine, and stays even if its client leaves.
		if first {
			h.attempt(ctx, attempt, what)
		} else if refused := h.await(ctx, attempt); refused != nil {
			return refused
		}
		switch {
		case attempt.identity != origin.Identity: // it says nothing about this identity
		case attempt.refused == nil:
			return nil
		default:
			own := *attempt.refused // others have it, too
			return &own
		}
	}
	return nil
}

// await waits for an attempt that another request makes.
func (h *Handler) await(ctx context.Context, attempt *restore) *refusal {
	select {
	case <-attempt.done:
		return nil
	case <-ctx.Done():
		return moving(jsonrpc.ID{})
	case <-h.stopped:
		return shuttingDown(jsonrpc.ID{})
	}
}

// attempt restores a session. It does not end when the client leaves, because others may
// wait for it.
func (h *Handler) attempt(ctx context.Context, to *restore, what wanted) {
	defer h.restores.finish(what.session, to)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restorePatience)
	defer cancel()
	defer context.AfterFunc(h.restores.ctx, cancel)()
	to.refused = h.take(ctx, what)
	// When that was learned, there may have been no link to end yet.
	if h.restores.isLost(to) {
		h.lost(what.session)
	}
}

// take takes a session from the store, and begins it again at its server.
// Everything that may refuse without the store comes before it: what is taken from the store must be
// served, or be given back.
func (h *Handler) take(ctx context.Context, what wanted) *refusal {
	session, origin := what.session, what.origin
	if h.table.drains() {
		return shuttingDown(jsonrpc.ID{})
	}
	a, refused := what.by.chooseWith(ctx)
	if refused != nil {
		return refused
	}
	client := web.ClientOf(origin.Identity, origin.Address())
	if claim := h.restores.places.Claim(client, 1); claim != nil && !claim.Wait(ctx) {
		return overloaded(jsonrpc.ID{}, "too many sessions are being restored")
	}
	defer h.restores.places.Give(client, 1)
	record, err := h.savings.store.Take(ctx, session, origin.Identity)
	if refused := h.notTaken(err); refused != nil {
		return refused
	}
	saved := h.savings.resume(session, record)
	switch {
	case record.Identity != origin.Identity: // a mistake of the store, which must not matter
		saved.end(true)
		return &refusal{unknown: true}
	// No process can begin it again, so it is forgotten.
	case !record.isValid():
		saved.end(false)
		return &refusal{unknown: true}
	}
	return h.replay(ctx, h.newRestored(clientKey{a, client}, saved, origin), origin)
}

// notTaken returns what an error of SessionStore.Take says about a session. Err may be nil.
// A store that fails is logged once, until it can tell again.
func (h *Handler) notTaken(err error) *refusal {
	var owned *OwnedError
	unknown, isOwned := errors.Is(err, ErrNoSession), errors.As(err, &owned)
	failed := err != nil && !unknown && !isOwned
	if h.restores.fails(failed) && h.restores.ctx.Err() == nil {
		h.options.logger().Warn("bowline: sessions cannot be taken from the store", "error", err)
	}
	switch {
	case failed:
		return overloaded(jsonrpc.ID{}, "sessions cannot be restored now")
	case unknown:
		return &refusal{unknown: true}
	case isOwned:
		refused := moving(jsonrpc.ID{})
		refused.owner = owned.Node
		return refused
	default:
		return nil
	}
}

// isValid reports whether a session can go on from a record.
// Stores are the programs' own, so it is checked.
func (r *SessionRecord) isValid() bool {
	m, err := jsonrpc.Decode(r.Initialize, jsonrpc.Limits{})
	return err == nil && m.Kind == jsonrpc.KindRequest && m.Method == protocol.MethodInitialize &&
		len(r.Initialize) <= MaxStoredInitialize && r.Streams <= mostNumbers
}

// newRestored returns a link that continues a session. Its numbers begin where those of the
// processes before certainly have ended.
func (h *Handler) newRestored(key clientKey, saved *savedSession, origin *transport.Origin) *serverLink {
	used := saved.used
	l := &serverLink{
		session: saved.id, key: key, http: origin.HTTP, size: int32(len(saved.record.Initialize)), saved: saved,
		opened: transport.Stream(used), main: &mainStream{head: used, taken: used},
	}
	if !h.options.NoListening {
		l.since = time.Now()
	}
	return l
}

// replay begins a session again at its server, and then lets requests use it. If it fails for
// a reason that may pass, anyone may take the session. Otherwise the session has ended.
func (h *Handler) replay(ctx context.Context, l *serverLink, origin *transport.Origin) *refusal {
	if refused := h.addLink(l, jsonrpc.ID{}); refused != nil {
		l.saved.end(true)
		return refused
	}
	// Whatever fails from here on, the link ends, which gives the session back to the store, unless it
	// has ended for good.
	isOpen := false
	defer func() {
		if !isOpen {
			l.end(transport.ErrClosed, 0)
		}
	}()
	if l.accept(); !l.recv.Bound() {
		return shuttingDown(jsonrpc.ID{})
	}
	record := &l.saved.record // nobody changes these parts of it
	version, rejected := h.initializeAs(ctx, l, slices.Clone(record.Initialize), origin)
	if rejected || version != "" && version != record.Version {
		l.saved.end(false)
		return &refusal{unknown: true}
	}
	if version == "" || l.initialized(ctx, origin) != nil {
		return moving(jsonrpc.ID{})
	}
	if isOpen = h.table.accepted(l); !isOpen {
		return moving(jsonrpc.ID{})
	}
	l.saved.serve(version)
	h.table.confirm(l)
	h.table.leave(l)
	return nil
}
