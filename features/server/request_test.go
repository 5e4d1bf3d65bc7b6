package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A middleware learns the id of each message: of a request from its start, of a question when it was sent, and of nothing else.
func TestIDsOfMessages(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := make(map[string]string)
		name := func(id jsonrpc.ID) string {
			if id.IsZero() {
				return "none"
			}
			return string(id.Append(nil))
		}
		s := newServer(server.Options{Middleware: []server.Middleware{func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				before, of := name(r.ID()), r.Method
				if call, ok := r.Params.(*protocol.CallToolParams); ok {
					of += " " + call.Name
				}
				result, err := next(ctx, r)
				mu.Lock()
				defer mu.Unlock()
				seen[of] = strings.Join([]string{before, name(r.ID()), r.Target(), "of " + r.Origin.Identity, fmt.Sprint(r.Session != nil)}, " ")
				return result, err
			}
		}}})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			server.Progress(ctx, 1, 2, "")
			return "", server.Confirm(ctx, "Sure?")
		}, server.Asks(server.Waits, forms))
		server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", nil })
		w := dialFrom(t, s, &transport.Origin{Identity: "ada"})
		w.session()
		w.send(legacy(`"call"`, "tools/call", `"name":"t","_meta":{"progressToken":1}`))
		first, second := w.next(), w.next() // one is the report, the other the question
		asked := idOf(first) + idOf(second)
		w.send(`{"jsonrpc":"2.0","id":` + asked + `,"result":{"action":"accept","content":{}}}`)
		w.want(`"id":"call"`, `"result"`)
		w.wantFault(jsonrpc.CodeInvalidParams, legacy(`7`, "prompts/get", `"name":"none"`))
		w.wantFault(jsonrpc.CodeInvalidParams, legacy(`8`, "tools/call", `"name":"none"`))
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		for method, want := range map[string]string{
			"initialize": `"i" "i"  of ada false`, "tools/call t": `"call" "call" t of ada true`, "elicitation/create": "none " + asked + "  of ada true",
			protocol.NotificationProgress: "none none  of ada true", protocol.NotificationInitialized: "none none  of ada true",
			"prompts/get": "7 7  of ada true", "tools/call none": "8 8  of ada true",
		} {
			if got := seen[method]; got != want {
				t.Errorf("%s: the ids before and after, the target, the origin and whether it has a session are %q, want %q", method, got, want)
			}
		}
	})
}

