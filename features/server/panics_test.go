package server_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
)

// reporting returns server options that send each reported panic to a channel.
func reporting(o server.Options) (server.Options, chan telemetry.Panic) {
	panics := make(chan telemetry.Panic, 100)
	o.Conn.Hooks.Panic = func(p telemetry.Panic) { panics <- p }
	return o, panics
}

// wantPanics checks which panics were reported since its last call, and that each
// report contains the stack of the panic.
func wantPanics(t *testing.T, panics chan telemetry.Panic, where ...string) {
	t.Helper()
	synctest.Wait()
	for _, where := range where {
		if len(panics) == 0 {
			t.Fatalf("the panic of %s was not reported", where)
		}
		if p := <-panics; p.Where != where || p.Value != "broken" || !strings.Contains(string(p.Stack), "server_test.panicBroken") {
			t.Errorf("got the panic of %s: %v\n%s, want p.Where == %v, p.Value == %q and %q in it", p.Where, p.Value, p.Stack, where, "broken", "server_test.panicBroken")
		}
	}
	for len(panics) > 0 {
		t.Errorf("got another panic of %s", (<-panics).Where)
	}
}

//go:noinline
func panicBroken() { panic("broken") }

// A panic of OnUnsubscribe affects only that call. The other subscriptions still end,
// and the server continues.
//
// Guarantees: G-0009.10
func TestPanicOfOnUnsubscribe(t *testing.T) {
	for name, connect := range map[string]func(*testing.T, *server.Server) *rawPeer{"served": dial, "accepted": accept} {
		for era, subscribe := range map[string]func(w *rawPeer){
			"legacy": func(w *rawPeer) {
				w.initialize(protocol.Version20251125)
				for _, uri := range []string{"x://a", "x://b"} {
					w.ask(`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"` + uri + `"}}`)
				}
			},
			"modern": func(w *rawPeer) {
				w.send(modern(`1`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://a","x://b"]}`))
				w.want("acknowledged")
			},
		} {
			testenv.Bubble(t, func(t *testing.T) {
				o, panics := reporting(server.Options{
					OnSubscribe:   func(context.Context, string) error { return nil },
					OnUnsubscribe: func(context.Context, string) { panicBroken() },
				})
				s := newServer(o)
				w := connect(t, s)
				subscribe(w)
				synctest.Wait()
				w.link.Close(0)
				t.Log(name, era)
				wantPanics(t, panics, "OnUnsubscribe", "OnUnsubscribe")
				other := connect(t, s)
				other.initialize(protocol.Version20251125)
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// A panic of a middleware affects only the message that it handles.
//
// Guarantees: G-0009.10
func TestPanicOfMiddlewareForOutgoingMessages(t *testing.T) {
	var on atomic.Value // a string
	middleware := func(next server.Handler) server.Handler {
		return func(ctx context.Context, r *server.Request) (any, error) {
			if r.Outgoing && r.Method == on.Load() {
				panicBroken()
			}
			return next(ctx, r)
		}
	}
	start := func(t *testing.T) (*server.Server, *rawPeer, chan telemetry.Panic) {
		o, panics := reporting(server.Options{Middleware: []server.Middleware{middleware}})
		s := newServer(o)
		server.AddTool(s, protocol.Tool{Name: "reports"}, func(ctx context.Context, _ struct{}) (string, error) {
			server.Progress(ctx, 1, 2, "")
			return "done", nil
		})
		server.AddTool(s, protocol.Tool{Name: "asks"}, func(ctx context.Context, _ struct{}) (string, error) {
			return "", server.Confirm(ctx, "Sure?")
		}, server.Asks(server.Waits, forms))
		w := dial(t, s)
		w.send(strings.Replace(strings.Replace(initializeFrame, "VERSION", protocol.Version20251125, 1), `capabilities":{}`, `capabilities":{"elicitation":{}}`, 1),
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
		w.want("init")
		return s, w, panics
	}
	for _, modernly := range []bool{false, true} {
		testenv.Bubble(t, func(t *testing.T) {
			on.Store(protocol.NotificationToolsListChanged)
			s, w, panics := start(t)
			if modernly {
				w = dial(t, s)
				w.listen(`1`)
				w.wantNothing()
			}
			addNamed(s, "another")
			pass(time.Second)
			if modernly {
				wantPanics(t, panics, protocol.NotificationToolsListChanged, protocol.NotificationToolsListChanged) // one for each client
			} else {
				wantPanics(t, panics, protocol.NotificationToolsListChanged)
			}
			on.Store("")
			addNamed(s, "another")
			w.want(announcement)
		})
	}
	testenv.Bubble(t, func(t *testing.T) {
		on.Store(protocol.NotificationProgress)
		_, w, panics := start(t)
		w.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"reports","_meta":{"progressToken":1}}}`)
		w.want(`"id":1`, `done`)
		wantPanics(t, panics, protocol.NotificationProgress)
	})
	testenv.Bubble(t, func(t *testing.T) {
		on.Store(protocol.MethodElicit)
		_, w, panics := start(t)
		if got := w.call("asks", `{}`); got.Error.Code != jsonrpc.CodeInternalError || got.Error.Message != "internal error" {
			t.Errorf("got %+v, want got.Error.Code == %v and got.Error.Message == %q", got, jsonrpc.CodeInternalError, "internal error")
		}
		wantPanics(t, panics, protocol.MethodElicit)
	})
}

// A panic in one notification of a change loses only that one: the others of the same moment come, and so do later ones.
//
// Guarantees: G-0009.10
func TestPanicOfOneNotificationLosesNoOther(t *testing.T) {
	all := []string{toldTools, toldPrompts, toldResources, toldUpdated + "x://a", toldUpdated + "x://b"}
	for _, broken := range append(all, "") {
		inBothEras(t, func(t *testing.T, modernly bool) {
			on := broken
			o, panics := reporting(changeable())
			o.Middleware = []server.Middleware{func(next server.Handler) server.Handler {
				return func(ctx context.Context, r *server.Request) (any, error) {
					about := r.Method
					if p, ok := r.Params.(*protocol.ResourceUpdatedParams); ok {
						about += " " + p.URI
					}
					if r.Outgoing && about == on {
						panicBroken()
					}
					return next(ctx, r)
				}
			}}
			s := newServer(o)
			w := listener(t, s, modernly)
			change := func(want []string) {
				addNamed(s, "t")
				server.AddPrompt(s, protocol.Prompt{Name: "p"}, func(context.Context, struct{}) (string, error) { return "", nil })
				server.AddResource(s, protocol.Resource{URI: "x://c", Name: "c"}, func(context.Context) (string, error) { return "", nil })
				s.ResourceUpdated("x://a")
				s.ResourceUpdated("x://b")
				w.wantTold(slices.Clone(want)...)
			}
			change(slices.DeleteFunc(slices.Clone(all), func(one string) bool { return one == broken }))
			if broken == "" {
				wantPanics(t, panics)
			} else {
				method, _, _ := strings.Cut(broken, " ")
				wantPanics(t, panics, method)
			}
			on = ""
			change(all)
			wantPanics(t, panics)
		})
	}
}

// A brokenStore panics in the method that the test selects.
type brokenStore struct {
	server.MemoryTaskStore
	in atomic.Value // a string
}

func (b *brokenStore) Save(ctx context.Context, r *server.TaskRecord) error {
	if b.in.Load() == "Save" {
		panicBroken()
	}
	return b.MemoryTaskStore.Save(ctx, r)
}

func (b *brokenStore) Load(ctx context.Context, id string) (*server.TaskRecord, error) {
	if b.in.Load() == "Load" {
		panicBroken()
	}
	return b.MemoryTaskStore.Load(ctx, id)
}

func (b *brokenStore) Delete(ctx context.Context, id string) error {
	if b.in.Load() == "Delete" {
		panicBroken()
	}
	return b.MemoryTaskStore.Delete(ctx, id)
}

// A panic of a TaskStore counts as an error of the store.
//
// Guarantees: G-0009.10
func TestPanicOfTaskStore(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		store := new(brokenStore)
		o, panics := reporting(server.Options{Tasks: &server.TaskOptions{Store: store, TTL: time.Hour}})
		s := newServer(o)
		goOn := make(chan struct{})
		server.AddTool(s, protocol.Tool{Name: "work", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
			func(ctx context.Context, _ struct{}) (string, error) {
				select {
				case <-goOn:
				case <-ctx.Done():
				}
				return "done", nil
			})
		w := dial(t, s)

		store.in.Store("Save")
		if got := w.ask(withTasks(`1`, "tools/call", `"name":"work"`)); got.Error == nil || got.Error.Code != jsonrpc.CodeInternalError || strings.Contains(got.Error.Message, "broken") {
			t.Errorf("got %+v, want an error, got.Error.Code == %v and no %q in it", got, jsonrpc.CodeInternalError, "broken")
		}
		wantPanics(t, panics, "TaskStore.Save")

		store.in.Store("")
		id := w.beginTask("work")
		store.in.Store("Save")
		goOn <- struct{}{}
		wantPanics(t, panics, "TaskStore.Save")
		store.in.Store("")
		if got := w.getTask(id); got.Task.Status != protocol.TaskCompleted { // the server keeps the outcome that it could not store
			t.Errorf("got %+v, want %v", got, protocol.TaskCompleted)
		}

		id = w.beginTask("work")
		store.in.Store("Delete")
		pass(2 * time.Hour)
		wantPanics(t, panics, "TaskStore.Delete")
		store.in.Store("Load")
		if got := w.getTask(id); got.Fault == nil || got.Fault.Code != jsonrpc.CodeInternalError || strings.Contains(got.Fault.Message, "broken") {
			t.Errorf("got %+v, want got.Fault != nil, got.Fault.Code == %v and no %q in it", got, jsonrpc.CodeInternalError, "broken")
		}
		wantPanics(t, panics, "TaskStore.Load")
		store.in.Store("")
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A panic of a handler that waits is reported once, when it happens, even if no round
// takes the outcome.
//
// Guarantees: G-0009.10
func TestPanicOfAHandlerThatWaits(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		o, panics := reporting(server.Options{})
		s := newServer(o)
		add := func(name string, f func(context.Context) (string, error)) {
			server.AddTool(s, protocol.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) { return f(ctx) }, server.Asks(server.Waits, forms))
		}
		add("at_once", func(context.Context) (string, error) { panicBroken(); return "", nil })
		add("later", func(ctx context.Context) (string, error) {
			_ = server.Confirm(ctx, "Sure?")
			panicBroken()
			return "", nil
		})
		add("leaves", func(context.Context) (string, error) { runtime.Goexit(); return "", nil })
		w := dial(t, s)
		if got := w.round("at_once", ""); !got.Error.is(jsonrpc.CodeInternalError, "internal error") {
			t.Errorf("got %+v, want the error %d with %q", got, jsonrpc.CodeInternalError, "internal error")
		}
		wantPanics(t, panics, "tools/call")
		first := w.round("later", "")
		if got := w.round("later", retryParams(first.State, yes)); !got.Error.is(jsonrpc.CodeInternalError, "internal error") {
			t.Errorf("got %+v, want the error %d with %q", got, jsonrpc.CodeInternalError, "internal error")
		}
		wantPanics(t, panics, "tools/call")
		w.round("later", "")
		pass(time.Hour) // the question expires
		wantPanics(t, panics, "tools/call")
		if got := w.round("leaves", ""); !strings.Contains(got.Text, "ended its goroutine") {
			t.Errorf("got %+v, want %q in it", got, "ended its goroutine")
		}
		s.Close(t.Context())
	})
}

// unmarshalable is a state that cannot be encoded.
type unmarshalable struct{}

func (unmarshalable) MarshalJSON() ([]byte, error) { panicBroken(); return nil, nil }

// A panic of a task is reported once, when it happens, even before the call has become
// a task.
//
// Guarantees: G-0009.10
func TestPanicOfATask(t *testing.T) {
	for after, outcome := range map[time.Duration]func(*testing.T, *rawPeer, string, string){
		0: func(t *testing.T, w *rawPeer, tool, want string) {
			id := w.beginTask(tool)
			synctest.Wait()
			if got := w.getTask(id); string(got.Task.Status)+got.Task.StatusMessage+string(got.FinalResult) == "" || !strings.Contains(got.Task.StatusMessage+string(got.FinalResult), want) {
				t.Errorf("%s: got %+v", tool, got)
			}
		},
		time.Minute: func(t *testing.T, w *rawPeer, tool, want string) {
			w.send(withTasks(`1`, "tools/call", `"name":"`+tool+`"`))
			w.want(`"id":1`, want)
		},
	} {
		testenv.Bubble(t, func(t *testing.T) {
			o, panics := reporting(server.Options{Tasks: &server.TaskOptions{After: after}})
			s := newServer(o)
			add := func(name string, f func(context.Context) (string, error)) {
				server.AddTool(s, protocol.Tool{Name: name, Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}},
					func(ctx context.Context, _ struct{}) (string, error) { return f(ctx) })
			}
			add("panics", func(context.Context) (string, error) { panicBroken(); return "", nil })
			add("requires", func(context.Context) (string, error) {
				return "", &server.InputRequired{Requests: question("a"), State: unmarshalable{}}
			})
			add("leaves", func(context.Context) (string, error) { runtime.Goexit(); return "", nil })
			w := dial(t, s)
			outcome(t, w, "panics", "internal error")
			wantPanics(t, panics, "task of panics")
			if after == 0 {
				outcome(t, w, "requires", "internal error")
				wantPanics(t, panics, "task of requires")
			}
			outcome(t, w, "leaves", "ended its goroutine")
			wantPanics(t, panics)
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A server without OnUnsubscribe has nobody to tell that a subscription has ended, and reports no panic.
func TestSubscriptionsEndWithoutAHook(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		o, panics := reporting(server.Options{OnSubscribe: func(context.Context, string) error { return nil }})
		s := newServer(o)
		w := dial(t, s)
		w.initialize(protocol.Version20251125)
		for _, uri := range []string{"x://a", "x://b"} {
			w.ask(about(protocol.MethodSubscribe, uri))
		}
		w.ask(about(protocol.MethodUnsubscribe, "x://a"))
		modernly := dial(t, s)
		modernly.send(modern(`1`, "subscriptions/listen", `"notifications":{"resourceSubscriptions":["x://a"]}`))
		modernly.want("acknowledged")
		w.link.Close(0)
		modernly.link.Close(0)
		wantPanics(t, panics)
	})
}
