package conn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// policies are the combinations of options that let a call survive a loss of the link.
var policies = map[string]conn.Request{
	"fails fast": {Method: "m"},
	"waits":      {Method: "m", WaitForReady: true},
	"retries":    {Method: "m", Retries: 9, Repeatable: true},
	"both":       {Method: "m", Retries: 9, Repeatable: true, WaitForReady: true},
}

// A call with the Epoch of an incarnation that has ended is refused and not sent, both in backoff
// and when a later incarnation is ready.
//
// Guarantees: G-0003.14
func TestCallForAnIncarnationThatIsOverIsNotSent(t *testing.T) {
	for name, request := range policies {
		bubble(t, func(t *testing.T) {
			r, f := runWithOutcomes(t, conn.Options{}, lost)
			<-r.calling(t.Context(), conn.Request{Method: "m"})
			request.Epoch = 1
			for _, state := range []conn.State{conn.Backoff, conn.Ready} {
				if state == conn.Ready {
					if err := r.AwaitReady(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				_, err := r.Call(t.Context(), request)
				wantEnd(t, err, conn.Refused, conn.NotSent)
				if !errors.Is(err, conn.ErrStale) || r.State() != state || time.Since(began) != 0 {
					t.Errorf("%s, %s: after %v got %v, want ErrStale at once", name, state, time.Since(began), err)
				}
				if stateErr := new(conn.StateError); errors.As(err, &stateErr) != (state == conn.Backoff) {
					t.Errorf("%s, %s: got %v, want a StateError only in backoff", name, state, err)
				}
			}
			if len(f.ids) != 1 {
				t.Errorf("%s: %d requests were sent, want 1", name, len(f.ids))
			}
			r.Stop()
			<-r.ended
		})
	}
}

// A call with an Epoch ends with the link of that incarnation, whatever its policy, and is not
// sent again on the next one.
//
// Guarantees: G-0003.14
func TestCallForAnIncarnationIsNotCarriedOverItsLoss(t *testing.T) {
	for name, request := range policies {
		for _, first := range []outcome{lost, lostUnsent} {
			bubble(t, func(t *testing.T) {
				r, f := runWithOutcomes(t, conn.Options{}, first)
				request.Epoch = 1
				_, err := r.Call(t.Context(), request)
				delivery := conn.NotSent
				if first.executed {
					delivery = conn.Unknown
				}
				wantEnd(t, err, conn.LinkLost, delivery)
				advance(time.Minute)
				if len(f.ids) != 1 || r.State() != conn.Ready {
					t.Errorf("%s: %d requests were sent in state %s, want 1 in ready", name, len(f.ids), r.State())
				}
				r.Stop()
				<-r.ended
			})
		}
	}
}

// A call with an Epoch is retried as long as that incarnation lasts.
//
// Guarantees: G-0003.14
func TestCallForAnIncarnationIsRetriedWithinIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{}, streamLost, lostUnsent)
		_, err := r.Call(t.Context(), conn.Request{Method: "m", Epoch: 1, Retries: 9, Repeatable: true})
		wantEnd(t, err, conn.LinkLost, conn.Unknown)
		if len(f.ids) != 2 {
			t.Errorf("%d requests were sent, want 2", len(f.ids))
		}
		r.Stop()
		<-r.ended
	})
}

// A call with the Epoch of an incarnation that is not ready yet fails with a StateError, and not
// with ErrStale. With WaitForReady it waits, and is then sent.
//
// Guarantees: G-0003.14
func TestCallForAnIncarnationThatIsNotReadyYet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		shakes := func(ctx context.Context, _ *conn.Incarnation) error {
			select {
			case <-release:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		f := new(outcomeTransport)
		r := start(conn.New(f, conn.Options{Handshake: shakes}))
		synctest.Wait()
		bound := conn.Request{Method: "m", Epoch: r.Status().Epoch}
		_, err := r.Call(t.Context(), bound)
		if state := new(conn.StateError); !errors.As(err, &state) || errors.Is(err, conn.ErrStale) || r.State() != conn.Initializing {
			t.Errorf("in state %s got %v, want a StateError in initializing", r.State(), err)
		}
		bound.WaitForReady = true
		result := r.calling(t.Context(), bound)
		close(release)
		if err := <-result; err != nil || len(f.ids) != 1 {
			t.Errorf("got %v, %d requests were sent; want no error and 1", err, len(f.ids))
		}
		r.Stop()
		<-r.ended
	})
}

// A call with an Epoch that no incarnation has had is refused at once, whatever its policy.
//
// Guarantees: G-0003.14
func TestCallForAnUnknownIncarnationIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{})
		for name, request := range policies {
			request.Epoch = 99
			if _, err := r.Call(t.Context(), request); !errors.Is(err, conn.ErrStale) || !conn.NotExecuted(err) || len(f.ids) > 0 {
				t.Errorf("%s: got %v, want ErrStale and no request sent", name, err)
			}
		}
		r.Stop()
		<-r.ended
	})
}

