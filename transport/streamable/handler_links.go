package streamable

import (
	"context"
	"fmt"
	"net/http"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/web"
)

// sharedLink returns the link for a client's messages without a session, and opens it if
// there is none. The caller uses the link until it calls table.leave.
func (h *Handler) sharedLink(ctx context.Context, key clientKey, b *body) (*serverLink, *refusal) {
	for {
		l, opening := h.table.findShared(key)
		if l != nil {
			return l, nil
		}
		if opening == nil {
			defer h.table.opened(key)
			return h.openLink(&serverLink{key: key, http: b.origin.HTTP}, b.ID)
		}
		select {
		case <-opening:
		case <-ctx.Done():
			return nil, unavailable(b.ID, "the client has left")
		}
	}
}

// openLink passes a new link to its acceptor. The caller uses the link until it calls
// table.leave.
func (h *Handler) openLink(l *serverLink, id jsonrpc.ID) (*serverLink, *refusal) {
	l.common = &h.common
	evicted, ok := h.table.add(l)
	for _, idle := range evicted {
		idle.end(transport.ErrSessionExpired, 0)
	}
	if !ok {
		if drains, _ := h.table.drains(l.session); drains {
			return nil, shuttingDown(id)
		}
		return nil, overloaded(id, "no more sessions are possible now")
	}
	isOpen := false
	defer func() {
		if !isOpen {
			l.end(transport.ErrClosed, 0)
		}
	}()
	l.key.acceptor.Accept(l)
	if isOpen = l.told.Bound() && h.table.accepted(l); !isOpen {
		return nil, shuttingDown(id)
	}
	return l, nil
}

// postStateless serves a message of a revision with sessions, without keeping a session.
// For a request, the handler begins a session, and ends it afterwards, in place of the
// client. A message that is not a request is accepted and ignored.
func (h *Handler) postStateless(w http.ResponseWriter, r *http.Request, b *body) *refusal {
	if refused := checkLegacyVersion(r.Header, b.requestID()); refused != nil {
		return refused
	}
	version := r.Header.Get(headerVersion)
	if version == "" {
		version = protocol.Version20250326
	}
	if b.batch {
		if version != protocol.Version20250326 {
			return invalid(jsonrpc.ID{}, "%v", jsonrpc.ErrBatch)
		}
		if refused := b.decodeBatch(); refused != nil {
			return refused
		}
	}
	if refused := h.allow(b); refused != nil {
		return refused
	}
	if !b.asks {
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	a, refused := h.choose(r, b.requestID())
	if refused != nil {
		return refused
	}
	key := clientKey{a, b.from}
	l, refused := h.openLink(&serverLink{session: newSessionID(), key: key, http: b.origin.HTTP, size: int32(min(len(b.frame), web.MaxInitialize)), stateless: true}, b.requestID())
	if refused != nil {
		return refused
	}
	defer l.end(transport.ErrPeerClosed, 0)
	defer h.table.leave(l)
	if !b.initializes() {
		if refused := h.begin(l, r, b, version); refused != nil {
			return refused
		}
	}
	_, refused = h.answer(l, w, r, b)
	return refused
}

// begin initializes a link for the client, in the revision of its request.
func (h *Handler) begin(l *serverLink, r *http.Request, b *body, version string) *refusal {
	initialize := fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":%q,"params":{"protocolVersion":%q,"capabilities":{},`+
		`"clientInfo":{"name":"stateless","version":"0"}}}`, protocol.MethodInitialize, version)
	answer := &ignored{header: http.Header{}}
	_, refused := h.answer(l, answer, r, own(initialize, b.origin))
	negotiated := l.negotiatedVersion()
	if refused != nil || answer.status != http.StatusOK || negotiated == "" {
		return unavailable(b.requestID(), "the server does not serve this revision")
	}
	if negotiated != version {
		return invalid(b.requestID(), "the revision of the request is %s, and the server speaks %.80q", version, negotiated)
	}
	initialized := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q}`, protocol.NotificationInitialized)
	if l.deliver(answer, r, own(initialized, b.origin)) != nil {
		return unavailable(b.requestID(), "the server does not serve this revision")
	}
	return nil
}

// own returns a message that the handler sends in the name of a client.
func own(text string, from *transport.Origin) *body {
	origin := *from
	b := &body{frame: []byte(text), origin: &origin, implied: true, control: *http.NewResponseController(&ignored{})}
	b.decode() // it is a message
	return b
}

// An ignored is a ResponseWriter that discards the response.
type ignored struct {
	header http.Header
	status int
}

func (i *ignored) Header() http.Header { return i.header }

func (i *ignored) WriteHeader(status int) { i.status = status }

func (i *ignored) Write(text []byte) (int, error) { return len(text), nil }

func (i *ignored) Flush() {}
