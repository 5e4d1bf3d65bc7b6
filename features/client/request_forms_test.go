package client_test

import (
	"context"
	"encoding/json"
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
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A trace context travels in _meta, beside the members of the revision and those of the program, which take precedence. A client without
// middleware and without the hook RequestStarted sends none.
func TestTraceContextTravelsInMeta(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	passOn := []client.Middleware{func(next client.Handler) client.Handler { return next }}
	hooks := telemetry.Hooks{RequestStarted: func(ctx context.Context, _ telemetry.RequestStarted) context.Context { return ctx }}
	for name, test := range map[string]struct {
		o      client.Options
		traced bool
	}{
		"middleware": {client.Options{Middleware: passOn}, true},
		"a hook":     {client.Options{Conn: conn.Tuning{Hooks: hooks}}, true},
		"neither":    {client.Options{}, false},
	} {
		for _, version := range []string{protocol.Latest, protocol.LatestLegacy} {
			t.Run(name+" "+version, func(t *testing.T) {
				s := &fakeServer{answer: allAnswers(version)}
				test.o.ProtocolVersion = version
				session := openFake(t, s, test.o)
				ctx := telemetry.WithTrace(t.Context(), telemetry.Trace{Parent: parent, State: "a=1", Baggage: "b=2"})
				for _, meta := range []protocol.Meta{nil, {"mine": []byte("1")}, {"mine": []byte("1"), "traceparent": []byte(`"own"`)}} {
					params := &protocol.CallToolParams{Name: "x"}
					params.Meta = meta
					if _, err := session.CallTool(ctx, params); err != nil {
						t.Fatal(err)
					}
					calls := s.received(protocol.MethodCallTool)
					got := metaOf(t, calls[len(calls)-1])
					want := map[string]string{"traceparent": "", "tracestate": "", "baggage": "", "mine": ""}
					if test.traced && meta["traceparent"] == nil {
						want = map[string]string{"traceparent": `"` + parent + `"`, "tracestate": `"a=1"`, "baggage": `"b=2"`}
					}
					for member, value := range meta {
						want[member] = string(value)
					}
					for member, value := range want {
						if string(got[member]) != value {
							t.Errorf("with %s: got the _meta %s, want %s of %s", meta, got, value, member)
						}
					}
					if _, modern := got[protocol.MetaProtocolVersion]; modern != protocol.IsModern(version) {
						t.Errorf("with %s: got the _meta %s of %s", meta, got, version)
					}
				}
				if err := session.Notify(ctx, "notifications/x", nil); err != nil {
					t.Fatal(err)
				}
				if err := session.Ping(t.Context()); err != nil { // the notification has arrived
					t.Fatal(err)
				}
				if got := metaOf(t, s.received("notifications/x")[0]); (got["traceparent"] != nil) != test.traced {
					t.Errorf("a notification has the _meta %s", got)
				}
			})
		}
	}
}

// Params with more members than are checked in one pass travel as they are, with their _meta and that of the session.
func TestParamsWithManyMembers(t *testing.T) {
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, `,"m%d":%d`, i, i)
	}
	for _, version := range []string{protocol.Latest, protocol.LatestLegacy} {
		s := &fakeServer{answer: allAnswers(version)}
		session := openFake(t, s, client.Options{ProtocolVersion: version})
		params := json.RawMessage(`{"_meta":{"mine":{"a":[1]}}` + many.String() + `}`)
		if _, err := session.Request(t.Context(), "latin/translate", params); err != nil {
			t.Fatal(err)
		}
		got := s.received("latin/translate")[0]
		if !strings.Contains(string(got.Params), many.String()) {
			t.Errorf("%s: the server got %s, want %s in it", version, got.Params, many.String())
		}
		meta := metaOf(t, got)
		if _, modern := meta[protocol.MetaProtocolVersion]; string(meta["mine"]) != `{"a":[1]}` || modern != protocol.IsModern(version) {
			t.Errorf("%s: the server got the _meta %s", version, meta)
		}
		twice := json.RawMessage(`{"_meta":{}` + many.String() + `,"m1":1}`)
		if _, err := session.Request(t.Context(), "latin/translate", twice); err == nil || !client.NotExecuted(err) {
			t.Errorf("%s: with a member twice: got %v, want an error of a request that was not sent", version, err)
		}
	}
}

