package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// A call with Retries that an overloaded peer refuses is sent again after the delay that the peer asks for.
//
// Guarantees: G-0023.11
func TestOverloadedPeerIsCalledAgainAfterItsDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{}, overloaded, overloaded, answered, lostUnsent)
		buy := conn.Request{Method: "buy", Retries: 2}
		first := r.calling(t.Context(), buy)
		advance(time.Second)
		if other, err := r.Call(t.Context(), conn.Request{Method: "buy"}); other != nil || !conn.NotExecuted(err) {
			t.Fatalf("a call without Retries: %s, %v; want it refused", other, err)
		}
		if err := <-first; err != nil || r.Status().Epoch != 1 {
			t.Fatalf("in epoch %d got %v, want no error in epoch 1", r.Status().Epoch, err)
		}
		if waited := f.sent[2].Sub(f.sent[0]); waited != askedFor {
			t.Errorf("the delay was %v, want %v", waited, askedFor)
		}
		r.Stop()
		<-r.ended
	})
}

// A peer that refuses a call by the error -32050, without an HTTP status, has not executed it. The call
// is sent again after a delay.
//
// Guarantees: G-0023.12
func TestOverloadedPeerIsCalledAgainAfterItsError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{}, overloadError, overloadError, answered)
		_, err := r.Call(t.Context(), conn.Request{Method: "buy"})
		if fault := new(jsonrpc.Error); !conn.NotExecuted(err) || !errors.As(err, &fault) || fault.Code != jsonrpc.CodeOverloaded {
			t.Errorf("without Retries: got %v, want the error of the peer, not executed", err)
		}
		if _, err := r.Call(t.Context(), conn.Request{Method: "buy", Retries: 1}); err != nil || r.Status().Epoch != 1 {
			t.Fatalf("in epoch %d got %v, want no error in epoch 1", r.Status().Epoch, err)
		}
		if waited := f.sent[2].Sub(f.sent[1]); waited < time.Second/2 {
			t.Errorf("the delay was %v, want about a second", waited)
		}
		r.Stop()
		<-r.ended
	})
}

// If another peer is overloaded and refuses a call of a handler, that is an internal error of this peer.
// Otherwise the caller would take the request for not executed. All other codes of another peer pass.
//
// Guarantees: G-0023.12
func TestOverloadOfAnotherPeerIsAnInternalError(t *testing.T) {
	fault := &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "busy"}
	refusedBy := func(code int64) error {
		return fmt.Errorf("no receipt: %w", &conn.CallError{Method: "pay", Cause: conn.PeerError, Delivery: conn.Sent, Err: &jsonrpc.Error{Code: code, Message: "no"}})
	}
	upstream := fmt.Errorf("no receipt: %w", &conn.CallError{Method: "pay", Cause: conn.PeerError, Delivery: conn.NotSent, Err: &transport.StatusError{Status: 503, Fault: fault}})
	lost := &conn.CallError{Method: "pay", Cause: conn.LinkLost, Delivery: conn.Unknown, Err: transport.ErrPeerClosed}
	for _, test := range []struct {
		returned error
		want     int64
	}{
		{upstream, jsonrpc.CodeInternalError},
		{errors.Join(lost, upstream), jsonrpc.CodeInternalError},
		{fault, jsonrpc.CodeOverloaded},
		{refusedBy(jsonrpc.CodeInvalidParams), jsonrpc.CodeInvalidParams},
		{refusedBy(-32042), -32042},
		{fmt.Errorf("%w: %w", &jsonrpc.Error{Code: 7, Message: "own"}, upstream), 7},
	} {
		bubble(t, func(t *testing.T) {
			s := new(script)
			r := start(conn.Accept(s, conn.Options{Handler: handler{"buy": func(context.Context, *conn.Incoming) (json.RawMessage, error) { return nil, test.returned }}}))
			synctest.Wait()
			s.deliver(`{"jsonrpc":"2.0","id":1,"method":"buy"}`)
			synctest.Wait()
			m, err := jsonrpc.Decode([]byte(s.frames()[0]), jsonrpc.Limits{})
			if err != nil || m.Error == nil || m.Error.Code != test.want {
				t.Errorf("after %v: got %+v, %v; want the error %d", test.returned, m, err, test.want)
			}
			r.Stop()
			<-r.ended
		})
	}
}

// The delay that an overloaded peer asks for still holds after a loss, because the next link leads to
// the same peer.
//
// Guarantees: G-0023.11
func TestLossDoesNotShortenTheDelayAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{}, overloaded, lostUnsent)
		first := r.calling(t.Context(), conn.Request{Method: "buy", Retries: 1})
		if _, err := r.Call(t.Context(), conn.Request{Method: "buy"}); !conn.NotExecuted(err) {
			t.Fatal(err)
		}
		if err := <-first; err != nil || r.Status().Epoch != 2 || f.sent[len(f.sent)-1].Sub(f.sent[0]) != askedFor {
			t.Fatalf("in epoch %d got %v, sent at %v; want no error in epoch 2, %v apart",
				r.Status().Epoch, err, f.sent, askedFor)
		}
		r.Stop()
		<-r.ended
	})
}

// The delay that an overloaded peer asks for ends with the call's context, and with the Conn.
//
// Guarantees: G-0023.6, G-0023.11
func TestTheDelayAskedForEndsWithContextAndConn(t *testing.T) {
	for name, c := range map[string]struct {
		end   func(run, context.CancelFunc)
		cause conn.Cause
	}{
		"cancelled": {func(_ run, cancel context.CancelFunc) { cancel() }, conn.Cancelled},
		"stopped":   {func(r run, _ context.CancelFunc) { r.Stop() }, conn.ShutDown},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, f := runWithOutcomes(t, conn.Options{}, overloaded)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				result := r.calling(ctx, conn.Request{Method: "buy", Retries: -1})
				c.end(r, cancel)
				var failed *conn.CallError
				if err := <-result; !errors.As(err, &failed) || failed.Cause != c.cause || failed.Delivery != conn.NotSent || len(f.ids) != 1 {
					t.Errorf("%v after %d requests, want %s, NotSent after 1", err, len(f.ids), c.cause)
				}
				r.Stop()
				<-r.ended
			})
		})
	}
}
