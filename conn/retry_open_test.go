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

// after has a stream end as the fate says, but only after it has lasted.
func after(lasted time.Duration, f fate) fate {
	now := f.befall
	f.befall = func(s *script, o transport.Outbound) error {
		time.AfterFunc(lasted, func() { now(s, o) })
		return nil
	}
	return f
}

func faultOf(code int) fate {
	return fate{name: "error", befall: func(s *script, o transport.Outbound) error {
		s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":%d,"message":"no"}}`, o.Tag, code))
		return nil
	}}
}

var listen = conn.Request{Method: "listen", Streaming: true, Retries: -1, Repeatable: true}

// A Streaming request without a bound outlives whatever may pass, as far apart as
// the first backoffs, which begin anew after an attempt that has lasted.
//
// Guarantees: G-0023.2, G-0023.7, G-0023.10
func TestStreamIsKeptOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const lasted = 30 * time.Second
		for name, passing := range map[string]fate{
			"answered": answered, "peer error": faulted, "malformed": garbled, "stream lost": streamLost, "failed": failedUnsent, "refused": refused,
		} {
			r, f := fatedRun(t, conn.Options{}, passing, passing, passing, after(lasted, passing), passing, silence)
			ctx, cancel := context.WithCancel(t.Context())
			result := r.calling(ctx, listen)
			advance(time.Minute)
			cancel()
			wantEnd(t, <-result, conn.Cancelled, conn.Unknown)
			if len(f.ids) != 6 {
				t.Fatalf("%s: there were %d attempts", name, len(f.ids))
			}
			ideals := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, lasted + time.Second, 2 * time.Second}
			for i, ideal := range ideals {
				wait, base := f.sent[i+1].Sub(f.sent[i]), time.Duration(0)
				if ideal > lasted {
					base = lasted
				}
				delay := ideal - base
				if low := base + max(delay*8/10, time.Second); wait < low || wait > base+delay*12/10+100*time.Millisecond {
					t.Errorf("%s: before attempt %d it waited %v, want about %v", name, i+2, wait, ideal)
				}
			}
			r.Stop()
			<-r.ended
		}
	})
}

// Guarantees: G-0023.3, G-0023.10
func TestStreamThatCannotBeKeptOpen(t *testing.T) {
	errNo := errors.New("no")
	for name, c := range map[string]struct {
		fate    fate
		change  func(*conn.Request)
		matches func(error) bool
	}{
		"unknown method": {fate: faultOf(jsonrpc.CodeMethodNotFound)},
		"invalid params": {fate: faultOf(jsonrpc.CodeInvalidParams)},
		"invalid":        {fate: faultOf(jsonrpc.CodeInvalidRequest)},
		"not repeatable": {fate: answered, change: func(r *conn.Request) { r.Repeatable = false }},
		"bounded":        {fate: faulted, change: func(r *conn.Request) { r.Retries = 5 }},
		"a call":         {fate: faulted, change: func(r *conn.Request) { r.Streaming = false }},
		"not made": {fate: answered, change: func(r *conn.Request) {
			r.MessageFor = conn.MessageFunc(func(context.Context, int64, uint64) (conn.Message, error) { return conn.Message{}, errNo })
		}},
	} {
		bubble(t, func(t *testing.T) {
			r, f := fatedRun(t, conn.Options{}, c.fate)
			request := listen
			if c.change != nil {
				c.change(&request)
			}
			result := r.calling(t.Context(), request)
			select {
			case <-result:
			default:
				t.Errorf("%s: it goes on", name)
			}
			if len(f.ids) > 1 || r.Stats().Retries > 0 {
				t.Errorf("%s: there were %d attempts", name, len(f.ids))
			}
			r.Stop()
			<-r.ended
		})
	}
}