// A reference without a type is one to a resource if it has a URI, and otherwise one to a prompt. The params of the caller stay as they are.
func TestTypesOfReferences(t *testing.T) {
	s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
	session := openFake(t, s, client.Options{})
	for _, test := range []struct {
		given protocol.CompleteReference
		want  string
	}{
		{protocol.CompleteReference{URI: "file:///{x}"}, `{"type":"ref/resource","uri":"file:///{x}"}`},
		{protocol.CompleteReference{Name: "p"}, `{"type":"ref/prompt","name":"p"}`},
		{protocol.CompleteReference{Type: "ref/prompt", Name: "p", URI: "file:///a"}, `{"type":"ref/prompt","name":"p","uri":"file:///a"}`},
		{protocol.CompleteReference{Type: "ref/resource", Name: "p", URI: "file:///a"}, `{"type":"ref/resource","name":"p","uri":"file:///a"}`},
	} {
		params := &protocol.CompleteParams{Ref: test.given}
		if _, err := session.Complete(t.Context(), params); err != nil {
			t.Fatal(err)
		}
		var got struct{ Ref json.RawMessage }
		asked := s.received(protocol.MethodComplete)
		var gotRef, wantRef map[string]string
		if json.Unmarshal(asked[len(asked)-1].Params, &got) != nil || json.Unmarshal(got.Ref, &gotRef) != nil || json.Unmarshal([]byte(test.want), &wantRef) != nil {
			t.Fatalf("got %s", asked[len(asked)-1].Params)
		}
		for member := range map[string]bool{"type": true, "name": true, "uri": true} {
			if gotRef[member] != wantRef[member] {
				t.Errorf("%+v: got %s, want %s", test.given, got.Ref, test.want)
			}
		}
		if params.Ref != test.given {
			t.Errorf("the params were changed to %+v, want %+v", params.Ref, test.given)
		}
	}
}

// The error of a call matches each kind that it is of, and no other.
func TestKindsOfErrors(t *testing.T) {
	status := func(code int) func(transport.Receiver, transport.Outbound) {
		return func(to transport.Receiver, o transport.Outbound) {
			to.Failed(transport.Failure{Tag: o.Tag, Err: &transport.StatusError{Status: code}, Unsent: true})
		}
	}
	fault := func(code int64, data string) func(transport.Receiver, transport.Outbound) {
		return func(to transport.Receiver, o transport.Outbound) {
			e := &jsonrpc.Error{Code: code, Message: "no", Data: json.RawMessage(data)}
			to.Failed(transport.Failure{Tag: o.Tag, Err: &transport.StatusError{Status: 400, Fault: e}, Unsent: true})
		}
	}
	silence := func(transport.Receiver, transport.Outbound) {}
	kinds := map[string]error{
		"unavailable": client.ErrUnavailable, "lost": client.ErrLost, "denied": client.ErrDenied, "closed": client.ErrClosed, "invalid": client.ErrInvalid, "unsupported": client.ErrUnsupported,
		"not found": client.ErrNotFound, "no task": client.ErrNoTask, "timed out": client.ErrTimedOut, "stale": client.ErrStale,
	}
	read, call, get := protocol.MethodReadResource, protocol.MethodCallTool, protocol.MethodGetTask
	for name, test := range map[string]struct {
		method string
		answer func(transport.Receiver, transport.Outbound)
		want   []string
	}{
		"401": {call, status(401), []string{"denied"}},
		"403": {call, status(403), []string{"denied"}},
		"404": {call, status(404), nil},
		"400": {call, status(400), nil},
		"500": {call, status(500), nil},
		"a login is required": {call, func(to transport.Receiver, o transport.Outbound) {
			to.Failed(transport.Failure{Tag: o.Tag, Err: fmt.Errorf("no token: %w", transport.ErrAuthRequired), Unsent: true})
		}, []string{"denied"}},
		"invalid params":                      {call, fault(-32602, `null`), []string{"invalid"}},
		"a state that is refused":             {call, fault(-32602, `{"reason":"invalid_request_state"}`), nil},
		"method not found":                    {call, fault(-32601, `null`), []string{"unsupported"}},
		"internal":                            {call, fault(-32603, `null`), nil},
		"of a tool, as if it were a resource": {call, fault(-32002, `{"uri":"a"}`), nil},
		"of a tool, with a URI":               {call, fault(-32602, `{"uri":"a"}`), []string{"invalid"}},
		"a resource, legacy":                  {read, fault(-32002, `null`), []string{"not found"}},
		"a resource":                          {read, fault(-32602, `{"uri":"a"}`), []string{"not found"}},
		"a resource, data without a URI":      {read, fault(-32602, `{"uri":""}`), []string{"invalid"}},
		"a resource, data of another kind":    {read, fault(-32602, `[]`), []string{"invalid"}},
		"a resource, another code with a URI": {read, fault(-32603, `{"uri":"a"}`), nil},
		"a task":                              {get, fault(-32602, `null`), []string{"no task"}},
		"a task, internal":                    {get, fault(-32603, `null`), nil},
		"no answer":                           {call, silence, []string{"timed out"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeServer{answer: func(f frame) []string {
					if f.Method == protocol.MethodInitialize {
						return f.initialized(protocol.LatestLegacy, `{"tools":{},"resources":{},"tasks":{"requests":{"tools":{"call":{}}}}}`)
					}
					return allAnswers(protocol.LatestLegacy)(f)
				}}
				t.Cleanup(s.close)
				session, err := connect(t, intercepting(s, test.method, test.answer), client.Options{ProtocolVersion: protocol.LatestLegacy}, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				switch test.method {
				case read:
					_, err = session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: "a"})
				case get:
					_, err = session.Task("t").Status(t.Context())
				default:
					_, err = callTool(t, session, "x", "")
				}
				var failed *client.CallError
				if !errors.As(err, &failed) || failed.Method != test.method || failed.ID == 0 {
					t.Errorf("got %#v, want a *client.CallError of %s", err, test.method)
				}
				for kind, target := range kinds {
					want := false
					for _, one := range test.want {
						want = want || one == kind
					}
					if errors.Is(err, target) != want {
						t.Errorf("got %v, which matches %q: %t", err, kind, !want)
					}
				}
			})
		})
	}
}

