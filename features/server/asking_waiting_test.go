package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A handler whose client does not come back gets an error for its question, cleans up,
// and nothing of the call remains: after the expiry, and when the
// server is closed.
//
// Guarantees: G-0031.7
func TestAbandonedCallsCleanUp(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *server.Server, *rawPeer){
		"it expires": func(*testing.T, *server.Server, *rawPeer) { pass(10*time.Minute + time.Second) },
		"the server is closed": func(t *testing.T, s *server.Server, _ *rawPeer) {
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
		},
	} {
		testenv.Bubble(t, func(t *testing.T) {
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
				if got := w.round("three", retryParams(first.State, yes)); !got.Error.is(jsonrpc.CodeInvalidParams, "invalid_request_state") {
					t.Errorf("%s: got %+v, want the error %d with %q", name, got, jsonrpc.CodeInvalidParams, "invalid_request_state")
				}
				srv.Close(context.Background())
			}
			synctest.Wait()
			if s.charges.Load() != s.refunds.Load() {
				t.Errorf("%s: %d charges and %d refunds, want as many of both", name, s.charges.Load(), s.refunds.Load())
			}
		})
	}
}

// If a handler returns while its question is being sealed, its client gets the outcome, and not a state that leads nowhere.
//
// Guarantees: G-0031.7
func TestAHandlerThatReturnsBeforeItsQuestionIsSent(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		var giveUp atomic.Pointer[context.CancelFunc]
		s := new(shop)
		srv := s.server(server.Options{Asking: server.AskingOptions{Secrets: func() [][]byte {
			if stop := giveUp.Swap(nil); stop != nil {
				(*stop)()
				pass(time.Second)
			}
			return [][]byte{make([]byte, 32)}
		}}})
		server.AddTool(srv, protocol.Tool{Name: "impatient"}, func(ctx context.Context, in struct{}) (string, error) {
			ctx, cancel := context.WithCancel(ctx)
			giveUp.Store(&cancel)
			_, err := s.one(ctx, in)
			return fmt.Sprint("asked: ", err == nil), nil
		}, server.Asks(server.Waits, forms))
		if got := dial(t, srv).round("impatient", ""); got.State != "" || !strings.Contains(got.Text, "asked: false") {
			t.Errorf("got %+v, want the outcome", got)
		}
	})
}

// A call whose handler has stopped waiting for an answer keeps its place, with its outcome, until the question expires, and no longer.
//
// Guarantees: G-0031.7
func TestACallWhoseHandlerHasReturnedLeavesItsPlace(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := new(shop)
		srv := s.server(server.Options{Asking: server.AskingOptions{MaxWaiting: 1}})
		server.AddTool(srv, protocol.Tool{Name: "impatient"}, func(ctx context.Context, in struct{}) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			_, err := s.one(ctx, in)
			return "I gave up", err
		}, server.Asks(server.Waits, forms))
		one, other := dialAs(t, srv, "one"), dialAs(t, srv, "other")
		if first := one.round("impatient", ""); first.State == "" {
			t.Fatalf("got %+v, want a question", first)
		}
		pass(9 * time.Minute)
		if got := other.round("one_waits", ""); !got.Error.is(jsonrpc.CodeOverloaded, "overloaded") {
			t.Errorf("before the question expired: got %+v, want the error %d", got, jsonrpc.CodeOverloaded)
		}
		pass(2 * time.Minute)
		if got := other.round("one_waits", ""); got.State == "" {
			t.Errorf("after the question expired: got %+v, want a question", got)
		}
		srv.Close(context.Background())
	})
}