// A notification is harmless before initialize, and without a callback for it. Whoever sees it gets a client, an origin, and no session.
func TestNotificationsWithoutASession(t *testing.T) {
	for name, o := range map[string]server.Options{"no callback": {}, "all callbacks": {
		OnRootsChanged: func(_ context.Context, s *server.Session) {
			if s == nil {
				t.Error("OnRootsChanged got no session")
			}
		},
		Fallback: func(context.Context, *server.Request) (any, error) { return nil, nil },
	}} {
		testenv.Bubble(t, func(t *testing.T) {
			var mu sync.Mutex
			seen := 0
			o, panics := reporting(o)
			o.Middleware = []server.Middleware{func(next server.Handler) server.Handler {
				return func(ctx context.Context, r *server.Request) (any, error) {
					mu.Lock()
					defer mu.Unlock()
					if seen++; r.Client == nil || r.Origin == nil || r.Session != nil || !r.Notification || r.Outgoing {
						t.Errorf("%s: got %+v, want a notification with a client and an origin", name, r)
					}
					return next(ctx, r)
				}
			}}
			w := dial(t, newServer(o))
			for _, method := range []string{protocol.NotificationInitialized, protocol.NotificationRootsListChanged, "notifications/unknown"} {
				w.send(`{"jsonrpc":"2.0","method":"` + method + `"}`)
			}
			wantPanics(t, panics)
			mu.Lock()
			if seen != 3 {
				t.Errorf("%s: the middleware saw %d notifications, want 3", name, seen)
			}
			mu.Unlock()
			for _, params := range []string{``, `"_meta":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"name":"t"`} {
				if fault := w.wantFault(jsonrpc.CodeInvalidRequest, legacy(`1`, "tools/call", params)); !strings.Contains(fault.Message, "tools/call before initialize") {
					t.Errorf("%s: got %v, want what is missing", name, fault)
				}
			}
			wantPanics(t, panics)
		})
	}
	testenv.Bubble(t, func(t *testing.T) { // with a session, but without a callback
		o, panics := reporting(server.Options{})
		w := dial(t, newServer(o))
		w.initialize(protocol.Version20251125)
		w.send(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`, `{"jsonrpc":"2.0","method":"notifications/unknown"}`)
		wantPanics(t, panics)
	})
}

// A contextStore remembers the contexts that it got.
type contextStore struct {
	server.MemoryTaskStore
	mu  sync.Mutex
	all map[string][]context.Context
}

func (c *contextStore) saw(method string, ctx context.Context, most time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[string][]context.Context)
	}
	if end, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded || time.Until(end) != most {
		method += ", without its time"
	}
	c.all[method] = append(c.all[method], ctx)
}

func (c *contextStore) Save(ctx context.Context, r *server.TaskRecord) error {
	c.saw("Save", ctx, 10*time.Second)
	return c.MemoryTaskStore.Save(ctx, r)
}

func (c *contextStore) Delete(ctx context.Context, id string) error {
	c.saw("Delete", ctx, 10*time.Second)
	return c.MemoryTaskStore.Delete(ctx, id)
}

// What the server calls after a request has a time of its own, and its context ends when it returns. So does that of a handler.
func TestContextsEndWithWhatTheyAreFor(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		store := new(contextStore)
		s := newServer(server.Options{
			Tasks:         &server.TaskOptions{Store: store, TTL: time.Hour},
			OnSubscribe:   func(context.Context, string) error { return nil },
			OnUnsubscribe: func(ctx context.Context, uri string) { store.saw("OnUnsubscribe "+uri, ctx, 5*time.Second) },
		})
		handler := func(how string) func(context.Context, struct{}) (string, error) {
			return func(ctx context.Context, _ struct{}) (string, error) {
				store.mu.Lock()
				store.all[how] = append(store.all[how], ctx)
				store.mu.Unlock()
				return "done", nil
			}
		}
		store.all = make(map[string][]context.Context)
		supports := &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}
		server.AddTool(s, protocol.Tool{Name: "plain"}, handler("plain"))
		server.AddTool(s, protocol.Tool{Name: "task", Execution: supports}, handler("task"))
		server.AddTool(s, protocol.Tool{Name: "waits"}, handler("waits"), server.Asks(server.Waits, forms))
		server.AddTool(s, protocol.Tool{Name: "reruns"}, handler("reruns"), server.Asks(server.Reruns, forms))
		server.AddTool(s, protocol.Tool{Name: "stays", Execution: supports}, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		server.AddTool(s, protocol.Tool{Name: "explicit"}, func(ctx context.Context, in struct{}) (string, error) {
			if len(server.RequestFrom(ctx).Answers) > 0 {
				return handler("explicit")(ctx, in)
			}
			return "", &server.InputRequired{Requests: question("a")}
		})
		w, old := dial(t, s), dial(t, s)
		old.session()
		w.beginTask("task")
		w.beginTask("stays")
		for _, tool := range []string{"plain", "waits", "reruns"} {
			w.ask(withForms(`1`, "tools/call", `"name":"`+tool+`"`))
			old.ask(legacy(`1`, "tools/call", `"name":"`+tool+`"`))
		}
		old.send(legacy(`1`, "tools/call", `"name":"explicit"`))
		old.send(`{"jsonrpc":"2.0","id":` + idOf(old.next()) + `,"result":{"action":"accept","content":{"a":"b"}}}`)
		old.want(`done`)
		old.ask(legacy(`1`, "resources/subscribe", `"uri":"x://old"`))
		w.send(modern(`"l"`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://new"]}`))
		w.want("acknowledged")
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}`)
		old.link.Close(0)
		pass(2 * time.Hour)
		synctest.Wait()
		store.mu.Lock()
		defer store.mu.Unlock()
		for what, n := range map[string]int{
			"Save": 4, "Delete": 1, "OnUnsubscribe x://old": 1, "OnUnsubscribe x://new": 1,
			"plain": 2, "task": 1, "waits": 2, "reruns": 2, "explicit": 1,
		} {
			if got := len(store.all[what]); got != n {
				t.Errorf("%s: was called %d times with the time that it has, want %d", what, got, n)
			}
			for _, ctx := range store.all[what] {
				if !errors.Is(ctx.Err(), context.Canceled) {
					t.Errorf("%s: its context has ended with %v, want %v", what, ctx.Err(), context.Canceled)
				}
			}
		}
		s.Close(context.Background())
	})
}
