package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// openTask connects to a server whose tool becomes a task, with a poll function as that of pollServer.
func openTask(t *testing.T, o client.Options, poll func(f frame, n int) string) (*client.Session, *fakeServer) {
	t.Helper()
	s := pollServer(new([]time.Duration), poll)
	o.Tasks, o.ProtocolVersion = true, protocol.Latest
	return openFake(t, s, o), s
}

// What a task says at its end is the outcome of the call: its result, or its error. What cannot be read is a *client.ResultError.
//
// Guarantees: G-0032.10
func TestOutcomesOfTasks(t *testing.T) {
	fault := func(code int64) func(error) bool {
		return func(err error) bool {
			var failed *client.CallError
			var fault *jsonrpc.Error
			return errors.As(err, &failed) && failed.Method == protocol.MethodCallTool && failed.ID != 0 && failed.Delivery == conn.Sent && failed.Cause == conn.Answered &&
				errors.As(err, &fault) && fault.Code == code && fault.Message == "broken" && string(fault.Data) == `{"a":1}`
		}
	}
	unread := func(why string) func(error) bool {
		return func(err error) bool {
			var failed *client.CallError
			return errors.As(err, &failed) && failed.Method == protocol.MethodGetTask && failed.ID != 0 && failed.Delivery == conn.Sent &&
				errors.As(err, new(*client.ResultError)) && strings.Contains(err.Error(), why)
		}
	}
	const broken = `,"error":{"code":%d,"message":"broken","data":{"a":1}}`
	for name, test := range map[string]struct {
		status, more string
		want         func(error) bool // nil: the text "made"
	}{
		"completed":             {"completed", made, nil},
		"failed":                {"failed", fmt.Sprintf(broken, 7), fault(7)},
		"failed, as its params": {"failed", fmt.Sprintf(broken, -32602), fault(-32602)},
		"cancelled": {"cancelled", `,"statusMessage":"by the user"`, func(err error) bool {
			return errors.Is(err, client.ErrTaskCancelled) && strings.Contains(err.Error(), "by the user")
		}},
		"completed, without a result": {"completed", ``, unread("completed")},
		"completed, with an error":    {"completed", fmt.Sprintf(broken, 7), unread("completed")},
		"failed, without an error":    {"failed", ``, unread("failed")},
		"failed, with a result":       {"failed", made, unread("failed")},
		"a result that is no object":  {"completed", `,"result":7`, unread("")},
		"a result without content":    {"completed", `,"result":{"resultType":"complete"}`, unread("content")},
		"a result that is a task":     {"completed", `,"result":{"resultType":"task","taskId":"u"}`, unread("task")},
		"a result that asks":          {"completed", `,"result":{"resultType":"input_required","requestState":"s"}`, unread("input_required")},
		"a complete result that asks": {"completed", `,"result":{"resultType":"complete","content":[],"requestState":"s"}`, unread("asks for input")},
		"a result of an unknown type": {"completed", `,"result":{"resultType":"own","content":[]}`, unread("own")},
		"an unknown status":           {"done", made, unread("done")},
		"a result without a type":     {"completed", `,"result":{"content":[{"type":"text","text":"made"}]}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := client.Options{Calls: client.CallOptions{OnProgress: func(*protocol.ProgressParams) {}}} // of the call, and not of its polls
				session, server := openTask(t, o, func(f frame, _ int) string { return f.result(taskStatus("complete", test.status, test.more)) })
				result, err := callTool(t, session, "make", "")
				switch {
				case test.want == nil && (err != nil || result.Content.Text() != "made"):
					t.Errorf("got %+v, %v, want %q", result, err, "made")
				case test.want != nil && (result != nil || !test.want(err)):
					t.Errorf("got %+v, %#v, %v", result, err, err)
				case errors.Is(err, client.ErrInvalid) || client.NotExecuted(err):
					t.Errorf("got %v, which says that the tool was not called", err)
				}
				if polls := server.received(protocol.MethodGetTask); len(polls) != 1 || strings.Contains(string(polls[0].Params), "progressToken") {
					t.Errorf("the server got the polls %+v, want one that asks for no progress", polls)
				}
			})
		})
	}
}

// Wait ends at once with an error that lasts. It continues after one that may pass: up to ten in a row, and without a limit while there is
// no connection.
//
// Guarantees: G-0032.10
func TestErrorsThatEndAWait(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		polls int // of which the last ends the wait; 0: it continues
	}{
		"closed":                  {client.ErrClosed, 1},
		"an error of the server":  {&jsonrpc.Error{Code: 7}, 1},
		"no such task":            {&jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}, 1},
		"a result that is broken": {&client.ResultError{Err: errors.New("no object")}, 1},
		"no answer of the user":   {&client.InputError{Err: errors.New("not now")}, 1},
		"too many questions":      {client.ErrTooMany, 1},
		"unsupported":             {client.ErrUnsupported, 1},
		"another server session":  {client.ErrStale, 1},
		"lost and another server": {errors.Join(client.ErrLost, client.ErrStale), 1},
		"lost and unsupported":    {errors.Join(client.ErrLost, client.ErrUnsupported), 1},
		"overloaded":              {&jsonrpc.Error{Code: jsonrpc.CodeOverloaded}, 10},
		"an internal error":       {&jsonrpc.Error{Code: jsonrpc.CodeInternalError}, 10},
		"timed out":               {client.ErrTimedOut, 10},
		"another error":           {errors.New("of a middleware"), 10},
		"lost":                    {client.ErrLost, 0},
		"unavailable":             {client.ErrUnavailable, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				polls := 0
				failing := func(next client.Handler) client.Handler {
					return func(ctx context.Context, r *client.Request) (any, error) {
						if r.Method == protocol.MethodGetTask {
							if polls++; polls <= 100 {
								return nil, test.err
							}
						}
						return next(ctx, r)
					}
				}
				session, _ := openTask(t, client.Options{Middleware: []client.Middleware{failing}}, func(f frame, _ int) string {
					return f.result(taskStatus("complete", "completed", made))
				})
				began := time.Now()
				result, err := session.Task("t").Wait(t.Context())
				want := test.polls
				if want == 0 {
					want = 101
				}
				if polls != want || time.Since(began) != time.Duration(want-1)*time.Second || (err == nil) != (test.polls == 0) || err == nil && result.Content.Text() != "made" {
					t.Errorf("got %+v, %v after %d polls in %v, want %d polls", result, err, polls, time.Since(began), want)
				}
				if test.polls > 0 && !errors.Is(err, test.err) {
					t.Errorf("got %v, want %v", err, test.err)
				}
			})
		})
	}
}

// A wait for a task also ends with its context: between two polls, and while a question is asked or its answer sent. Its error says that
// the call may have been executed.
//
// Guarantees: G-0032.10
func TestAWaitEndsWithItsContext(t *testing.T) {
	enough := errors.New("enough")
	for name, test := range map[string]struct {
		poll   func(f frame, n int) string
		elicit func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error)
		update response
		after  time.Duration
	}{
		"before the first poll":    {nil, nil, nil, time.Second},
		"between two polls":        {func(f frame, _ int) string { return f.result(taskStatus("complete", "working", "")) }, nil, nil, 10 * time.Second},
		"after a poll that failed": {func(f frame, _ int) string { return f.fault(-32603, `null`) }, nil, nil, 7*time.Second + 500*time.Millisecond},
		"while a question is asked": {func(f frame, _ int) string { return f.result(taskStatus("complete", "input_required", asks("a"))) },
			func(ctx context.Context, _ *client.Session, _ *protocol.ElicitParams) (*protocol.ElicitResult, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}, nil, 10 * time.Second},
		"while an answer is sent": {func(f frame, _ int) string { return f.result(taskStatus("complete", "input_required", asks("a"))) }, acceptAll, noResponse, 10 * time.Second},
		"before an answer is sent again": {func(f frame, _ int) string { return f.result(taskStatus("complete", "input_required", asks("a"))) }, acceptAll,
			withFault(-32603, `null`), 7*time.Second + 500*time.Millisecond},
	} {
		for _, deadline := range []bool{false, true} {
			t.Run(fmt.Sprint(name, deadline), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					session, server := openTask(t, client.Options{Elicit: test.elicit}, test.poll)
					if inner := server.answer; test.update != nil {
						server.answer = func(f frame) []string {
							if f.Method == protocol.MethodUpdateTask {
								return test.update(f)
							}
							return inner(f)
						}
					}
					task, err := session.StartTool(t.Context(), &protocol.CallToolParams{Name: "make"})
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeoutCause(t.Context(), test.after, enough)
					cause := conn.TimedOut
					if !deadline {
						var stop context.CancelCauseFunc
						ctx, stop = context.WithCancelCause(t.Context())
						timer := time.AfterFunc(test.after, func() { stop(enough) })
						defer timer.Stop()
						cause = conn.Cancelled
					}
					defer cancel()
					began := time.Now()
					result, err := task.Wait(ctx)
					var failed *client.CallError
					if result != nil || !errors.As(err, &failed) || name == "while a question is asked" && failed.ID == 0 || failed.Cause != cause || !errors.Is(err, enough) || client.NotExecuted(err) || time.Since(began) != test.after {
						t.Errorf("got %+v, %#v, %v after %v, want %v with the cause %v", result, err, err, time.Since(began), enough, cause)
					}
				})
			})
		}
	}
}

// The answer to a question of a task is sent until the server has it, and the question is not asked again. What lasts ends the wait.
//
// Guarantees: G-0032.10
func TestAnswersAreSentUntilTheServerHasThem(t *testing.T) {
	for name, test := range map[string]struct {
		refuse response
		times  int // how often it is refused
		ends   bool
	}{
		"at once":             {nil, 0, false},
		"overloaded":          {withFault(jsonrpc.CodeOverloaded, `null`), 5, false},
		"an internal error":   {withFault(jsonrpc.CodeInternalError, `null`), 5, false},
		"overloaded for ever": {withFault(jsonrpc.CodeOverloaded, `null`), 10, true},
		"refused":             {withFault(-32602, `null`), 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				questions, updates := 0, 0
				elicit := func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
					questions++
					return client.Accept(nil)
				}
				var session *client.Session
				var server *fakeServer
				session, server = openTask(t, client.Options{Elicit: elicit}, func(f frame, n int) string {
					if n <= 2 {
						return f.result(taskStatus("complete", "input_required", asks("a")))
					}
					return f.result(taskStatus("complete", "completed", made))
				})
				inner := server.answer
				server.answer = func(f frame) []string {
					if f.Method == protocol.MethodUpdateTask {
						if updates++; updates <= test.times {
							return test.refuse(f)
						}
						if !strings.Contains(string(f.Params), `"taskId":"t"`) || !strings.Contains(string(f.Params), `"inputResponses":{"a":{"action":"accept"`) {
							t.Errorf("the server got the answers %s", f.Params)
						}
					}
					return inner(f)
				}
				began := time.Now()
				result, err := callTool(t, session, "make", "")
				if test.ends {
					if err == nil || updates != test.times || client.NotExecuted(err) {
						t.Errorf("got %+v, %v after %d answers, want an error after %d", result, err, updates, test.times)
					}
					return
				}
				if took, want := time.Since(began), 21*time.Second+time.Duration(test.times)*time.Second; err != nil || result.Content.Text() != "made" || took != want {
					t.Errorf("got %+v, %v after %v, want %q after %v", result, err, took, "made", want)
				}
				if questions != 1 || updates != test.times+1 {
					t.Errorf("the user was asked %d times, and %d answers sent, want 1 and %d", questions, updates, test.times+1)
				}
			})
		})
	}
}

// With ManualInput, Wait leaves the questions of a task to the program.
//
// Guarantees: G-0032.11
func TestManualInputLeavesTheQuestionsOfATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := false
		o := client.Options{Elicit: func(context.Context, *client.Session, *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			asked = true
			return client.Accept(nil)
		}}
		session, server := openTask(t, o, func(f frame, n int) string {
			if n <= 2 {
				return f.result(taskStatus("complete", "input_required", asks("a")))
			}
			return f.result(taskStatus("complete", "completed", made))
		})
		manual := session.With(client.CallOptions{ManualInput: true})
		if result, err := manual.Task("t").Wait(t.Context()); err != nil || result.Content.Text() != "made" {
			t.Errorf("got %+v, %v, want %q", result, err, "made")
		}
		if n := len(server.received(protocol.MethodUpdateTask)); asked || n > 0 {
			t.Errorf("the user was asked: %t, and %d answers sent, want none", asked, n)
		}
	})
}

// A task that is removed or cancelled while its result is waited for, or while its user answers, is reported as such, and not as a
// call that is wrong, although the server refuses the request with a code that may mean that. So is the failure of a task: Wait says
// the same as a call.
//
// Guarantees: G-0032.10, G-0032.12
func TestTasksThatEndDuringARequest(t *testing.T) {
	for name, test := range map[string]struct {
		modern bool
		code   int64    // that refuses the request
		then   response // to the next poll
		want   error
	}{
		"result, removed":   {false, -32602, withFault(-32602, `null`), client.ErrNoTask},
		"result, cancelled": {false, -32603, withResult(legacyTask("cancelled", "")), client.ErrTaskCancelled},
		"result, failed":    {false, -32602, withResult(legacyTask("failed", "")), &jsonrpc.Error{Code: -32602}},
		"answer, removed":   {true, -32602, withFault(-32602, `null`), client.ErrNoTask},
		"answer, cancelled": {true, -32602, withResult(taskStatus("complete", "cancelled", "")), client.ErrTaskCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, version := legacyTaskServer(func(f frame, n int) string {
					if n > 1 {
						return test.then(f)[0]
					}
					return f.result(legacyTask("input_required", ""))
				}, withFault(test.code, `null`)), protocol.Version20251125
				if test.modern {
					s, version = pollServer(new([]time.Duration), func(f frame, n int) string {
						if n > 1 {
							return test.then(f)[0]
						}
						return f.result(taskStatus("complete", "input_required", asks("a")))
					}), protocol.Latest
					s.on(protocol.MethodUpdateTask, func(f frame, _ func(frame) []string) []string { return []string{f.fault(test.code, `null`)} })
				}
				session := openFake(t, s, client.Options{Tasks: true, ProtocolVersion: version, Elicit: acceptAll})
				if result, err := session.Task("t").Wait(t.Context()); result != nil || !errors.Is(err, test.want) || errors.Is(err, client.ErrInvalid) || client.NotExecuted(err) {
					t.Errorf("got %+v, %v, want %v", result, err, test.want)
				}
			})
		})
	}
}

// A wait for a task ends with its session, between two polls and while its user is asked, and while there is no server with its
// context. Its error never says that the tool was not called.
//
// Guarantees: G-0031.16, G-0032.10
func TestAWaitEndsWithItsSession(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var why error
			o := client.Options{Elicit: func(ctx context.Context, _ *client.Session, _ *protocol.ElicitParams) (*protocol.ElicitResult, error) {
				<-ctx.Done()
				why = context.Cause(ctx)
				return nil, why
			}}
			session, _ := openTask(t, o, func(f frame, _ int) string {
				if asked {
					return f.result(taskStatus("complete", "input_required", asks("a")))
				}
				return f.result(taskStatus("complete", "working", ""))
			})
			ended := make(chan error, 1)
			go func() {
				_, err := callTool(t, session, "make", "")
				ended <- err
			}()
			pass(10 * time.Second)
			began := time.Now()
			session.Stop()
			err := <-ended
			if !errors.Is(err, client.ErrClosed) || client.NotExecuted(err) || time.Since(began) != 0 || asked != (why != nil) {
				t.Errorf("asked: %t: got %v after %v, want %v at once; the user's context: %v", asked, err, time.Since(began), client.ErrClosed, why)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		session, server := openTask(t, client.Options{Conn: conn.Tuning{BackoffMin: time.Hour, BackoffMax: time.Hour}}, nil)
		server.cut()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := session.Task("t").Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || client.NotExecuted(err) {
			t.Errorf("got %v, which says that the tool was not called: %t", err, client.NotExecuted(err))
		}
	})
}
