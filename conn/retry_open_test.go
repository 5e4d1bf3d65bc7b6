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

// after returns an outcome that comes only after the request has lasted for a time.
func after(lasted time.Duration, f outcome) outcome {
	now := f.apply
	f.apply = func(s *script, o transport.Outbound) error {
		time.AfterFunc(lasted, func() { now(s, o) })
		return nil
	}
	return f
}

// faultOf returns the outcome that the peer answers with an error of this code.
func faultOf(code int) outcome {
	return outcome{name: "error", apply: func(s *script, o transport.Outbound) error {
		s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":%d,"message":"no"}}`, o.Tag, code))
		return nil
	}}
}

var listen = conn.Request{Method: "listen", Streaming: true, Retries: -1, Repeatable: true}

// A Streaming, Repeatable request with Retries of -1 is sent again after every end. The delays grow, and
// begin again at the first one after an attempt that has lasted.
//
// Guarantees: G-0023.2, G-0023.7, G-0023.10
func TestStreamIsKeptOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const lasted = 30 * time.Second
		for name, passing := range map[string]outcome{
			"answered": answered, "peer error": faulted, "malformed": garbled, "stream lost": streamLost, "failed": failedUnsent, "refused": refused,
		} {
			r, f := runWithOutcomes(t, conn.Options{}, passing, passing, passing, after(lasted, passing), passing, silence)
			ctx, cancel := context.WithCancel(t.Context())
			result := r.calling(ctx, listen)
			advance(time.Minute)
			cancel()
			wantEnd(t, <-result, conn.Cancelled, conn.Unknown)
			if len(f.ids) != 6 {
				t.Fatalf("%s: %d attempts, want 6", name, len(f.ids))
			}
			ideals := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, lasted + time.Second, 2 * time.Second}
			for i, ideal := range ideals {
				wait, base := f.sent[i+1].Sub(f.sent[i]), time.Duration(0)
				if ideal > lasted {
					base = lasted
				}
				delay := ideal - base
				if low := base + max(delay*8/10, time.Second); wait < low || wait > base+delay*12/10+100*time.Millisecond {
					t.Errorf("%s: the delay before attempt %d is %v, want about %v", name, i+2, wait, ideal)
				}
			}
			r.Stop()
			<-r.ended
		}
	})
}

// A request ends with its first attempt if it is not kept open, or if the peer rejects it as invalid.
//
// Guarantees: G-0023.3, G-0023.10
func TestRequestThatIsNotKeptOpen(t *testing.T) {
	errNo := errors.New("no")
	for name, c := range map[string]struct {
		outcome outcome
		change  func(*conn.Request)
		matches func(error) bool
	}{
		"unknown method": {outcome: faultOf(jsonrpc.CodeMethodNotFound)},
		"invalid params": {outcome: faultOf(jsonrpc.CodeInvalidParams)},
		"invalid":        {outcome: faultOf(jsonrpc.CodeInvalidRequest)},
		"not repeatable": {outcome: answered, change: func(r *conn.Request) { r.Repeatable = false }},
		"bounded":        {outcome: faulted, change: func(r *conn.Request) { r.Retries = 5 }},
		"a call":         {outcome: faulted, change: func(r *conn.Request) { r.Streaming = false }},
		"not made": {outcome: answered, change: func(r *conn.Request) {
			r.MessageFor = conn.MessageFunc(func(context.Context, int64, uint64) (conn.Message, error) { return conn.Message{}, errNo })
		}},
	} {
		bubble(t, func(t *testing.T) {
			r, f := runWithOutcomes(t, conn.Options{}, c.outcome)
			request := listen
			if c.change != nil {
				c.change(&request)
			}
			result := r.calling(t.Context(), request)
			select {
			case <-result:
			default:
				t.Errorf("%s: the request has not ended", name)
			}
			if len(f.ids) > 1 || r.Stats().Retries > 0 {
				t.Errorf("%s: %d attempts, want 1", name, len(f.ids))
			}
			r.Stop()
			<-r.ended
		})
	}
}

// A request that is kept open is refused while the Conn drains.
//
// Guarantees: G-0023.10
func TestStreamIsNotOpenedWhileTheConnDrains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{}, silence)
		held := r.calling(t.Context(), conn.Request{Method: "m"})
		closed := make(chan error, 1)
		go func() { closed <- r.Close(t.Context()) }()
		synctest.Wait()
		result := r.calling(t.Context(), listen)
		select {
		case err := <-result:
			if !errors.Is(err, conn.ErrDraining) || len(f.ids) != 1 {
				t.Errorf("got %v, %d requests were sent; want ErrDraining, 1", err, len(f.ids))
			}
		default:
			t.Error("the request has not ended")
		}
		r.Stop()
		<-held
		<-closed
		<-r.ended
	})
}

