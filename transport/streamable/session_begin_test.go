package streamable

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A closingWriter is a client that closes its connection as soon as it has the result.
type closingWriter struct {
	*httptest.ResponseRecorder
	leave context.CancelFunc
}

func (w *closingWriter) Write(text []byte) (int, error) {
	n, err := w.ResponseRecorder.Write(text)
	if bytes.Contains(text, []byte(`"result"`)) {
		w.leave()
	}
	return n, err
}

// A client that closes its connection after the response to initialize keeps its session.
// If the client leaves before, the session ends, because nobody knows its id.
//
// Guarantees: G-0022.12
func TestSessionOutlivesTheConnectionThatBeganIt(t *testing.T) {
	for name, test := range map[string]struct {
		events, leavesFirst bool
		lost                int
	}{
		"after a response as JSON":   {false, false, 0},
		"after a response as events": {true, false, 0},
		"before the response":        {false, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			a := newAcceptor(func(p *peer, in transport.Inbound, m jsonrpc.Message) {
				if test.leavesFirst {
					leave()
				}
				if test.events {
					p.link.Send(transport.Outbound{Stream: in.Stream, Frame: notice(0)})
				}
				respond(p, in, m)
			})
			h := NewHandler(a, HandlerOptions{})
			defer a.finish(t)
			defer h.Close(0)
			r := newRequest(http.MethodPost, initializeBody("2025-11-25")).WithContext(ctx)
			serveHTTP(h, &closingWriter{httptest.NewRecorder(), leave}, r)
			if lost := a.peer(t, 0).count(func(p *peer) int { return len(p.losses) }); lost != test.lost {
				t.Errorf("got %d losses of the session, want %d", lost, test.lost)
			}
		})
	}
}