// A call whose context has a deadline ends as timed out, and matches both errors; one that is cancelled does not.
func TestEndOfTheContextOfACall(t *testing.T) {
	for _, deadline := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			session := openFake(t, answering(nil), client.Options{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			want := context.DeadlineExceeded
			if !deadline {
				ctx, cancel = context.WithCancel(t.Context())
				want = context.Canceled
				timer := time.AfterFunc(time.Second, cancel)
				defer timer.Stop()
			}
			_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "x"})
			var failed *client.CallError
			if !errors.As(err, &failed) || !errors.Is(err, want) || errors.Is(err, client.ErrTimedOut) != deadline || errors.Is(err, client.ErrLost) {
				t.Errorf("deadline %t: got %v, want %v, and %v if it is a deadline", deadline, err, want, client.ErrTimedOut)
			}
		})
	}
}

// A call whose context ends while the program is asked says which request has asked, and that it may have been executed.
func TestEndOfTheContextOfAQuestion(t *testing.T) {
	enough := errors.New("enough")
	for _, deadline := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := askingServer(`{"r":{"method":"roots/list"}}`, withFault(-32603, `null`))
			session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest, Roots: func(ctx context.Context, _ *client.Session) ([]protocol.Root, error) {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}})
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, enough)
			defer cancel()
			cause := conn.TimedOut
			if !deadline {
				var stop context.CancelCauseFunc
				ctx, stop = context.WithCancelCause(t.Context())
				timer := time.AfterFunc(time.Hour, func() { stop(enough) })
				defer timer.Stop()
				cause = conn.Cancelled
			}
			_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "x"})
			var failed *client.CallError
			var unanswered *client.InputError
			calls := s.received(protocol.MethodCallTool)
			if !errors.As(err, &failed) || failed.Cause != cause || failed.Method != protocol.MethodCallTool || len(calls) != 1 || fmt.Sprint(failed.ID) != string(calls[0].ID) ||
				client.NotExecuted(err) || !errors.Is(err, enough) || !errors.As(err, &unanswered) || unanswered.Key != "r" || unanswered.Method != protocol.MethodListRoots {
				t.Errorf("deadline %t: got %#v, %v, want one of %v with the cause %v, of the first request", deadline, err, err, enough, cause)
			}
		})
	}
}

