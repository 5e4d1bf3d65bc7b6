package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// A frame that the link had no room for is not kept once it is sent.
func TestReturnedFrameIsForgotten(t *testing.T) {
	var first atomic.Bool
	first.Store(true)
	var seen weak.Pointer[byte]
	s := &script{onSend: func(s *script, o transport.Outbound) error {
		if first.Swap(false) {
			seen = weak.Make(&o.Frame[0])
			return transport.ErrBusy
		}
		return answered.befall(s, o)
	}}
	r := start(conn.New(opens(s), conn.Options{}))
	if err := r.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Call(t.Context(), conn.Request{Method: "m", Params: make([]byte, 1<<16)}); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.sent = nil
	s.mu.Unlock()
	for range 3 { // later calls, on a link with room
		if _, err := r.Call(t.Context(), conn.Request{Method: "m"}); err != nil {
			t.Fatal(err)
		}
	}
	s.mu.Lock()
	s.sent = nil
	s.mu.Unlock()
	runtime.GC()
	runtime.GC()
	if seen.Value() != nil {
		t.Error("the frame is still held")
	}
	r.Stop()
	<-r.ended
}

// A reply that waits behind a call that fails is sent before a drain is over.
//
// Guarantees: G-0007.5, G-0009.6
func TestReplyBehindAFailureIsSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		full := false
		s := &script{}
		s.onSend = func(_ *script, o transport.Outbound) error {
			switch {
			case full:
				return transport.ErrBusy
			case o.Tag != 0:
				return errors.New("too large")
			}
			return nil
		}
		release := make(chan struct{})
		r := start(conn.Accept(s, conn.Options{Handler: answersLater{release}}))
		synctest.Wait()
		s.say(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		synctest.Wait()
		full = true
		call := r.calling(t.Context(), conn.Request{Method: "big"})
		closed := make(chan error, 1)
		go func() { closed <- r.Close(context.Background()) }()
		close(release)
		synctest.Wait()
		full = false
		s.receiver.Writable()
		synctest.Wait()
		<-call
		<-closed
		<-r.ended
		if len(s.frames()) != 1 {
			t.Errorf("sent %q: the reply is lost", s.frames())
		}
	})
}

// answersLater serves every request at once, then.
type answersLater struct{ release chan struct{} }

func (w answersLater) ServeRequest(context.Context, *conn.Incoming) (json.RawMessage, error) {
	<-w.release
	return json.RawMessage(`{}`), nil
}
func (answersLater) ServeNotification(context.Context, *conn.Incoming) {}