// The requests of waiting calls have a limit in bytes, with what their values take, and 16 KiB for each in addition. A call that does not fit is refused
// before its handler runs.
//
// Guarantees: G-0031.7
func TestTheBytesOfCallsThatWaitAreBounded(t *testing.T) {
	const each = 16 << 10
	params := func(size int) string { return `,"arguments":{"pad":"` + strings.Repeat("x", size) + `"}` }
	frame := withForms(`1`, "tools/call", `"name":"padded"`+params(0))
	request, err := jsonrpc.Decode([]byte(frame), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	own := each + len(frame) + int(request.Memory) // what a call without padding counts
	serve := func(s *shop, limit int) *server.Server {
		srv := newServer(server.Options{Asking: server.AskingOptions{MaxWaitingBytes: limit}})
		server.AddTool(srv, protocol.Tool{Name: "padded"}, func(ctx context.Context, _ struct {
			Pad string `json:"pad"`
		}) (string, error) {
			return s.one(ctx, struct{}{})
		}, server.Asks(server.Waits, forms))
		return srv
	}
	overloaded := func(t *testing.T, s *shop, got round, runs int64) {
		t.Helper()
		if !got.Error.is(jsonrpc.CodeOverloaded, "overloaded") || s.runs.Load() != runs {
			t.Errorf("got %+v and %d runs, want the error %d and %d runs", got, s.runs.Load(), jsonrpc.CodeOverloaded, runs)
		}
	}
	for limit, fit := range map[int]int{3 * own: 3, 3*own - 1: 2, own: 1, own - 1: 0} {
		testenv.Bubble(t, func(t *testing.T) {
			s := new(shop)
			srv := serve(s, limit)
			var all []round
			var peers []*rawPeer
			for range fit {
				w := dialAs(t, srv, fmt.Sprint(len(peers)))
				peers, all = append(peers, w), append(all, w.round("padded", params(0)))
			}
			for i, got := range all {
				if got.State == "" {
					t.Errorf("limit %d: call %d got %+v, want a question", limit, i, got)
				}
			}
			overloaded(t, s, dialAs(t, srv, "another").round("padded", params(0)), int64(fit))
			if fit > 0 { // a call that has ended leaves its bytes, as one that has expired
				if got := peers[0].round("padded", params(0)+retryParams(all[0].State, yes)); !strings.Contains(got.Text, "confirmed") {
					t.Errorf("limit %d: got %+v, want %q", limit, got, "confirmed")
				}
				if got := dialAs(t, srv, "another").round("padded", params(0)); got.State == "" {
					t.Errorf("limit %d: after a call has ended: got %+v, want a question", limit, got)
				}
				pass(11 * time.Minute)
				for range fit {
					if got := dialAs(t, srv, "late").round("padded", params(0)); got.State == "" {
						t.Errorf("limit %d: after all have expired: got %+v, want a question", limit, got)
					}
				}
			}
			if err := srv.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	testenv.Bubble(t, func(t *testing.T) { // a call that waits keeps its place
		s := new(shop)
		srv := serve(s, 3*own)
		ada, bob := dialAs(t, srv, "ada"), dialAs(t, srv, "bob")
		kept := bob.round("padded", params(0))
		ada.round("padded", params(0))
		oldest := ada.round("padded", params(0))
		overloaded(t, s, ada.round("padded", params(0)), 3)
		for name, one := range map[string]func() round{
			"the oldest, which was kept": func() round { return ada.round("padded", params(0)+retryParams(oldest.State, yes)) },
			"the call of another client": func() round { return bob.round("padded", params(0)+retryParams(kept.State, yes)) },
		} {
			if got := one(); !strings.Contains(got.Text, "confirmed") {
				t.Errorf("%s: got %+v, want %q", name, got, "confirmed")
			}
		}
		if err := srv.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A call that waits keeps its place until it ends, and a call without a place is refused before its handler runs.
//
// Guarantees: G-0031.7, G-0083.6
func TestCallsThatWaitKeepTheirPlaces(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s, runs := newServer(server.Options{Asking: server.AskingOptions{MaxWaiting: 2}}), 0
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			runs++
			return "confirmed", server.Confirm(ctx, "Sure?")
		}, server.Asks(server.Waits, forms))
		ada, bob, eve := dialAs(t, s, "ada"), dialAs(t, s, "bob"), dialAs(t, s, "eve")
		first := ada.round("t", "")
		if got := bob.round("t", ""); got.State == "" {
			t.Errorf("the second place of all: got %+v, want a question", got)
		}
		if got := eve.round("t", ""); !got.Error.is(jsonrpc.CodeOverloaded, "overloaded: 2 handlers") || runs != 2 {
			t.Errorf("a third place: got %+v and %d runs, want the error %d and 2 runs", got, runs, jsonrpc.CodeOverloaded)
		}
		if got := ada.round("t", retryParams(first.State, yes)); !strings.Contains(got.Text, "confirmed") {
			t.Errorf("the call with the place: got %+v, want its result", got)
		}
		if got := eve.round("t", ""); got.State == "" {
			t.Errorf("the place of a call that has ended: got %+v, want a question", got)
		}
		s.Close(context.Background())
	})
}

// A call whose handler asks after the call has expired leaves its place.
//
// Guarantees: G-0031.7
func TestACallThatAsksTooLateLeavesItsPlace(t *testing.T) {
	for range 20 { // whether the question or the end of the call comes first is chance
		testenv.Bubble(t, func(t *testing.T) {
			s := newServer(server.Options{Asking: server.AskingOptions{MaxWaiting: 1, CallExpiry: 3 * time.Second}})
			server.AddTool(s, protocol.Tool{Name: "late"}, func(ctx context.Context, _ struct{}) (string, error) {
				if err := server.Confirm(ctx, "Sure?"); err != nil {
					return "", err
				}
				pass(5 * time.Second)
				return "", server.Confirm(ctx, "Still?")
			}, server.Asks(server.Waits, forms))
			w := dial(t, s)
			w.round("late", retryParams(w.round("late", "").State, yes))
			synctest.Wait() // the answer may come before the handler has returned
			if got := w.round("late", ""); got.State == "" {
				t.Fatalf("after a call that asked too late: got %+v, want a question", got)
			}
			s.Close(context.Background())
		})
	}
}

// A question that gets no answer fails with the reason, when that occurs and not later, in every way to ask.
//
// Guarantees: G-0031.7
func TestWhyAQuestionWasNotAnswered(t *testing.T) {
	const (
		round  = "a round"
		direct = "a request"
		aTask  = "a task"
	)
	reply := func(member string) func(*testing.T, *server.Server, *rawPeer, string) {
		return func(_ *testing.T, _ *server.Server, w *rawPeer, asked string) {
			w.send(`{"jsonrpc":"2.0","id":` + asked + `,` + member + `}`)
		}
	}
	closes := func(_ *testing.T, s *server.Server, _ *rawPeer, _ string) { _ = s.Close(context.Background()) }
	waits := func(*testing.T, *server.Server, *rawPeer, string) {}
	for name, test := range map[string]struct {
		how   string
		end   func(t *testing.T, s *server.Server, w *rawPeer, asked string)
		is    []error
		says  string
		after time.Duration // when it fails; -1: when all sessions have ended
	}{
		"it expires, round":        {round, waits, []error{server.ErrUnanswered}, "it took longer than 10m0s", 10 * time.Minute},
		"it expires":               {direct, waits, []error{server.ErrUnanswered}, "it took longer than 10m0s", 10 * time.Minute},
		"it expires, task":         {aTask, waits, []error{server.ErrUnanswered, server.ErrTaskExpired}, "", 24 * time.Hour},
		"the server closes, round": {round, closes, []error{server.ErrUnanswered, server.ErrClosed}, "", 0},
		"the server closes":        {direct, closes, []error{server.ErrUnanswered, server.ErrClosed}, "", 0},
		"the server closes, task":  {aTask, closes, []error{server.ErrUnanswered, server.ErrClosed}, "", -1},
		"the call expires": {direct, func(_ *testing.T, _ *server.Server, w *rawPeer, asked string) {
			for range 6 {
				pass(9 * time.Minute)
				w.send(`{"jsonrpc":"2.0","id":` + asked + `,"result":{"action":"accept","content":{}}}`)
				asked = idOf(w.next())
			}
		}, []error{server.ErrUnanswered}, "the call took longer than 1h0m0s", time.Hour},
		"the client cancels": {direct, func(_ *testing.T, _ *server.Server, w *rawPeer, _ string) {
			w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"enough"}}`)
		}, []error{server.ErrUnanswered}, "cancelled by the peer", 0},
		"the client cancels, task": {aTask, func(_ *testing.T, _ *server.Server, w *rawPeer, id string) {
			w.ask(withTasks(`3`, "tasks/cancel", `"taskId":"`+id+`"`))
		}, []error{server.ErrUnanswered, server.ErrTaskCancelled}, "", 0},
		"the user rejects":   {direct, reply(`"error":{"code":-1,"message":"never"}`), []error{server.ErrDeclined}, "never", 0},
		"the user declines":  {direct, reply(`"result":{"action":"decline"}`), []error{server.ErrDeclined}, "", 0},
		"the user dismisses": {direct, reply(`"result":{"action":"cancel"}`), []error{server.ErrDismissed}, "", 0},
		"the client refuses": {direct, reply(`"error":{"code":-32000,"message":"no window"}`), nil, "the client refused the question: no window (-32000)", 0},
		"the answer misfits": {direct, reply(`"result":{"action":"perhaps"}`), nil, `the answer to "1" is not valid: unknown action "perhaps"`, 0},
		"no answer at all":   {direct, reply(`"result":{"action":7}`), nil, `is not valid: a number at "/action" does not fit`, 0},
	} {
		testenv.Bubble(t, func(t *testing.T) {
			began, failed := time.Now(), make(chan error, 100)
			s := newServer(server.Options{Tasks: &server.TaskOptions{}})
			tool := protocol.Tool{Name: "asks", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskOptional}}
			server.AddTool(s, tool, func(ctx context.Context, _ struct{}) (string, error) {
				for {
					if err := server.Confirm(ctx, "Sure?"); err != nil {
						if test.after >= 0 && time.Since(began) != test.after {
							t.Errorf("%s: it failed after %v, want %v", name, time.Since(began), test.after)
						}
						failed <- err
						return "", err
					}
				}
			}, server.Asks(server.Waits, forms))
			w := accept(t, s)
			asked := ""
			switch test.how {
			case round:
				w.round("asks", "")
			case direct:
				w.session()
				w.send(legacy(`1`, "tools/call", `"name":"asks"`))
				asked = idOf(w.next())
			default:
				asked = w.beginTask("asks")
			}
			synctest.Wait()
			test.end(t, s, w, asked)
			err := <-failed
			for _, is := range test.is {
				if !errors.Is(err, is) {
					t.Errorf("%s: the question failed with %v, want %v", name, err, is)
				}
			}
			if !strings.Contains(err.Error(), test.says) || errors.As(err, new(*jsonrpc.Error)) || len(test.is) == 0 && errors.Is(err, server.ErrUnanswered) {
				t.Errorf("%s: the question failed with %v, want %q in it, and no error of the protocol", name, err, test.says)
			}
			if misfit := (*server.AnswerError)(nil); errors.As(err, &misfit) && !errors.Is(err, misfit.Err) {
				t.Errorf("%s: %v does not wrap its reason", name, err)
			}
			s.Close(context.Background())
			w.link.Close(0)
			synctest.Wait()
		})
	}
}

// idOf returns the id of a request that the server has sent.
func idOf(frame string) string {
	var asked struct{ ID json.RawMessage }
	_ = json.Unmarshal([]byte(frame), &asked)
	return string(asked.ID)
}

// Close returns an error that names a handler that ignores the end of its context.
func TestStuckHandlersAreNamed(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
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
				t.Errorf("got %v, want a *conn.StuckError and %q in it", err, "tools/call t")
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

// If the client cancels a round, the context of the waiting handler ends.
func TestCancelledRoundEndsTheCall(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
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
		w.send(withForms(`9`, "tools/call", `"name":"t"`+retryParams(first.State, yes)))
		synctest.Wait()
		w.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`)
		if cause := <-causes; !errors.Is(cause, conn.ErrPeerCancelled) {
			t.Errorf("the cause is %v, want %v", cause, conn.ErrPeerCancelled)
		}
		w.wantNothing()
		s.Close(context.Background())
	})
}

// If a handler panics after an answer, only its own call fails, with an internal error
// that does not contain the panic value.
func TestPanicAfterAnAnswerEndsTheCallAlone(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newServer(server.Options{})
		server.AddTool(s, protocol.Tool{Name: "t"}, func(ctx context.Context, _ struct{}) (string, error) {
			if server.Confirm(ctx, "Sure?") == nil {
				panic("secret")
			}
			return "", nil
		}, server.Asks(server.Waits, forms))
		w := dial(t, s)
		first := w.round("t", "")
		if got := w.round("t", retryParams(first.State, yes)); !got.Error.is(jsonrpc.CodeInternalError, "internal error") || strings.Contains(got.Error.Message, "secret") {
			t.Errorf("got %+v, want the error %d with %q and no %q in it", got.Error, jsonrpc.CodeInternalError, "internal error", "secret")
		}
		s.Close(context.Background())
	})
}