// Refusals of a busy link do not end a request that is kept open.
//
// Guarantees: G-0023.10
func TestStreamIsKeptOpenOverABusyLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{}, linkBusy, linkBusy, answered, silence)
		result := r.calling(t.Context(), listen)
		advance(time.Minute)
		if len(f.ids) != 4 {
			t.Errorf("%d attempts, want 4", len(f.ids))
		}
		r.Stop()
		wantEnd(t, <-result, conn.ShutDown, conn.Unknown)
		<-r.ended
	})
}

// A request that is kept open keeps only its last 16 attempts, and ends with the Conn.
//
// Guarantees: G-0023.2, G-0023.4, G-0023.10
func TestStreamKeepsItsLastAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		many := make([]outcome, 3000)
		for i := range many {
			many[i] = streamLost
		}
		r, f := runWithOutcomes(t, conn.Options{Tuning: conn.Tuning{BackoffMax: time.Second}}, append(many, silence)...)
		request, reported := listen, 0
		request.OnAttempt = func(conn.Attempt) { reported++ }
		result := r.calling(t.Context(), request)
		advance(time.Hour)
		r.Close(t.Context())
		err := <-result
		wantEnd(t, err, conn.ShutDown, conn.Unknown)
		var failed *conn.CallError
		if errors.As(err, &failed); len(failed.Attempts) != 16 || reported != len(many) || len(f.ids) != reported+1 {
			t.Errorf("%d attempts are kept, %d were reported; want 16, %d", len(failed.Attempts), reported, len(many))
		}
		if oldest := failed.Attempts[0]; oldest.ID != f.ids[len(many)-16] {
			t.Errorf("the oldest attempt that is kept has the id %d, want %d", oldest.ID, f.ids[len(many)-16])
		}
		if newest := failed.Attempts[15]; newest.ID != f.ids[len(many)-1] || r.Stats().Retries != uint64(reported) {
			t.Errorf("the newest is %+v, %d retries; want id %d, %d",
				newest, r.Stats().Retries, f.ids[len(many)-1], reported)
		}
		<-r.ended
	})
}

// A request that is kept open is sent again on the next incarnation, and encoded for it.
//
// Guarantees: G-0023.8, G-0023.10
func TestStreamIsOpenedInTheNextIncarnation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, f := runWithOutcomes(t, conn.Options{}, lost, lost, silence)
		request, epochs := listen, []uint64{}
		request.MessageFor = conn.MessageFunc(func(_ context.Context, _ int64, epoch uint64) (conn.Message, error) {
			epochs = append(epochs, epoch)
			return conn.Message{Params: json.RawMessage(`{}`)}, nil
		})
		result := r.calling(t.Context(), request)
		advance(time.Minute)
		if len(f.ids) != 3 || len(epochs) != 3 || epochs[2] != 3 {
			t.Errorf("%d attempts, for the epochs %v; want 3, for 1 to 3", len(f.ids), epochs)
		}
		r.Stop()
		wantEnd(t, <-result, conn.ShutDown, conn.Unknown)
		<-r.ended
	})
}

// If the peer has answered an attempt, the request counts as executed, even if no later attempt was
// sent.
//
// Guarantees: G-0023.4
func TestStreamThatWasAnsweredWasExecuted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			outcome outcome
			want    conn.Delivery
		}{
			"answered": {answered, conn.Unknown}, "peer error": {faulted, conn.Unknown}, "malformed": {garbled, conn.Unknown},
			"stream lost": {streamLost, conn.Unknown}, "failed": {failedUnsent, conn.NotSent}, "refused": {refused, conn.NotSent},
		} {
			r, f := runWithOutcomes(t, conn.Options{}, c.outcome, silence)
			ctx, cancel := context.WithCancel(t.Context())
			result := r.calling(ctx, listen)
			cancel() // between two attempts
			err := <-result
			wantEnd(t, err, conn.Cancelled, c.want)
			if conn.NotExecuted(err) != (c.want == conn.NotSent) || len(f.ids) != 1 {
				t.Errorf("%s: %v after %d attempts, want delivery %s after 1", name, err, len(f.ids), c.want)
			}
			r.Stop()
			<-r.ended
		}
	})
}
