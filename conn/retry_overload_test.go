package conn_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
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
