package conn_test

import (
	"context"
	"encoding/json"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

const someProgress = `{"jsonrpc":"2.0","method":"progress","params":[1,0]}`

// callUntilPanic makes a call that must not return, and returns a channel for the value of the
// panic that ends it.
func (r run) callUntilPanic(t *testing.T, request conn.Request) <-chan any {
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_, err := r.Call(t.Context(), request)
		t.Errorf("the call returned %v, want a panic", err)
	}()
	synctest.Wait()
	return panicked
}

// wantEnded checks that the statistics, the sample and the hooks all have one call, with this end.
func (r run) wantEnded(t *testing.T, reported []telemetry.RequestStopped, cause conn.Cause, delivery conn.Delivery) {
	t.Helper()
	stats := r.Stats()
	if stats.Settled[cause][delivery] != 1 || stats.Ended() != 1 || r.Control().Sample().Conn.InFlight != 0 || stats.Depths.Pending != 0 {
		t.Errorf("ended %v, %d pending; want one call: %s, %s", stats.Settled, stats.Depths.Pending, cause, delivery)
	}
	if len(reported) != 1 || reported[0].Cause != cause.String() || reported[0].Delivery != delivery.String() {
		t.Errorf("RequestStopped was called with %+v, want one call: %s, %s", reported, cause, delivery)
	}
}

// recordStopped returns options whose hook appends the ends of calls to events.
func recordStopped(events *[]telemetry.RequestStopped) conn.Options {
	return conn.Options{
		Dialect: dialect{},
		Tuning: conn.Tuning{
			Hooks: telemetry.Hooks{
				RequestStopped: func(_ context.Context, e telemetry.RequestStopped) { *events = append(*events, e) },
			},
		},
	}
}

// A call whose OnProgress or OnAttempt panics ends as if its context had been cancelled: it is
// counted, its span ends, and the peer gets a cancellation if it had the request. The panic
// reaches the caller.
//
// Guarantees: G-0003.1, G-0024.3
func TestPanicOfACallbackEndsTheCall(t *testing.T) {
	breaks := func() { panic("broken") }
	for name, test := range map[string]struct {
		trigger func(*script)
		end     func()
		value   any
		cancels bool // the peer gets a cancellation
	}{
		"progress": {func(s *script) { s.deliver(someProgress) }, breaks, "broken", true},
		"goexit":   {func(s *script) { s.deliver(someProgress) }, runtime.Goexit, nil, true},
		"attempt":  {func(s *script) { s.lose(transport.Loss{Reason: io.EOF}) }, breaks, "broken", false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var reported []telemetry.RequestStopped
				s := &script{}
				r := scripted(t, s, recordStopped(&reported))
				panicked := r.callUntilPanic(t, conn.Request{
					Method: "m", Timeout: -1, Retries: 1, Repeatable: true,
					OnProgress: func(json.RawMessage) { test.end() }, OnAttempt: func(conn.Attempt) { test.end() },
				})
				test.trigger(s)
				if value := <-panicked; value != test.value {
					t.Errorf("the caller got the panic %v, want %v", value, test.value)
				}
				synctest.Wait()
				r.wantEnded(t, reported, conn.Cancelled, conn.Unknown)
				cancelled := func(frame string) bool { return strings.Contains(frame, `"cancel"`) }
				if slices.ContainsFunc(s.frames(), cancelled) != test.cancels {
					t.Errorf("the peer got %q, want a cancellation: %v", s.frames(), test.cancels)
				}
				r.Stop()
				<-r.ended
			})
		})
	}
}

// If the answer came before OnProgress panicked, the call counts as answered.
//
// Guarantees: G-0003.1, G-0024.3
func TestPanicOfACallbackAfterTheAnswer(t *testing.T) {
	for range 20 { // select chooses at random
		bubble(t, func(t *testing.T) {
			var reported []telemetry.RequestStopped
			s, release, calls := &script{}, make(chan struct{}), 0
			r := scripted(t, s, recordStopped(&reported))
			panicked := r.callUntilPanic(t, conn.Request{Method: "m", OnProgress: func(json.RawMessage) {
				<-release
				if calls++; calls == 2 {
					panic("broken")
				}
			}})
			s.deliver(someProgress)
			synctest.Wait()
			s.deliver(someProgress)
			s.deliver(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			synctest.Wait()
			close(release)
			if value := <-panicked; value != "broken" {
				t.Errorf("the caller got the panic %v, want \"broken\"", value)
			}
			r.wantEnded(t, reported, conn.Answered, conn.Sent)
			r.Stop()
			<-r.ended
		})
	}
}
