package streamable

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// sharedLink returns the link for a client's messages without a session, and opens it if
// there is none. The caller uses the link until it calls table.leave.
// One request opens it. The others wait for that and look again, because it may have failed.
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

// addLink adds a new link to the table, where no request may use it yet.
func (h *Handler) addLink(l *serverLink, id jsonrpc.ID) *refusal {
	l.common = &h.common
	evicted, ok := h.table.add(l)
	// Not in the table, whose lock is held for moments: to end a link waits for its requests.
	for _, idle := range evicted {
		idle.end(transport.ErrSessionExpired, 0)
	}
	switch {
	case ok:
		return nil
	case h.table.drains():
		return shuttingDown(id)
	default:
		return overloaded(id, "no more sessions are possible now")
	}
}

// openLink passes a new link to its acceptor. The caller uses the link until it calls
// table.leave.
func (h *Handler) openLink(l *serverLink, id jsonrpc.ID) (*serverLink, *refusal) {
	if refused := h.addLink(l, id); refused != nil {
		return nil, refused
	}
	// Also if the acceptor panics, a link that is not open ends.
	isOpen := false
	defer func() {
		if !isOpen {
			l.end(transport.ErrClosed, 0)
		}
	}()
	// In the table already, so that the link counts while its acceptor may take long, but no request
	// finds it.
	l.accept()
	if isOpen = l.recv.Bound() && h.table.accepted(l); !isOpen {
		return nil, shuttingDown(id)
	}
	return l, nil
}

// begin initializes a link for the client, in the revision of its request.
// The client has sent no initialize, so this is the least that one can say.
func (h *Handler) begin(ctx context.Context, l *serverLink, b *body, version string) *refusal {
	initialize := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":%q,"params":{"protocolVersion":%q,"capabilities":{},`+
		`"clientInfo":{"name":"stateless","version":"0"}}}`, protocol.MethodInitialize, version)
	switch negotiated, _ := h.initializeAs(ctx, l, initialize, b.origin); {
	case negotiated == "":
		return unavailable(b.requestID(), "the server does not serve this revision")
	case negotiated != version:
		return invalid(b.requestID(), "the revision of the request is %s, and the server speaks %.80q", version, negotiated)
	}
	if l.initialized(ctx, b.origin) != nil {
		return unavailable(b.requestID(), "the server does not serve this revision")
	}
	return nil
}

// initializeAs initializes a link in the name of a client. It returns the revision that was
// negotiated, or "" if none was, and whether the server answered with an error.
func (h *Handler) initializeAs(ctx context.Context, l *serverLink, initialize []byte, origin *transport.Origin) (version string, isRejected bool) {
	answer := &ignored{header: http.Header{}}
	b := own(initialize, origin)
	// It takes room as a request of the client does.
	s, refused := h.open(ctx, l, answer, b)
	if refused != nil || s.serve(ctx, b) != nil || answer.status != http.StatusOK {
		return "", false
	}
	return l.negotiatedVersion(), s.session == rejected
}

// initialized tells a link in the name of a client that it is initialized.
func (l *serverLink) initialized(ctx context.Context, origin *transport.Origin) *refusal {
	notification := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q}`, protocol.NotificationInitialized)
	return l.deliver(ctx, &ignored{header: http.Header{}}, own(notification, origin))
}

// own returns a message that the handler sends in the name of a client.
// The origin is a copy, because each request has its own Exchange in it.
func own(text []byte, from *transport.Origin) *body {
	origin := *from
	b := &body{frame: text, origin: &origin, implied: true, whole: time.Now(), control: *http.NewResponseController(&ignored{})}
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

// open opens the stream of a request on a link, as soon as there is room for what the request takes.
// If the stream is not opened, the room is given back here; otherwise the exchange gives it back.
func (h *Handler) open(ctx context.Context, l *serverLink, w http.ResponseWriter, b *body) (*exchange, *refusal) {
	taken, ok := h.served.take(ctx, b.due(), l.key.Client, len(b.frame)+int(b.Memory), b.Method == protocol.MethodListen)
	switch {
	case !ok && wait.IsClosed(h.stopped):
		return nil, shuttingDown(b.requestID())
	case !ok:
		return nil, overloaded(b.requestID(), "too much is being served")
	}
	s, refused := l.openStream(w, b, taken, &h.options)
	if refused != nil {
		h.served.give(l.key.Client, taken)
		return nil, refused
	}
	return s, nil
}
