package conn_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// Hooks.ServeStopped reports each served request with its outcome and times, before the answer is sent.
//
// Guarantees: G-0024.8
func TestServedRequestsAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reported []telemetry.ServeStopped
		var values []any
		s := new(script)
		named := func(f func(ctx context.Context) error) func(context.Context, *conn.Incoming) (json.RawMessage, error) {
			return func(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
				in.SetTarget("tool")
				advance(time.Second)
				return nil, f(ctx)
			}
		}
		r := scripted(t, s, conn.Options{
			Handler: handler{
				"answers": named(func(context.Context) error { return nil }),
				"fails":   named(func(context.Context) error { return &jsonrpc.Error{Code: -32602, Message: "no"} }),
				"panics":  named(func(context.Context) error { panic("no") }),
				"waits":   named(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }),
			},
			Tuning: conn.Tuning{
				Name:       "c",
				MaxServing: 1,
				Hooks: telemetry.Hooks{
					ServeStopped: func(ctx context.Context, e telemetry.ServeStopped) {
						reported, values = append(reported, e), append(values, ctx.Value(span{}))
						if sent := s.frames(); len(reported) == 1 && len(sent) != 0 {
							t.Errorf("%q was sent before the hook was called", sent)
						}
					},
					Panic: func(telemetry.Panic) {},
				},
			},
		})
		from := &transport.Origin{Value: func(key any) any {
			if key == (span{}) {
				return "of the request"
			}
			return nil
		}}
		for i, method := range []string{"answers", "fails", "panics", "waits"} {
			s.receiver.Receive(transport.Inbound{Frame: jsonrpc.AppendRequest(nil, jsonrpc.IntegerID(int64(i+1)), method, nil), Origin: from})
		}
		advance(10 * time.Second)
		s.lose(transport.Loss{Reason: io.EOF})
		synctest.Wait()
		want := []telemetry.ServeStopped{
			{Method: "answers", Outcome: telemetry.ServeAnswered, Duration: time.Second},
			{Method: "fails", Outcome: telemetry.ServeFailed, Code: -32602, Queued: time.Second, Duration: time.Second},
			{Method: "panics", Outcome: telemetry.ServePanicked, Code: jsonrpc.CodeInternalError, Queued: 2 * time.Second, Duration: time.Second},
			{Method: "waits", Outcome: telemetry.ServeCancelled, Queued: 3 * time.Second, Duration: 7 * time.Second},
		}
		if len(reported) != len(want) {
			t.Fatalf("reported %+v, want %d events", reported, len(want))
		}
		for i, e := range reported {
			if values[i] != "of the request" {
				t.Errorf("%s: the context has %v, want the value of the request", e.Method, values[i])
			}
			if (e.Err != nil) != (e.Outcome != telemetry.ServeAnswered) {
				t.Errorf("%s: error %v with outcome %v, want an error unless answered", e.Method, e.Err, e.Outcome)
			}
			want[i].Conn, want[i].Epoch, want[i].Target, e.Err = "c", 1, "tool", nil
			if e != want[i] {
				t.Errorf("reported %+v, want %+v", e, want[i])
			}
		}
		r.Stop()
		<-r.ended
	})
}

// An auditing handler keeps what it is told as an Auditor.
type auditing struct {
	handler
	told   *[]telemetry.ServeStopped
	values *[]any
}

func (a auditing) RequestEnded(ctx context.Context, _ *conn.Incoming, e telemetry.ServeStopped) {
	*a.told, *a.values = append(*a.told, e), append(*a.values, ctx.Value(span{}))
}

