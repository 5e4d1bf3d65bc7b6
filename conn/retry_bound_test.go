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
	bubble(t, func(t *testing.T) {
		s := &script{}
		opened := false
		tr := opening(func(context.Context) (transport.Link, error) {
			if opened {
				return nil, errors.New("gone for ever")
			}
			opened = true
			return s, nil
		})
		r := start(conn.New(tr, conn.Options{Handshake: func(ctx context.Context, _ *conn.Incarnation) error { <-ctx.Done(); return context.Cause(ctx) }}))
		synctest.Wait()
		result := r.calling(t.Context(), conn.Request{Method: "m", Epoch: 1, WaitForReady: true})
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

// The same in the pause before the next attempt, after a stream was lost.
//
// Guarantees: G-0012.1
func TestBoundCallDoesNotPauseForAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var s *script
		opened := 0
		tr := opening(func(context.Context) (transport.Link, error) {
			if opened++; opened > 1 {
				return nil, errors.New("gone for ever")
			}
			s = &script{onSend: func(s *script, o transport.Outbound) error { return streamLost.befall(s, o) }}
			return s, nil
		})
		r := start(conn.New(tr, conn.Options{}))
		synctest.Wait()
		result := r.calling(t.Context(), conn.Request{Method: "m", Epoch: 1, Retries: 1, Repeatable: true})
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
