package client_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
)

// Every notification of a server reaches the program, in order and unchanged, on one
// goroutine. Progress goes to its call.
//
// Guarantees: G-0006.1
func TestEveryNotificationReachesTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []string
		s := answering(map[string]string{protocol.MethodPing: `{}`})
		session := openFake(t, s, client.Options{
			OnEvent: func(ctx context.Context, session *client.Session, e client.Event) {
				if err := session.Ping(ctx); err != nil {
					t.Errorf("a ping by the handler: %v", err)
				}
				reported = append(reported, describe(e))
			},
		})
		for _, raw := range []string{
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`,
			`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9,"progress":1}}`,
			`{"jsonrpc":"2.0","method":"notifications/of/another/kind","params":{}}`,
		} {
			s.sendFrame(raw)
		}
		synctest.Wait()
		want := []string{"log info: 1", "tools", "notifications/of/another/kind {}"}
		if !slices.Equal(reported, want) {
			t.Errorf("got the events %q, want %q", reported, want)
		}
		session.Close(t.Context())
	})
}

// A notification that comes before the end of the handshake reaches OnEvent once, and
// OnEvent can use the session without a panic.
func TestNotificationBeforeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := answering(map[string]string{protocol.MethodPing: `{}`})
		inner := s.answer
		s.answer = func(f frame) []string {
			if f.Method == protocol.MethodInitialize {
				s.sendFrame(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`)
				pass(time.Second)
			}
			return inner(f)
		}
		reported := 0
		openFake(t, s, client.Options{
			Conn: conn.Tuning{Hooks: telemetry.Hooks{Panic: func(p telemetry.Panic) { t.Errorf("%s: %v", p.Where, p.Value) }}},
			OnEvent: func(ctx context.Context, session *client.Session, _ client.Event) {
				_ = session.Server()
				_ = session.Ping(ctx)
				reported++
			},
		})
		synctest.Wait()
		if reported != 1 {
			t.Errorf("got %d events, want 1", reported)
		}
	})
}

// describe returns an event in a few words.
func describe(e client.Event) string {
	switch e := e.(type) {
	case *client.Lost:
		return "lost"
	case *client.Restored:
		return fmt.Sprintf("restored but for %d", len(e.Failures))
	case *client.ToolsChanged:
		return "tools"
	case *client.PromptsChanged:
		return "prompts"
	case *client.ResourcesChanged:
		return "resources"
	case *client.ResourceUpdated:
		return "updated " + e.URI
	case *client.SubscriptionRefused:
		return "refused " + e.URI
	case *client.LogMessage:
		return fmt.Sprintf("log %s: %s", e.Level, e.Data)
	case *client.Notification:
		return e.Method + " " + string(e.Params)
	default:
		return fmt.Sprintf("%T", e)
	}
}