// A call whose server is lost, or whose session ends, while the program is asked says why, and what the program has answered.
func TestEndOfTheServerDuringAQuestion(t *testing.T) {
	for name, test := range map[string]struct {
		end   func(*fakeServer, *client.Session)
		cause conn.Cause
		kind  error
	}{
		"lost":                {func(s *fakeServer, _ *client.Session) { s.cut() }, conn.LinkLost, client.ErrLost},
		"stopped":             {func(_ *fakeServer, session *client.Session) { session.Stop() }, conn.ShutDown, client.ErrClosed},
		"given up after that": {func(s *fakeServer, _ *client.Session) { s.cut() }, conn.Cancelled, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			s := askingServer(`{"r":{"method":"roots/list"}}`, withFault(-32603, `null`))
			session := openFake(t, s, client.Options{ProtocolVersion: protocol.Latest, Roots: func(ctx context.Context, _ *client.Session) ([]protocol.Root, error) {
				<-ctx.Done()
				why := context.Cause(ctx)
				if test.cause == conn.Cancelled {
					giveUp()
				}
				return nil, fmt.Errorf("nobody has answered: %w", why)
			}})
			timer := time.AfterFunc(time.Hour, func() { test.end(s, session) })
			defer timer.Stop()
			_, err := session.CallTool(ctx, &protocol.CallToolParams{Name: "x"})
			var failed *client.CallError
			var unanswered *client.InputError
			var why client.Reason
			if !errors.As(err, &failed) || failed.Cause != test.cause || failed.ID == 0 || failed.Method != protocol.MethodCallTool || client.NotExecuted(err) || test.kind != nil && !errors.Is(err, test.kind) ||
				!errors.As(err, &unanswered) || unanswered.Key != "r" || !errors.As(failed.Err, &why) || why.Kind == "" {
				t.Errorf("%s: got %#v, %v, want one that matches %v, with the reason and the *client.InputError", name, err, err, test.kind)
			}
		})
	}
}

// RootsChanged reports the sessions that could not be told, by name. Those that are away ask the next time they are there.
func TestRootsChangedReportsWhoCouldNotBeTold(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		told bool
	}{
		"sent": {nil, false}, "lost": {client.ErrLost, false}, "away": {fmt.Errorf("x: %w", client.ErrUnavailable), false},
		"closed": {client.ErrClosed, true}, "another": {errors.New("of a middleware"), true},
	} {
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		c := client.New(clientInfo, client.Options{
			ProtocolVersion: protocol.LatestLegacy, Conn: conn.Tuning{Name: "files"},
			Roots: func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, nil },
			Middleware: []client.Middleware{func(next client.Handler) client.Handler {
				return func(ctx context.Context, r *client.Request) (any, error) {
					if r.Method == protocol.NotificationRootsListChanged && test.err != nil {
						return nil, test.err
					}
					return next(ctx, r)
				}
			}},
		})
		for range 2 {
			if _, err := c.Connect(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		err := c.RootsChanged(t.Context())
		if (err != nil) != test.told || test.told && (!errors.Is(err, test.err) || strings.Count(err.Error(), "client: files") != 2) {
			t.Errorf("%s: got %v, want the errors of both sessions of files: %t", name, err, test.told)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		s.close()
	}
}

// Middleware that passes on what is not its Request, or params of another kind, gets an error, and nothing is sent.
func TestMiddlewareThatPassesOnSomethingElse(t *testing.T) {
	for name, change := range map[string]func(*client.Request) *client.Request{
		"params of another method": func(r *client.Request) *client.Request { r.Params = new(protocol.GetPromptParams); return r },
		"params by value":          func(r *client.Request) *client.Request { r.Params = protocol.CallToolParams{Name: "x"}; return r },
		"a nil pointer":            func(r *client.Request) *client.Request { r.Params = (*protocol.CallToolParams)(nil); return r },
		"nothing":                  func(r *client.Request) *client.Request { r.Params = nil; return r },
		"a Request of its own": func(r *client.Request) *client.Request {
			return &client.Request{Method: r.Method, Params: r.Params, Session: r.Session}
		},
		"an unknown method": func(r *client.Request) *client.Request { r.Method = "x"; return r },
	} {
		s := &fakeServer{answer: allAnswers(protocol.LatestLegacy)}
		session := openFake(t, s, client.Options{Middleware: []client.Middleware{func(next client.Handler) client.Handler {
			return func(ctx context.Context, r *client.Request) (any, error) {
				changed := change(r)
				result, err := next(ctx, changed)
				if changed.ID() != 0 || changed.Epoch() != 0 || r.QuestionID() != (jsonrpc.ID{}) {
					t.Errorf("%s: got the id %d of epoch %d, want none", name, changed.ID(), changed.Epoch())
				}
				return result, err
			}
		}}})
		if result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "x"}); err == nil || result != nil {
			t.Errorf("%s: got %+v, %v, want an error", name, result, err)
		}
		if n := len(s.received(protocol.MethodCallTool)); n > 0 {
			t.Errorf("%s: the server got %d calls, want none", name, n)
		}
	}
}
