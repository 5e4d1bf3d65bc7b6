package server_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
)

// Tools that ignore that their client has given up lock it out for the grace only,
// and the program is told which tools they are.
//
// Guarantees: G-0003.17
func TestStuckToolsDoNotLockTheirClientOut(t *testing.T) {
	const places = 2
	var release func()
	began, told := make(chan struct{}, places), make(chan telemetry.Stuck, places)
	start := func() *server.Server {
		hang := make(chan struct{})
		release = sync.OnceFunc(func() { close(hang) })
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{Conn: conn.Options{
			MaxServing: places, CancelGrace: 50 * time.Millisecond, Hooks: telemetry.Hooks{Stuck: func(e telemetry.Stuck) { told <- e }},
		}})
		server.AddTool(s, protocol.Tool{Name: "hang"}, func(context.Context, struct{}) (string, error) {
			began <- struct{}{}
			<-hang
			return "late", nil
		})
		server.AddTool(s, protocol.Tool{Name: "greet"}, func(context.Context, struct{}) (string, error) { return "hello", nil })
		return s
	}
	everywhere(t, start, client.Options{}, func(t *testing.T, _ *server.Server, session *client.Session) {
		t.Cleanup(release) // before the server is closed
		for range places {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "hang"})
				ended <- err
			}()
			<-began
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "greet"}); err != nil {
			t.Fatal(err)
		}
		for range places {
			if e := <-told; e.Method != protocol.MethodCallTool || e.Name != "hang" || e.Epoch == 0 {
				t.Errorf("told of %+v", e)
			}
		}
	})
}
