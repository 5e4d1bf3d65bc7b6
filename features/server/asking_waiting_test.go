package server_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A call that nobody comes back to ends: its question fails, and the handler cleans
// up. Nothing is left.
//
// Guarantees: G-0031.7
func TestAbandonedCallsCleanUp(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *server.Server, *wire){
		"it expires": func(*testing.T, *server.Server, *wire) { pass(10*time.Minute + time.Second) },
		"newer calls take its place": func(_ *testing.T, _ *server.Server, w *wire) {
			for range 32 {
				w.round("three", "")
			}
		},
		"the server is closed": func(t *testing.T, s *server.Server, _ *wire) {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := new(shop)
			srv := s.server(server.Options{})
			w := dial(t, srv)
			first := w.round("three", "")
			synctest.Wait()
			if s.charges.Load() != 1 || s.refunds.Load() != 0 {
				t.Errorf("%s: %d refunds", name, s.refunds.Load())
			}
			end(t, srv, w)
			synctest.Wait()
			if s.refunds.Load() != 1 || s.shipments.Load() != 0 {
				t.Errorf("%s: %d refunds, %d shipments", name, s.refunds.Load(), s.shipments.Load())
			}
			if name != "the server is closed" {
				if got := w.round("three", again(first.State, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
					t.Errorf("%s: got %+v", name, got)
				}
				srv.Close(context.Background())
			}
			synctest.Wait()
			if s.charges.Load() != s.refunds.Load() {
				t.Errorf("%s: %d charges and %d refunds", name, s.charges.Load(), s.refunds.Load())
			}
		})
	}
}

// What waits is bounded: for one client, and for all.
//
// Guarantees: G-0031.7
func TestCallsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(shop)
		srv := s.server(server.Options{Asking: server.AskingOptions{MaxWaiting: 3, MaxWaitingPerClient: 2}})
		one, other, third := dial(t, srv), dial(t, srv), dial(t, srv)
		one.round("one waits", "")
		one.round("one waits", "")
		mine := other.round("one waits", "")
		runs := s.runs.Load()
		if got := third.round("one waits", ""); !got.Error.is(jsonrpc.CodeOverloaded, "overloaded") || s.runs.Load() != runs {
			t.Errorf("got %+v", got)
		}
		one.round("one waits", "") // in place of its oldest
		if got := other.round("one waits", again(mine.State, yes)); !strings.Contains(got.Text, "confirmed") {
			t.Errorf("got %+v", got)
		}
		if got := third.round("one waits", ""); got.Error != nil {
			t.Errorf("a place is free again: got %+v", got.Error)
		}
		pass(11 * time.Minute) // all of them expire
		synctest.Wait()
		for _, w := range []*wire{one, other, third} {
			if got := w.round("one waits", ""); got.Error != nil {
				t.Errorf("places are free again: got %+v", got.Error)
			}
		}
		srv.Close(context.Background())
	})
}

// A handler that ignores the end of its context is named.
func TestStuckHandlersAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			err := server.Confirm(ctx, "Sure?")
			<-release
			return "", err
		}, server.Asks(server.Waits, forms))
		w := dial(t, s)
		w.round("t", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, ctx := range []context.Context{ctx, context.Background()} {
			var stuck *conn.StuckError
			if err := s.Close(ctx); !errors.As(err, &stuck) || !strings.Contains(fmt.Sprint(stuck.Tasks), "tools/call t") {
				t.Errorf("got %v", err)
			}
		}
		close(release)
		synctest.Wait()
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("closed again: %v", err)
		}
		synctest.Wait()
	})
}

// A round that is cancelled ends the call.
func TestCancelledRoundEndsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			if err := server.Confirm(ctx, "Sure?"); err != nil {
				return "", err
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return "", context.Cause(ctx)
		}, server.Asks(server.Waits, forms))
		w := dial(t, s)
		first := w.round("t", "")
		w.send(withForms(`9`, "tools/call", `"name":"t"`+again(first.State, yes)))
		synctest.Wait()
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
		if cause := <-causes; !errors.Is(cause, conn.ErrPeerCancelled) {
			t.Errorf("the cause is %v", cause)
		}
		w.wantNothing()
		s.Close(context.Background())
	})
}

func TestPanicAfterAnAnswerEndsTheCallAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			if server.Confirm(ctx, "Sure?") == nil {
				panic("secret")
			}
			return "", nil
		}, server.Asks(server.Waits, forms))
		w := dial(t, s)
		first := w.round("t", "")
		if got := w.round("t", again(first.State, yes)); !got.Error.is(jsonrpc.CodeInternalError, "internal error") || strings.Contains(got.Error.Message, "secret") {
			t.Errorf("got %+v", got.Error)
		}
		s.Close(context.Background())
	})
}
