package server_test

import (
	"context"
	"errors"
	"fmt"
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