// A call through Incarnation.Call is refused once that incarnation has ended, whatever its policy.
//
// Guarantees: G-0003.14
func TestCallOfAHandshakeIsForItsIncarnation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var first *conn.Incarnation
		shakes := func(_ context.Context, incarnation *conn.Incarnation) error {
			if first == nil {
				first = incarnation
			}
			return nil
		}
		r, f := runWithOutcomes(t, conn.Options{Handshake: shakes}, lost)
		for name, request := range policies {
			<-r.calling(t.Context(), conn.Request{Method: "m"}) // the first of these calls loses the link
			advance(time.Minute)
			sent := len(f.ids)
			if _, err := first.Call(t.Context(), request); !errors.Is(err, conn.ErrStale) || !conn.NotExecuted(err) || len(f.ids) != sent {
				t.Errorf("%s: got %v, want ErrStale and no request sent", name, err)
			}
		}
		r.Stop()
		<-r.ended
	})
}

// The link gets the route of a notification with it.
//
// Guarantees: G-0014.18
func TestNotificationHasItsRoute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{})
		if err := r.Notify(t.Context(), "changed", nil); err != nil {
			t.Fatal(err)
		}
		want := transport.Route{Kind: jsonrpc.KindNotification, Method: "changed"}
		if got := s.outbound()[0].Route; got != want {
			t.Errorf("the link got the route %+v, want %+v", got, want)
		}
		r.Stop()
		<-r.ended
	})
}

// An answer that is not valid ends its call at once with PeerError, since no other answer will come.
//
// Guarantees: G-0003.16
func TestMalformedAnswerEndsItsCall(t *testing.T) {
	for _, members := range []string{
		`"id":%d,"result":{},"error":null`,
		`"id":%d,"result":{},"error":{"code":1,"message":"m"}`,
		`"id":%d`,
		`"id":%d,"error":{"code":1.5,"message":"m"}`,
		`"id":%d,"result":{},"result":{}`,
		`"id":%[1]d,"id":%[1]d,"result":{}`,
		`"id":%d,"id":99,"result":{}`,
		`"id":99,"id":%d,"result":{}`,
	} {
		for _, frame := range []string{`{"jsonrpc":"2.0",%s}`, "\ufeff" + `{"jsonrpc":"2.0",%s}`, `[{"jsonrpc":"2.0",%s},{"jsonrpc":"2.0","method":"n"}]`, `{%s}`} {
			bubble(t, func(t *testing.T) {
				s := &script{}
				r := scripted(t, s, conn.Options{Dialect: dialect{}})
				ended := r.calling(t.Context(), conn.Request{Method: "m"})
				s.deliver(fmt.Sprintf(fmt.Sprintf(frame, members), 1))
				synctest.Wait()
				select {
				case err := <-ended:
					var failed *conn.CallError
					var invalid *jsonrpc.DecodeError
					if !errors.As(err, &failed) || failed.Cause != conn.PeerError || failed.Delivery != conn.Sent || !errors.As(err, &invalid) {
						t.Errorf("%s in %s: got %v, want a PeerError with a DecodeError", members, frame, err)
					}
				default:
					t.Errorf("%s in %s: the call still waits", members, frame)
				}
				if stats := r.Stats(); stats.Malformed != 1 || stats.Late != 0 {
					t.Errorf("%s in %s: got %+v, want one malformed and none late", members, frame, stats)
				}
				r.Stop()
				<-r.ended
			})
		}
	}
}

// A malformed answer that names two calls ends neither: either may still get its answer.
//
// Guarantees: G-0003.16
func TestMalformedAnswerToTwoCallsEndsNeither(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{})
		first := r.calling(t.Context(), conn.Request{Method: "m"})
		synctest.Wait()
		second := r.calling(t.Context(), conn.Request{Method: "m"})
		s.deliver(`{"jsonrpc":"2.0","id":1,"id":2,"result":{}}`)
		s.deliver(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		s.deliver(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		for _, ended := range []<-chan error{first, second} {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		r.Stop()
		<-r.ended
	})
}

// A request of the peer that is not valid ends no call, even if it has the id of one.
//
// Guarantees: G-0003.16
func TestMalformedRequestEndsNoCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{})
		ended := r.calling(t.Context(), conn.Request{Method: "m"})
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":7}`)
		s.deliver(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		r.Stop()
		<-r.ended
	})
}

// A call that waits because the peer has asked for that ends with the Conn.
func TestAnAskedDelayEndsWithTheConn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, _ := runWithOutcomes(t, conn.Options{}, overloaded)
		result := r.calling(t.Context(), conn.Request{Method: "m", Retries: 1})
		began := time.Now()
		r.Stop()
		wantEnd(t, <-result, conn.ShutDown, conn.NotSent)
		if took := time.Since(began); took != 0 {
			t.Errorf("the call has ended after %v, want at once", took)
		}
		<-r.ended
	})
}
