package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/impatient"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// These are what an impatient client sends.
var (
	impatientRequests = []string{
		`{"jsonrpc":"2.0","id":ID,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"old","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":ID,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":ID,"method":"resources/subscribe","params":{"uri":"x://a"}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"resources/unsubscribe","params":{"uri":"x://a"}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"resources/read","params":{"uri":"x://a"}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"logging/setLevel","params":{"level":"debug"}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"say","arguments":{},"_meta":{"progressToken":ID}}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"ask","arguments":{}}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"work","arguments":{},"task":{}}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"tasks/list"}`,
		`[{"jsonrpc":"2.0","id":ID,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/initialized"}]`,
		modern("ID", "server/discover", ""),
		modern("ID", "tools/call", `"name":"say","arguments":{}`),
		modern("ID", "tools/call", `"name":"work","arguments":{}`),
		modern("ID", "resources/read", `"uri":"x://a"`),
	}
	impatientOthers = []string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":OTHER}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":OTHER,"progress":1}}`,
		`{"jsonrpc":"2.0","id":OTHER,"result":{}}`,
		`{"jsonrpc":"2.0","id":OTHER,"result":{"action":"accept","content":{"ok":true}}}`,
		`{"jsonrpc":"2.0","id":OTHER,"error":{"code":-32603,"message":"no"}}`,
		`null`,
	}
)

// impatientServer has every option in which code of the program runs, and that code looks at all that it is given.
func impatientServer() *server.Server {
	look := func(ctx context.Context) {
		ctx.Value(userKey{})
		if r := server.RequestFrom(ctx); r != nil && r.Session != nil {
			lookAt(r.Session)
		}
	}
	s := newServer(server.Options{
		SessionContext: func(ctx context.Context, session *server.Session) context.Context {
			look(context.WithValue(ctx, userKey{}, session.ID()))
			return context.WithValue(ctx, userKey{}, session.ID())
		},
		Middleware: []server.Middleware{func(next server.Handler) server.Handler {
			return func(ctx context.Context, r *server.Request) (any, error) {
				look(ctx)
				return next(ctx, r)
			}
		}},
		Audit:          func(ctx context.Context, _ server.Record) { look(ctx) },
		Visible:        func(ctx context.Context, _ server.Feature) bool { look(ctx); return true },
		OnSubscribe:    func(ctx context.Context, _ string) error { look(ctx); return nil },
		OnUnsubscribe:  func(ctx context.Context, _ string) { look(ctx) },
		OnRootsChanged: func(ctx context.Context, session *server.Session) { look(ctx); lookAt(session) },
		OnLogLevel:     func(ctx context.Context, session *server.Session) { look(ctx); lookAt(session) },
		Tasks:          &server.TaskOptions{Legacy: true},
	})
	server.AddResource(s, protocol.Resource{URI: "x://a", Name: "a"}, func(context.Context) (string, error) { return "a", nil })
	server.AddTool(s, protocol.Tool{Name: "say"}, func(ctx context.Context, _ struct{}) (string, error) {
		look(ctx)
		server.Logger(ctx).Info("said")
		server.Progress(ctx, 1, 2, "half")
		return "said", nil
	})
	server.AddTool(s, protocol.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		_, err := server.Roots(ctx)
		return "", errors.Join(err, server.Confirm(ctx, "really?"))
	})
	server.AddTool(s, protocol.Tool{Name: "work", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}}, func(ctx context.Context, _ struct{}) (string, error) {
		return "worked", wait.Sleep(ctx, time.Second)
	})
	return s
}

func lookAt(session *server.Session) {
	_ = fmt.Sprint(session.ID(), session.Client().Info.Name, session.LogLevel(), session.Restored())
	session.Logger().Info("looked at")
}

// A client sends in any order, without waiting for answers, before and after it has said who it is, while the program looks at the sessions and changes
// what it offers. Each request is answered once, unless the client has cancelled it or has left; nothing of the program sees a session that is half made, and
// nothing stays.
//
// Guarantees: G-0003.10
func TestClientThatDoesNotWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			s := impatientServer()
			ours, theirs := inmem.Pipe(inmem.Options{})
			peer := impatient.New(ours)
			s.Accept(theirs)
			var program sync.WaitGroup
			for range rapid.IntRange(1, 20).Draw(t, "frames") {
				peer.Send(t, impatientRequests, impatientOthers)
				switch rapid.IntRange(0, 5).Draw(t, "meanwhile") {
				case 0:
					synctest.Wait()
				case 1:
					program.Go(func() {
						for session := range s.Sessions() {
							lookAt(session)
						}
					})
				case 2:
					program.Go(func() {
						s.ResourceUpdated("x://a")
						s.ListChangedFor(server.KindTool, func(ctx context.Context) bool { return ctx.Value(userKey{}) != nil })
						s.ResourceUpdatedFor("x://a", func(ctx context.Context, _ string, session *server.Session) bool {
							return session == nil || ctx.Value(userKey{}) == session.ID()
						})
					})
				}
			}
			if !rapid.Bool().Draw(t, "leaves at once") {
				pass(time.Hour) // what nobody answers expires
				peer.Check(t)
			}
			ours.Close(0)
			program.Wait()
			synctest.Wait()
			if err := s.Close(context.Background()); err != nil && !errors.As(err, new(*conn.StuckError)) {
				t.Errorf("Close: %v", err)
			}
		})
	})
}

// Clients of one session over HTTP send at the same time whatever they like, listen, go on with streams, leave in the middle, and delete the session. Each
// request gets one response at most, each HTTP request ends, and nothing stays.
//
// Guarantees: G-0003.10
func TestHTTPClientsThatDoNotWait(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			s := impatientServer()
			o := streamable.HandlerOptions{JSONOnly: rapid.Bool().Draw(t, "JSON only")}
			if rapid.Bool().Draw(t, "keeps events") {
				o.EventStore = new(streamable.MemoryStore)
			}
			h := streamable.NewHandler(s, o)
			session := ""
			ask := func(ctx context.Context, method, body, last string) (w *httptest.ResponseRecorder) {
				w = httptest.NewRecorder()
				r := httptest.NewRequestWithContext(ctx, method, "http://127.0.0.1/mcp", strings.NewReader(body))
				r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
				if session != "" {
					r.Header.Set("Mcp-Session-Id", session)
				}
				if last != "" {
					r.Header.Set("Last-Event-ID", last)
				}
				defer func() {
					if value := recover(); value != nil && value != http.ErrAbortHandler { // which net/http takes as the end of the connection
						panic(value)
					}
				}()
				h.ServeHTTP(w, r)
				return w
			}
			if rapid.Bool().Draw(t, "initialized") {
				w := ask(context.Background(), http.MethodPost, strings.ReplaceAll(impatientRequests[0], "ID", "0"), "")
				session = w.Header().Get("Mcp-Session-Id")
			}
			all, end := context.WithCancel(context.Background())
			var requests sync.WaitGroup
			var mu sync.Mutex
			ids := []string{"0"} // of events that came
			for i := range rapid.IntRange(1, 20).Draw(t, "requests") {
				id, method, body, last := fmt.Sprint(i+1), http.MethodPost, "", ""
				switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); kind {
				case 0:
					method = http.MethodGet
				case 1:
					mu.Lock()
					method, last = http.MethodGet, ids[rapid.IntRange(0, 100).Draw(t, "last")%len(ids)]
					mu.Unlock()
				case 2:
					method = http.MethodDelete
				case 3, 4:
					body = strings.ReplaceAll(rapid.SampledFrom(impatientOthers).Draw(t, "other"), "OTHER", fmt.Sprint(rapid.IntRange(0, i).Draw(t, "earlier")))
				default:
					body = strings.ReplaceAll(rapid.SampledFrom(impatientRequests).Draw(t, "request"), "ID", id)
				}
				ctx, cancel := all, end
				if rapid.IntRange(0, 3).Draw(t, "leaves") == 0 {
					ctx, cancel = context.WithTimeout(all, time.Duration(rapid.IntRange(0, 2000).Draw(t, "after"))*time.Millisecond)
				}
				requests.Go(func() {
					w := ask(ctx, method, body, last)
					if ctx != all {
						cancel()
					}
					mu.Lock()
					for line := range strings.Lines(w.Body.String()) {
						if id, ok := strings.CutPrefix(line, "id: "); ok {
							ids = append(ids, strings.TrimSpace(id))
						}
					}
					mu.Unlock()
					if n := strings.Count(w.Body.String(), `"id":`+id+`,"result"`); n > 1 {
						t.Errorf("%s: %d results in %s", body, n, w.Body)
					}
				})
				if rapid.IntRange(0, 3).Draw(t, "waits") == 0 {
					synctest.Wait()
				}
			}
			pass(time.Hour) // what nobody answers expires
			end()
			requests.Wait()
			if err := errors.Join(h.Close(time.Second), s.Close(context.Background())); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	})
}
