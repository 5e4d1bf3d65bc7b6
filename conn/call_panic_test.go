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

// breakOff makes a call that does not return. It returns a channel for the value of the
// panic that ends it.
func (r run) breakOff(t *testing.T, request conn.Request) <-chan any {
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_, err := r.Call(t.Context(), request)
		t.Errorf("the call returned %v", err)
	}()
	synctest.Wait()
	return panicked
}

// wantEnded checks that one call was made and has ended like this, for everybody who
// counts calls.
func (r run) wantEnded(t *testing.T, told []telemetry.RequestStopped, cause conn.Cause, delivery conn.Delivery) {
	t.Helper()
	stats := r.Stats()
	if stats.Settled[cause][delivery] != 1 || stats.Ended() != 1 || r.Sample().Conn.InFlight != 0 || stats.Depths.Pending != 0 {
		t.Errorf("%v ended, %d are pending", stats.Settled, stats.Depths.Pending)
	}
	if len(told) != 1 || told[0].Cause != cause.String() || told[0].Delivery != delivery.String() {
		t.Errorf("the hooks were told %+v", told)
	}
}

// stopped returns options whose hook adds to told.
func stopped(told *[]telemetry.RequestStopped) conn.Options {
	return conn.Options{Dialect: dialect{}, Hooks: telemetry.Hooks{
		RequestStopped: func(_ context.Context, e telemetry.RequestStopped) { *told = append(*told, e) },
	}}
}

// A call whose OnProgress or OnAttempt panics ends as if its context had been cancelled:
// it is counted, its span ends, and the peer is told. The panic reaches the caller.
//
// Guarantees: G-0003.1, G-0024.3
func TestPanicOfACallbackEndsTheCall(t *testing.T) {
	breaks := func() { panic("broken") }
	for name, test := range map[string]struct {
		befall  func(*script)
		end     func()
		value   any
		cancels bool // the peer is told
	}{
		"progress": {func(s *script) { s.say(someProgress) }, breaks, "broken", true},
		"goexit":   {func(s *script) { s.say(someProgress) }, runtime.Goexit, nil, true},
		"attempt":  {func(s *script) { s.lose(transport.Loss{Reason: io.EOF}) }, breaks, "broken", false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var told []telemetry.RequestStopped
				s := &script{}
				r := scripted(t, s, stopped(&told))
				panicked := r.breakOff(t, conn.Request{
					Method: "m", Timeout: -1, Retries: 1, Repeatable: true,
					OnProgress: func(json.RawMessage) { test.end() }, OnAttempt: func(conn.Attempt) { test.end() },
				})
				test.befall(s)
				if value := <-panicked; value != test.value {
					t.Errorf("the caller got the panic %v", value)
				}
				synctest.Wait()
				r.wantEnded(t, told, conn.Cancelled, conn.Unknown)
				cancelled := func(frame string) bool { return strings.Contains(frame, `"cancel"`) }
				if slices.ContainsFunc(s.frames(), cancelled) != test.cancels {
					t.Errorf("the peer got %q", s.frames())
				}
				r.Stop()
				<-r.ended
			})
		})
	}
}

// A call that was answered before its OnProgress panicked has ended with the answer.
//
// Guarantees: G-0003.1, G-0024.3
func TestPanicOfACallbackAfterTheAnswer(t *testing.T) {
	for range 20 { // a select chooses by chance
		bubble(t, func(t *testing.T) {
			var told []telemetry.RequestStopped
			s, release, calls := &script{}, make(chan struct{}), 0
			r := scripted(t, s, stopped(&told))
			panicked := r.breakOff(t, conn.Request{Method: "m", OnProgress: func(json.RawMessage) {
				<-release
				if calls++; calls == 2 {
					panic("broken")
				}
			}})
			s.say(someProgress)
			synctest.Wait()
			s.say(someProgress)
			s.say(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			synctest.Wait()
			close(release)
			if value := <-panicked; value != "broken" {
				t.Errorf("the caller got the panic %v", value)
			}
			r.wantEnded(t, told, conn.Answered, conn.Sent)
			r.Stop()
			<-r.ended
		})
	}
}
