package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// A restartable is a process that serves an endpoint, and is replaced by others on the same
// folder.
type restartable struct {
	t    *testing.T
	dir  string
	site *httptest.Server

	mu       sync.Mutex
	sessions []bool   // Restored of each session, in the order in which they began
	asked    []string // what OnSubscribe was asked: the process, the resource and the identity
	denies   string   // the resource that OnSubscribe denies

	process int
	server  *server.Server
	handler atomic.Pointer[streamable.Handler] // nil: nobody answers
	stop    func()
}

func newRestartable(t *testing.T) *restartable {
	r := &restartable{t: t, dir: t.TempDir()}
	r.site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if h := r.handler.Load(); h != nil {
			h.ServeHTTP(w, request)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	r.start()
	t.Cleanup(func() {
		r.stop()
		r.site.Close()
	})
	return r
}

// start starts the next process.
func (r *restartable) start() {
	r.process++
	process := r.process
	store, err := streamable.OpenFileSessions(r.dir, streamable.FileSessionsOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.server = newServer(server.Options{
		SessionContext: func(ctx context.Context, s *server.Session) context.Context {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.sessions = append(r.sessions, s.Restored())
			return ctx
		},
		OnSubscribe: func(ctx context.Context, uri string) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.asked = append(r.asked, fmt.Sprint(process, " ", uri, " ", server.RequestFrom(ctx).Origin.Identity))
			if uri == r.denies {
				return errors.New("denied")
			}
			return nil
		},
	})
	server.AddTool(r.server, protocol.Tool{Name: "log"}, func(ctx context.Context, _ struct{}) (string, error) {
		server.Logger(ctx).Info("left out")
		server.Logger(ctx).Warn("logged")
		return "done", nil
	})
	h := streamable.NewHandler(r.server, streamable.HandlerOptions{
		Sessions: store, Retry: 10 * time.Millisecond,
		Identify: func(request *http.Request) string { return request.Header.Get("X-User") },
	})
	r.handler.Store(h)
	r.stop = func() {
		r.handler.Store(nil)
		if err := h.Shutdown(context.Background(), nil); err != nil {
			r.t.Error(err)
		}
		if err := store.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

// A session goes on in a new process on the same folder, without a new session of the client:
// with its log level, and with the subscriptions that OnSubscribe still allows its identity. The
// client learns that everything may have changed, and later of each change.
//
// Guarantees: G-0074.2, G-0074.3
func TestSessionGoesOnAfterARestart(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := newRestartable(t)
	events := make(chan client.Event, 1000)
	session, err := client.New(protocol.Implementation{Name: "c", Version: "1"}, client.Options{
		ProtocolVersion: protocol.Version20251125, LogLevel: protocol.LogWarning,
		OnEvent: func(_ context.Context, _ *client.Session, e client.Event) { events <- e },
	}).Connect(ctx, &streamable.Client{URL: r.site.URL, Header: http.Header{"X-User": {"ada"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close(context.Background())
	// within reports whether the events came, in any order, before the end of a context.
	within := func(ctx context.Context, want ...string) bool {
		t.Helper()
		for len(want) > 0 {
			select {
			case e := <-events:
				got := fmt.Sprintf("%T %v", e, e)
				if message, ok := e.(*client.LogMessage); ok {
					got = "log " + string(message.Data)
				}
				if _, lost := e.(*client.Lost); lost {
					t.Fatalf("the client has lost its session: %s", got)
				}
				want = slices.DeleteFunc(want, func(one string) bool { return one == got })
			case <-ctx.Done():
				return false
			}
		}
		return true
	}
	await := func(want ...string) {
		t.Helper()
		if !within(ctx, want...) {
			t.Fatalf("the client did not get %q", want)
		}
	}
	for _, uri := range []string{"x://a", "x://b"} {
		if err := session.Subscribe(ctx, &protocol.SubscribeParams{URI: uri}); err != nil {
			t.Fatal(err)
		}
	}
	r.server.ResourceUpdated("x://a")
	await("*client.ResourceUpdated &{x://a}")

	r.stop()
	r.mu.Lock()
	r.denies = "x://b"
	r.mu.Unlock()
	r.start()
	const updated = "*client.ResourceUpdated &{x://"
	await("*client.ToolsChanged &{}", "*client.ResourcesChanged &{}", updated+"a}", updated+"b}")
	r.server.ResourceUpdated("x://b")
	r.server.ResourceUpdated("x://a")
	await(updated + "a}")
	for logged := false; !logged; { // a message is dropped if the link is busy just then
		if _, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "log"}); err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(ctx, time.Second)
		logged = within(soon, `log "logged"`)
		cancel()
	}

	r.stop() // and once more: what was restored is kept
	r.start()
	await("*client.ToolsChanged &{}", updated+"a}")
	r.mu.Lock()
	defer r.mu.Unlock()
	if want := []bool{false, true, true}; !slices.Equal(r.sessions, want) {
		t.Errorf("the sessions are restored: %v, want %v", r.sessions, want)
	}
	if want := []string{"1 x://a ada", "1 x://b ada", "2 x://a ada", "2 x://b ada", "3 x://a ada"}; !slices.Equal(r.asked, want) {
		t.Errorf("OnSubscribe was asked for %q, want %q", r.asked, want)
	}
}
