package conn_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// A call for an incarnation that is over waits for no other.
//
// Guarantees: G-0003.14, G-0012.1
func TestBoundCallDoesNotWaitForAnother(t *testing.T) {
	shaking := func(ctx context.Context, _ *conn.Incarnation) error { <-ctx.Done(); return context.Cause(ctx) }
	wantStaleAtTheLoss(t, &script{}, conn.Options{Handshake: shaking}, conn.Request{Method: "m", Epoch: 1, WaitForReady: true})
}

// The same in the pause before the next attempt, after a stream was lost.
//
// Guarantees: G-0012.1
func TestBoundCallDoesNotPauseForAnother(t *testing.T) {
	loses := &script{onSend: func(s *script, o transport.Outbound) error { return streamLost.befall(s, o) }}
	wantStaleAtTheLoss(t, loses, conn.Options{}, conn.Request{Method: "m", Epoch: 1, Retries: 1, Repeatable: true})
}

// wantStaleAtTheLoss makes a call that waits, loses the link it is for, after
// which there is no other, and wants the call to be over.
func wantStaleAtTheLoss(t *testing.T, s *script, o conn.Options, request conn.Request) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		opened := 0
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			if opened++; opened > 1 {
				return nil, errors.New("gone for ever")
			}
			return s, nil
		}), o))
		synctest.Wait()
		result := r.calling(t.Context(), request)
		s.lose(transport.Loss{Reason: io.EOF})
		synctest.Wait()
		select {
		case err := <-result:
			if !errors.Is(err, conn.ErrStale) {
				t.Errorf("got %v", err)
			}
		default:
			t.Errorf("it waits on, in %s, for an incarnation that is over", r.State())
			r.Stop()
			<-result
		}
		r.Stop()
		<-r.ended
	})
}

// A handshake's call that is to be made again is not made to wait for ready.
//
// Guarantees: G-0023.6
func TestHandshakeDoesNotWaitForItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fated{fates: []fate{streamLost}}
		r := start(conn.New(f, conn.Options{Handshake: func(ctx context.Context, i *conn.Incarnation) error {
			_, err := i.Call(ctx, conn.Request{Method: "hello", Retries: 1, Repeatable: true})
			return err
		}}))
		pass(5 * time.Second)
		if r.State() != conn.Ready || len(f.ids) != 2 {
			t.Errorf("%s (%v), %d requests", r.State(), r.Status().Reason, len(f.ids))
		}
		r.Stop()
		<-r.ended
	})
}
