package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// With JSONOnly every response is JSON, in every revision: of calls that are slow, report progress, log, or want a stream or to be polled. A question to a client of
// a session fails, and the handler learns why; one of 2026-07-28 is answered. Clients that want to know of changes work without.
//
// Guarantees: G-0106.9
func TestJSONOnly(t *testing.T) {
	for _, version := range protocol.Versions()[1:] { // the first one has no Streamable HTTP
		t.Run(version, func(t *testing.T) {
			failed := make(chan error, 1)
			s := newServer(server.Options{})
			server.AddTool(s, protocol.Tool{Name: "work"}, func(ctx context.Context, _ struct{}) (string, error) {
				server.Progress(ctx, 1, 2, "half")
				server.Logger(ctx).Info("works")
				if server.Stream(ctx) || server.Poll(ctx, time.Millisecond) {
					t.Error("the response can become a stream, want neither Stream nor Poll to do anything")
				}
				pass(20 * time.Millisecond) // longer than a stream may be silent
				return "done", nil
			})
			server.AddTool(s, protocol.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
				roots, err := server.Roots(ctx)
				if err != nil {
					failed <- err
					return "", err
				}
				return roots[0].URI, nil
			}, server.Asks(server.Waits, protocol.ClientCapabilities{}))
			h := streamable.NewHandler(s, streamable.HandlerOptions{JSONOnly: true, KeepAlive: time.Millisecond})
			var mu sync.Mutex
			types := make(map[string]int)
			site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r)
				mu.Lock()
				defer mu.Unlock()
				types[r.Method+" "+w.Header().Get("Content-Type")]++
			}))
			defer site.Close()
			defer h.Close(0)
			defer s.Close(t.Context())
			reports := 0
			session := open(t, &streamable.Client{URL: site.URL}, client.Options{
				ProtocolVersion: version, OnEvent: func(context.Context, *client.Session, client.Event) {}, LogLevel: protocol.LogDebug,
				Roots: func(context.Context, *client.Session) ([]protocol.Root, error) {
					return []protocol.Root{{URI: "file:///a"}}, nil
				},
			})
			text, err := client.Call[string](t.Context(), session.With(client.CallOptions{OnProgress: func(*protocol.ProgressParams) { reports++ }}), "work", nil)
			if err != nil || text != "done" || reports > 0 {
				t.Errorf("got %q, %v, and %d reports; want done and none", text, err, reports)
			}
			text, err = client.Call[string](t.Context(), session, "ask", nil)
			if protocol.IsModern(version) {
				if err != nil || text != "file:///a" {
					t.Errorf("a question: got %q, %v, want the roots", text, err)
				}
			} else if why := failure(failed); !errors.Is(why, transport.ErrNoRoute) || err == nil {
				t.Errorf("a question: the handler got %v, and the client %q, %v; want %v", why, text, err, transport.ErrNoRoute)
			}
			if err := session.Close(t.Context()); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for kind := range types {
				if strings.Contains(kind, "event-stream") {
					t.Errorf("there was a stream of events: %v", types)
				}
			}
			if types["POST application/json"] < 3 {
				t.Errorf("got %v, want responses in JSON", types)
			}
		})
	}
}

// failure returns why a question has failed, or nil if it has not.
func failure(failed <-chan error) error {
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