// The hook and the Auditor are told of each request that the peer has sent, with the values of its origin, and of none that the link
// sends in the name of the peer. The Auditor is told of those that no handler got, too.
//
// Guarantees: G-0024.8, G-0071.1
func TestWhoIsToldOfARequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told, hooked []telemetry.ServeStopped
		var values []any
		s := new(script)
		r := start(conn.Accept(s, conn.Options{
			Handler: auditing{handler{"m": echo}, &told, &values},
			Tuning:  conn.Tuning{Name: "c", Hooks: telemetry.Hooks{ServeStopped: func(_ context.Context, e telemetry.ServeStopped) { hooked = append(hooked, e) }}},
		}))
		synctest.Wait()
		from := &transport.Origin{Value: func(key any) any { return map[bool]any{true: "of the request"}[key == span{}] }}
		for _, in := range []transport.Inbound{
			{Frame: []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`), Implied: true},
			{Frame: []byte(`{"jsonrpc":"2.0","id":2,"method":"m"}`), Held: 3 * time.Second},
			{Frame: []byte(`{"jsonrpc":"2.0","id":9,"result":1,"error":1}`)}, // it was no request
			{Frame: []byte(`{"jsonrpc":"2.0","id":3,"method":"other"}`)},
			{Frame: []byte(`{"jsonrpc":"2.0","id":4,"method":5}`)},
			{Frame: []byte(`{"jsonrpc":"2.0","id":5,"method":6}`), Implied: true},
		} {
			in.Origin = from
			s.receiver.Receive(in)
			synctest.Wait()
		}
		if len(s.frames()) != 5 {
			t.Errorf("sent %q, want five answers", s.frames())
		}
		r.Stop()
		<-r.ended
		served := []telemetry.ServeStopped{
			{Conn: "c", Epoch: 1, Method: "m", Outcome: telemetry.ServeAnswered, Queued: 3 * time.Second},
			{Conn: "c", Epoch: 1, Method: "other", Outcome: telemetry.ServeFailed, Code: jsonrpc.CodeMethodNotFound},
		}
		malformed := telemetry.ServeStopped{Conn: "c", Epoch: 1, Outcome: telemetry.ServeMalformed, Code: jsonrpc.CodeInvalidRequest}
		ignored := cmpopts.IgnoreFields(telemetry.ServeStopped{}, "Err")
		if diff := gocmp.Diff(served, hooked, ignored); diff != "" {
			t.Errorf("the hook (-want +got):\n%s", diff)
		}
		if diff := gocmp.Diff(append(served, malformed), told, ignored); diff != "" {
			t.Errorf("the Auditor (-want +got):\n%s", diff)
		}
		if !slices.Equal(values, slices.Repeat([]any{"of the request"}, 3)) {
			t.Errorf("the contexts have %v, want the value of each request", values)
		}
	})
}

// A telling handler passes on what it is told as an Auditor, from any goroutine.
type telling struct {
	handler
	told chan telemetry.ServeStopped
}

func (a telling) RequestEnded(_ context.Context, _ *conn.Incoming, e telemetry.ServeStopped) {
	a.told <- e
}

// A request whose context has ended counts as cancelled, whatever its handler returns then. One that waited until that has waited for all
// of its time, and was served for none.
//
// Guarantees: G-0024.8, G-0071.1
func TestRequestsThatEndWithTheirContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		told := make(chan telemetry.ServeStopped, 2)
		s := new(script)
		r := start(conn.Accept(s, conn.Options{
			Handler: telling{handler{"deaf": func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) { <-ctx.Done(); return nil, nil }, "waits": echo}, told},
			Tuning:  conn.Tuning{MaxServing: 1},
		}))
		synctest.Wait()
		for i, method := range []string{"deaf", "waits"} {
			s.receiver.Receive(transport.Inbound{Frame: jsonrpc.AppendRequest(nil, jsonrpc.IntegerID(int64(i+1)), method, nil)})
			advance(time.Second)
		}
		s.lose(transport.Loss{Reason: io.EOF})
		<-r.ended
		got := []telemetry.ServeStopped{<-told, <-told}
		slices.SortFunc(got, func(a, b telemetry.ServeStopped) int { return cmp.Compare(a.Method, b.Method) })
		want := []telemetry.ServeStopped{
			{Epoch: 1, Method: "deaf", Outcome: telemetry.ServeCancelled, Duration: 2 * time.Second},
			{Epoch: 1, Method: "waits", Outcome: telemetry.ServeCancelled, Queued: time.Second},
		}
		if diff := gocmp.Diff(want, got, cmpopts.IgnoreFields(telemetry.ServeStopped{}, "Err")); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// The context of a request ends with its handler, also if that ends its goroutine: whatever waits for it ends, too.
//
// Guarantees: G-0024.8
func TestAContextEndsWithItsHandler(t *testing.T) {
	for name, leave := range map[string]func(){"returns": func() {}, "panics": func() { panic("no") }, "ends its goroutine": runtime.Goexit} {
		bubble(t, func(t *testing.T) {
			ended := make(chan struct{})
			s := new(script)
			r := scripted(t, s, conn.Options{Handler: handler{"m": func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
				context.AfterFunc(ctx, func() { close(ended) })
				leave()
				return nil, nil
			}}, Tuning: conn.Tuning{Hooks: telemetry.Hooks{Panic: func(telemetry.Panic) {}}}})
			s.receiver.Receive(transport.Inbound{Frame: jsonrpc.AppendRequest(nil, jsonrpc.IntegerID(1), "m", nil)})
			synctest.Wait()
			if !wait.IsClosed(ended) {
				t.Errorf("a handler that %s: its context goes on", name)
			}
			r.Stop()
			<-r.ended
		})
	}
}

// The events of a call have its target and the durations of its attempts. MessageFor gets the context
// that RequestStarted has returned.
//
// Guarantees: G-0024.9
func TestCallsAreReportedWithTheirTarget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var spans []any
		var told []any
		r, _ := runWithOutcomes(t, conn.Options{Tuning: conn.Tuning{Name: "c", BackoffMin: time.Second, BackoffMax: time.Second, Hooks: telemetry.Hooks{
			RequestStarted: func(ctx context.Context, e telemetry.RequestStarted) context.Context {
				e.At, e.Correlation = time.Time{}, 0
				told = append(told, e)
				return context.WithValue(ctx, span{}, "mine")
			},
			Retried: func(_ context.Context, e telemetry.Retried) {
				e.Correlation = 0
				told = append(told, e)
			},
			RequestStopped: func(_ context.Context, e telemetry.RequestStopped) {
				e.Correlation = 0
				told = append(told, e)
			},
		}}}, lost, lost, silence)
		_, err := r.Call(t.Context(), conn.Request{
			Method: "m", Target: "tool", Retries: 2, Repeatable: true, Timeout: 3 * time.Second,
			MessageFor: conn.MessageFunc(func(ctx context.Context, _ int64, _ uint64) (conn.Message, error) {
				spans = append(spans, ctx.Value(span{}))
				return conn.Message{}, nil
			}),
		})
		wantEnd(t, err, conn.TimedOut, conn.Unknown)
		again := telemetry.Retried{Conn: "c", Method: "m", Target: "tool", ID: 1, Epoch: 1, Attempt: 1, Cause: "link lost", Delivery: "unknown", Err: reasonOf(err, 0)}
		twice := again
		twice.ID, twice.Epoch, twice.Attempt, twice.Err = 2, 2, 2, reasonOf(err, 1)
		want := []any{
			telemetry.RequestStarted{Conn: "c", Method: "m", Target: "tool", ID: 1}, again, twice,
			telemetry.RequestStopped{
				Conn: "c", Method: "m", Target: "tool", ID: 3, Attempts: 3, Cause: "timed out", Delivery: "unknown",
				Duration: 5 * time.Second, Last: 3 * time.Second, Err: err,
			},
		}
		if diff := gocmp.Diff(want, told, gocmp.Comparer(func(a, b error) bool { return a != nil && b != nil && a.Error() == b.Error() })); diff != "" {
			t.Errorf("the events (-want +got):\n%s", diff)
		}
		if !slices.Equal(spans, []any{"mine", "mine", "mine"}) {
			t.Errorf("MessageFor got the spans %v, want \"mine\" three times", spans)
		}
		r.Stop()
		<-r.ended
	})
}

// reasonOf returns the error of an earlier attempt of a call.
func reasonOf(err error, n int) error {
	var failed *conn.CallError
	if errors.As(err, &failed) && n < len(failed.Attempts) {
		return failed.Attempts[n].Err
	}
	return nil
}

// Without RequestStarted, and if it returns none, MessageFor and the later hooks get the caller's context.
func TestMessageForGetsTheCallersContext(t *testing.T) {
	none := func(context.Context, telemetry.RequestStarted) context.Context { return nil }
	for _, started := range []func(context.Context, telemetry.RequestStarted) context.Context{nil, none} {
		bubble(t, func(t *testing.T) {
			var found, last any
			r, _ := runWithOutcomes(t, conn.Options{Tuning: conn.Tuning{Hooks: telemetry.Hooks{
				RequestStarted: started,
				RequestStopped: func(ctx context.Context, _ telemetry.RequestStopped) { last = ctx.Value(span{}) },
			}}})
			errNo := errors.New("no")
			_, err := r.Call(context.WithValue(t.Context(), span{}, "the caller's"), conn.Request{
				Method: "m",
				MessageFor: conn.MessageFunc(func(ctx context.Context, _ int64, _ uint64) (conn.Message, error) {
					found = ctx.Value(span{})
					return conn.Message{}, errNo
				}),
			})
			if !errors.Is(err, errNo) || found != "the caller's" || last != found {
				t.Errorf("found %v and %v, error %v; want \"the caller's\" twice, %v", found, last, err, errNo)
			}
			r.Stop()
			<-r.ended
		})
	}
}
