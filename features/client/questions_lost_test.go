package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
)

// The server dies, or the session is stopped, while the user fills in a form. The context of
// the handler ends, and its cause says why. So it is in both eras, although a modern server
// has no open request then.
//
// Guarantees: G-0031.16
func TestFormEndsWithItsServer(t *testing.T) {
	legacy := func() *fakeServer {
		return &fakeServer{answer: func(f frame) []string {
			if f.Method == protocol.MethodCallTool {
				return []string{`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":` + elicitForm + `}`}
			}
			return allAnswers(protocol.LatestLegacy)(f)
		}}
	}
	modern := func() *fakeServer {
		return askingServer(`{"e":{"method":"elicitation/create","params":`+elicitForm+`}}`, nil)
	}
	for name, c := range map[string]struct {
		server  func() *fakeServer
		version string
		closes  bool
		want    conn.Cause
	}{
		"legacy":         {legacy, protocol.LatestLegacy, false, conn.LinkLost},
		"modern":         {modern, protocol.Latest, false, conn.LinkLost},
		"modern, closed": {modern, protocol.Latest, true, conn.ShutDown},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				why, s := make(chan error, 1), c.server()
				session := openFake(t, s, client.Options{ProtocolVersion: c.version, Elicit: func(ctx context.Context, _ *client.Session, _ *protocol.ElicitParams) (*protocol.ElicitResult, error) {
					<-ctx.Done()
					why <- context.Cause(ctx)
					return nil, ctx.Err()
				}})
				ended := make(chan error, 1)
				go func() {
					_, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "ask"})
					ended <- err
				}()
				synctest.Wait()
				if c.closes {
					session.Stop()
				} else {
					s.cut()
				}
				synctest.Wait()
				var reason conn.Reason
				select {
				case err := <-why:
					if !errors.As(err, &reason) || (reason.Kind == conn.Stopped) != c.closes {
						t.Errorf("the context of the form ended with %v, want the reason of the loss", err)
					}
				default:
					t.Error("the form is still open, although the server is gone")
				}
				var failed *conn.CallError
				select {
				case err := <-ended:
					if !errors.As(err, &failed) || failed.Cause != c.want || client.NotExecuted(err) {
						t.Errorf("the call: got %v, want the cause %v", err, c.want)
					}
				default:
					t.Error("the call still waits, although the server is gone")
				}
				session.Stop()
			})
		})
	}
}
