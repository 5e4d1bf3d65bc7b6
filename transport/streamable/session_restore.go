package streamable

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

const (
	// restorePatience is how long a request waits until its session is here.
	restorePatience = 5 * time.Second

	// mostRestores is how many sessions are restored at a time.
	mostRestores = 64
)

// restores are the sessions that are being restored: taken from the store, and begun again
// at the server.
type restores struct {
	places  *share.Pool // keeps one client from delaying the others
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	all    map[string]*restore
	failed bool // the store could not tell, when it was asked last
	closed bool
}

func newRestores(stopped <-chan struct{}) *restores {
	// shared: sessions that are restored from their store | mostRestores places | one | the request waits, and is refused with 503 | `HTTPSample.Refused`
	all := &restores{places: share.New(mostRestores, 1, stopped), all: make(map[string]*restore)}
	all.ctx, all.cancel = context.WithCancel(context.Background())
	return all
}

// A restore is one attempt to restore a session, for the identity of the request that came
// first.
type restore struct {
	identity string
	done     chan struct{}
	refused  *refusal // why the session was not restored; nil if it was. Set before done is closed
	lost     bool     // another node has taken the session meanwhile; guarded by restores.mu
}

// join returns the attempt to restore a session, or nil after close. If it is the first, the
// caller makes it, and then calls finish.
func (all *restores) join(session, identity string) (_ *restore, first bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if r := all.all[session]; r != nil || all.closed {
		return r, false
	}
	all.running.Add(1)
	r := &restore{identity: identity, done: make(chan struct{})}
	all.all[session] = r
	return r, true
}

func (all *restores) finish(session string, r *restore) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.all, session)
	close(r.done)
	all.running.Done()
}

// close ends all attempts, and waits for them.
func (all *restores) close() {
	if all == nil {
		return
	}
	all.mu.Lock()
	all.closed = true
	all.mu.Unlock()
	all.cancel()
	all.running.Wait()
}

// has reports whether a session is being restored.
func (all *restores) has(session string) bool {
	if all == nil {
		return false
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.all[session] != nil
}

// fails notes whether the store could tell, and reports whether it could not for the first time.
func (all *restores) fails(failed bool) (first bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	first = failed && !all.failed
	all.failed = failed
	return first
}

// lose notes that another node has taken a session.
func (all *restores) lose(session string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if r := all.all[session]; r != nil {
		r.lost = true
	}
}

func (all *restores) isLost(r *restore) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return r.lost
}

// restore restores the session that a request names, if it is not here and the store has it.
// Requests of one session that come at the same time wait for one attempt.
func (h *Handler) restore(r *http.Request, origin *transport.Origin) *refusal {
	session := r.Header.Get(headerSession)
	ctx, cancel := context.WithTimeout(r.Context(), restorePatience)
	defer cancel()
	for !h.table.has(session) {
		attempt, first := h.restores.join(session, origin.Identity)
		if attempt == nil {
			return shuttingDown(jsonrpc.ID{})
		}
		if first {
			h.attempt(attempt, r, origin)
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
func (h *Handler) attempt(to *restore, r *http.Request, origin *transport.Origin) {
	session := r.Header.Get(headerSession)
	defer h.restores.finish(session, to)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), restorePatience)
	defer cancel()
	defer context.AfterFunc(h.restores.ctx, cancel)()
	to.refused = h.take(r.WithContext(ctx), session, origin)
	if h.restores.isLost(to) {
		h.lost(session)
	}
}

// take takes a session from the store, and begins it again at its server.
func (h *Handler) take(r *http.Request, session string, origin *transport.Origin) *refusal {
	if h.table.drains() {
		return shuttingDown(jsonrpc.ID{})
	}
	a, refused := h.choose(r, jsonrpc.ID{})
	if refused != nil {
		return refused
	}
	client := web.ClientOf(origin.Identity, origin.Address())
	if claim := h.restores.places.Claim(client, 1); claim != nil && !claim.Wait(r.Context()) {
		return overloaded(jsonrpc.ID{}, "too many sessions are being restored")
	}
	defer h.restores.places.Give(client, 1)
	record, err := h.savings.store.Take(r.Context(), session, origin.Identity)
	if refused := h.notTaken(err); refused != nil {
		return refused
	}
	saved := h.savings.resume(session, record)
	switch {
	case record.Identity != origin.Identity: // a mistake of the store, which must not matter
		saved.end(true)
		return &refusal{unknown: true}
	case !record.isValid():
		saved.end(false)
		return &refusal{unknown: true}
	}
	return h.replay(h.newRestored(clientKey{a, client}, saved, origin), r, origin)
}

// notTaken returns what an error of SessionStore.Take says about a session. Err may be nil.
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
		l.left = time.Now()
	}
	return l
}

// replay begins a session again at its server, and then lets requests use it. If it fails for
// a reason that may pass, anyone may take the session. Otherwise the session has ended.
func (h *Handler) replay(l *serverLink, r *http.Request, origin *transport.Origin) *refusal {
	if refused := h.addLink(l, jsonrpc.ID{}); refused != nil {
		l.saved.end(true)
		return refused
	}
	isOpen := false
	defer func() {
		if !isOpen {
			l.end(transport.ErrClosed, 0)
		}
	}()
	if l.accept(); !l.told.Bound() {
		return shuttingDown(jsonrpc.ID{})
	}
	record := &l.saved.record // nobody changes these parts of it
	version, rejected := h.initializeAs(r.Context(), l, slices.Clone(record.Initialize), origin)
	if rejected || version != "" && version != record.Version {
		l.saved.end(false)
		return &refusal{unknown: true}
	}
	if version == "" || l.initialized(r.Context(), origin) != nil {
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

// lost ends this node's copy of a session that another node has taken.
func (h *Handler) lost(session string) {
	if h.restores == nil {
		return
	}
	h.restores.lose(session)
	if l := h.table.lookup(session); l != nil && l.saved != nil {
		l.saved.lose()
		l.end(transport.ErrSessionMoved, 0)
	}
}