// A Conn that drains accepts no request any more.
//
// Guarantees: G-0023.10
func TestStreamIsNotOpenedWhileTheConnDrains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := fatedRun(t, conn.Options{}, silence)
		held := r.calling(t.Context(), conn.Request{Method: "m"})
		closed := make(chan error, 1)
		go func() { closed <- r.Close(t.Context()) }()
		synctest.Wait()
		result := r.calling(t.Context(), listen)
		select {
		case err := <-result:
			if !errors.Is(err, conn.ErrDraining) || len(f.ids) != 1 {
				t.Errorf("got %v, %d were sent", err, len(f.ids))
			}
		default:
			t.Error("it goes on")
		}
		r.Stop()
		<-held
		<-closed
		<-r.ended
	})
}

// Guarantees: G-0023.10
func TestStreamIsKeptOpenOverABusyLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := fatedRun(t, conn.Options{}, linkBusy, linkBusy, answered, silence)
		result := r.calling(t.Context(), listen)
		advance(time.Minute)
		if len(f.ids) != 4 {
			t.Errorf("there were %d attempts", len(f.ids))
		}
		r.Stop()
		wantEnd(t, <-result, conn.ShutDown, conn.Unknown)
		<-r.ended
	})
}

// A request that is never given up remembers little, and ends with the Conn.
//
// Guarantees: G-0023.2, G-0023.4, G-0023.10
func TestStreamRemembersLittle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		many := make([]fate, 3000)
		for i := range many {
			many[i] = streamLost
		}
		r, f := fatedRun(t, conn.Options{BackoffMax: time.Second}, append(many, silence)...)
		request, told := listen, 0
		request.OnAttempt = func(conn.Attempt) { told++ }
		result := r.calling(t.Context(), request)
		advance(time.Hour)
		r.Close(t.Context())
		err := <-result
		wantEnd(t, err, conn.ShutDown, conn.Unknown)
		var failed *conn.CallError
		if errors.As(err, &failed); len(failed.Attempts) != 16 || told != len(many) || len(f.ids) != told+1 {
			t.Errorf("%d attempts are remembered of %d", len(failed.Attempts), told)
		}
		if newest := failed.Attempts[15]; newest.ID != f.ids[len(many)-1] || r.Stats().Retries != uint64(told) {
			t.Errorf("the newest is %+v", newest)
		}
		<-r.ended
	})
}

// A stream goes on in another incarnation, encoded for that.
//
// Guarantees: G-0023.8, G-0023.10
func TestStreamIsOpenedInTheNextIncarnation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := fatedRun(t, conn.Options{}, lost, lost, silence)
		request, epochs := listen, []uint64{}
		request.MessageFor = conn.MessageFunc(func(_ context.Context, _ int64, epoch uint64) (conn.Message, error) {
			epochs = append(epochs, epoch)
			return conn.Message{Params: json.RawMessage(`{}`)}, nil
		})
		result := r.calling(t.Context(), request)
		advance(time.Minute)
		if len(f.ids) != 3 || len(epochs) != 3 || epochs[2] != 3 {
			t.Errorf("%d attempts, for the incarnations %v", len(f.ids), epochs)
		}
		r.Stop()
		wantEnd(t, <-result, conn.ShutDown, conn.Unknown)
		<-r.ended
	})
}

// What the peer has answered once was executed, although the attempt after it was
// never sent.
//
// Guarantees: G-0023.4
func TestStreamThatWasAnsweredWasExecuted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			fate fate
			want conn.Delivery
		}{
			"answered": {answered, conn.Unknown}, "peer error": {faulted, conn.Unknown}, "malformed": {garbled, conn.Unknown},
			"stream lost": {streamLost, conn.Unknown}, "failed": {failedUnsent, conn.NotSent}, "refused": {refused, conn.NotSent},
		} {
			r, f := fatedRun(t, conn.Options{}, c.fate, silence)
			ctx, cancel := context.WithCancel(t.Context())
			result := r.calling(ctx, listen)
			cancel() // between two attempts
			err := <-result
			wantEnd(t, err, conn.Cancelled, c.want)
			if conn.NotExecuted(err) != (c.want == conn.NotSent) || len(f.ids) != 1 {
				t.Errorf("%s: %v, after %d attempts", name, err, len(f.ids))
			}
			r.Stop()
			<-r.ended
		}
	})
}
