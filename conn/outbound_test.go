package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// A nonReader is a peer that never reads: it grants no credit.
type nonReader struct{}

func (nonReader) Receive(transport.Inbound)                    {}
func (nonReader) StreamOpened(transport.Stream, transport.Tag) {}
func (nonReader) StreamLost(transport.StreamLoss)              {}
func (nonReader) Writable()                                    {}
func (nonReader) Failed(transport.Failure)                     {}
func (nonReader) Ended()                                       {}
func (nonReader) Lost(transport.Loss)                          {}

// runToNonReader runs a Conn to a peer that never reads, over a link that queues so many frames.
func runToNonReader(t *testing.T, queue int, o conn.Options) run {
	t.Helper()
	r := start(conn.New(inmem.New(func(link transport.Link) { link.Bind(nonReader{}) }, inmem.Options{QueueFrames: queue}), o))
	synctest.Wait()
	return r
}

// A callResult is the error of a call, and when the call returned.
type callResult struct {
	err error
	at  time.Time
}

// callMany makes calls concurrently, each with its own context that ends after patience.
func (r run) callMany(callers int, patience time.Duration) <-chan callResult {
	all := make(chan callResult, callers)
	for range callers {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := r.Call(ctx, conn.Request{Method: "m"})
			all <- callResult{err, time.Now()}
		}()
	}
	synctest.Wait()
	return all
}

// If the peer never reads, each call returns when its context ends, at the latest. Calls whose frames
// the link has taken return exactly then.
//
// Guarantees: G-0003.1, G-0003.2
func TestCallEndsWithItsContextThoughThePeerNeverReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const queue, callers, patience = 4, 40, 200 * time.Millisecond
		r := runToNonReader(t, queue, conn.Options{Tuning: conn.Tuning{SendSlots: 8}})
		began := time.Now()
		all := r.callMany(callers, patience)
		inTime := 0
		for range callers {
			c := <-all
			if took := c.at.Sub(began); took > patience {
				t.Errorf("a call returned after %v: %v; want %v at most", took, c.err, patience)
			}
			if conn.NotExecuted(c.err) {
				continue
			}
			wantEnd(t, c.err, conn.TimedOut, conn.Unknown)
			if inTime++; c.at.Sub(began) != patience {
				t.Errorf("a call whose frame was taken returned after %v, want %v", c.at.Sub(began), patience)
			}
		}
		if inTime != queue {
			t.Errorf("%d calls were taken, want %d", inTime, queue)
		}
		r.Stop()
		<-r.ended
	})
}

// Stop ends all calls at once: those queued in the link, those that wait for the link, and those that
// wait for a send slot.
//
// Guarantees: G-0009.2
func TestStopSettlesEveryoneThoughThePeerNeverReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const queue, callers = 4, 40
		r := runToNonReader(t, queue, conn.Options{Tuning: conn.Tuning{SendSlots: 8}})
		all := r.callMany(callers, time.Hour)
		began := time.Now()
		r.Stop()
		left := 0
		for range callers {
			c := <-all
			if took := c.at.Sub(began); took != 0 {
				t.Errorf("a call returned %v after Stop: %v; want at once", took, c.err)
			}
			if !conn.NotExecuted(c.err) {
				wantEnd(t, c.err, conn.ShutDown, conn.Unknown)
				left++
			}
		}
		if left != queue {
			t.Errorf("%d calls may have been executed, want %d", left, queue)
		}
		<-r.ended
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("Run returned after %v, want 100ms at most", took)
		}
	})
}

// A frame that the link had no room for at first is not kept in memory after it was sent.
func TestReturnedFrameIsForgotten(t *testing.T) {
	var first atomic.Bool
	first.Store(true)
	var seen weak.Pointer[byte]
	s := &script{onSend: func(s *script, o transport.Outbound) error {
		if first.Swap(false) {
			seen = weak.Make(&o.Frame[0])
			return transport.ErrBusy
		}
		return answered.apply(s, o)
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
	for range 3 { // later calls, which the link takes at once
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
		t.Error("the frame is still in memory")
	}
	r.Stop()
	<-r.ended
}

// A reply that was offered after a call that fails is sent before a drain ends.
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
		r := start(conn.Accept(s, conn.Options{Handler: blockingHandler{release}}))
		synctest.Wait()
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
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
			t.Errorf("sent %q, want the reply", s.frames())
		}
	})
}

// A reply for which the link has no room is replaced at once by a short error. If the handler has failed, its
// code stays. A link that has no room for that either gets nothing more.
//
// Guarantees: G-0087.2
func TestReplyWithoutRoomIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		long := strings.Repeat("x", 1000)
		fault := error(nil)
		room := 500
		s := &script{onSend: func(_ *script, o transport.Outbound) error {
			if len(o.Frame) > room {
				return transport.ErrNoRoom
			}
			return nil
		}}
		r := start(conn.Accept(s, conn.Options{Handler: handler{"m": func(context.Context, *conn.Incoming) (json.RawMessage, error) {
			return json.RawMessage(`"` + long + `"`), fault
		}}}))
		synctest.Wait()
		ask := func(id int) {
			s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, id))
			synctest.Wait()
		}
		ask(1)
		fault = &jsonrpc.Error{Code: 7, Message: long}
		ask(2)
		room = 10
		ask(3)
		room, fault = 5000, nil
		ask(4)
		frames := s.frames()
		if len(frames) != 3 {
			t.Fatalf("sent %q, want three replies", frames)
		}
		for i, want := range []int64{jsonrpc.CodeAnswerDropped, 7, 0} {
			m, err := jsonrpc.Decode([]byte(frames[i]), jsonrpc.Limits{})
			if err != nil || want == 0 && m.Error != nil || want != 0 && (m.Error == nil || m.Error.Code != want) {
				t.Errorf("reply %d is %.200s, %v; want the code %d", i+1, frames[i], err, want)
			}
		}
		r.Stop()
		<-r.ended
	})
}

// The array of a batch without room has errors in the place of its long answers. If there is no room for that, or it is not shorter, one
// error takes the place of the array.
//
// Guarantees: G-0087.3
func TestBatchWithoutRoomIsReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		long bool
		room int
		want []int64 // the codes of the answers; nil: one error
	}{
		"room for short answers":    {true, 400, []int64{jsonrpc.CodeAnswerDropped, 0}},
		"room for one error":        {true, 150, nil},
		"nothing that gets shorter": {false, 150, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{onSend: func(_ *script, o transport.Outbound) error {
					if len(o.Frame) > test.room {
						return transport.ErrNoRoom
					}
					return nil
				}}
				r := start(conn.Accept(s, conn.Options{Dialect: dialect{}, Handler: handler{"long": func(context.Context, *conn.Incoming) (json.RawMessage, error) {
					return json.RawMessage(`"` + strings.Repeat("x", 1000) + `"`), nil
				}, "short": func(context.Context, *conn.Incoming) (json.RawMessage, error) {
					return json.RawMessage(`"` + strings.Repeat("x", 40) + `"`), nil
				}}}))
				synctest.Wait()
				first := "short"
				if test.long {
					first = "long"
				}
				s.deliver(`[{"jsonrpc":"2.0","id":1,"method":"` + first + `"},{"jsonrpc":"2.0","id":2,"method":"short"}]`)
				synctest.Wait()
				frames := s.frames()
				if len(frames) != 1 {
					t.Fatalf("sent %q, want one reply", frames)
				}
				if test.want == nil {
					if m, err := jsonrpc.Decode([]byte(frames[0]), jsonrpc.Limits{}); err != nil || m.Error == nil || m.Error.Code != jsonrpc.CodeAnswerDropped {
						t.Errorf("got %s, %v; want the error %d alone", frames[0], err, jsonrpc.CodeAnswerDropped)
					}
				} else {
					codes := make(map[string]int64)
					items, err := jsonrpc.DecodeBatch([]byte(frames[0]), jsonrpc.Limits{})
					for _, item := range items {
						if codes[item.Message.ID.String()] = 0; item.Message.Error != nil {
							codes[item.Message.ID.String()] = item.Message.Error.Code
						}
					}
					if err != nil || len(items) != 2 || codes["1"] != test.want[0] || codes["2"] != test.want[1] {
						t.Errorf("got %s, %v; want the codes %d", frames[0], err, test.want)
					}
				}
				r.Stop()
				<-r.ended
			})
		})
	}
}

// An exchange has room for any answer, or for none.
type exchangeWith struct {
	transport.Exchange
	room bool
}

func (e exchangeWith) Reserve(int) bool { return e.room }

// A counted result counts how often it is encoded.
type countedResult struct{ encoded *int }

func (r countedResult) AppendJSON(dst []byte) ([]byte, error) {
	*r.encoded++
	return append(dst, '1'), nil
}
func (countedResult) SizeJSON() int { return 1 << 20 }

// A result for which there is no room is not encoded.
//
// Guarantees: G-0087.5
func TestResultWithoutRoomIsNotEncoded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		encoded := 0
		s := new(script)
		r := start(conn.Accept(s, conn.Options{Handler: handler{"m": func(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
			in.SetResult(countedResult{&encoded})
			return nil, nil
		}}}))
		synctest.Wait()
		for id, exchange := range []transport.Exchange{nil, exchangeWith{}, exchangeWith{room: true}} {
			s.receiver.Receive(transport.Inbound{Frame: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"m"}`, id+1), Origin: &transport.Origin{Exchange: exchange}})
			synctest.Wait()
		}
		if frames := s.frames(); len(frames) != 3 || encoded != 2 || !strings.Contains(frames[1], "-32051") || strings.Contains(frames[2], "error") {
			t.Errorf("got %q, and %d results were encoded; want two, and the error -32051 between them", frames, encoded)
		}
		r.Stop()
		<-r.ended
	})
}

// A blockingHandler answers every request when release is closed.
type blockingHandler struct{ release chan struct{} }

func (w blockingHandler) ServeRequest(context.Context, *conn.Incoming) (json.RawMessage, error) {
	<-w.release
	return json.RawMessage(`{}`), nil
}
func (blockingHandler) ServeNotification(context.Context, *conn.Incoming) {}

// When a link has room again, it is offered the whole queue without further waiting, if it takes all.
// No frame overtakes one that the link refuses.
//
// Guarantees: G-0007.2, G-0007.7
func TestLinkWithRoomTakesTheQueueAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const callers = 40
		room := 0
		s := &script{onSend: func(*script, transport.Outbound) error {
			if room == 0 {
				return transport.ErrBusy
			}
			room--
			return nil
		}}
		c := scripted(t, s, conn.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		for i := range callers {
			c.calling(ctx, conn.Request{Method: strconv.Itoa(i)})
		}
		for _, more := range []int{2, 0, 1, 5, callers} { // at first the link takes some of the 2 and 4 that it is offered, later all
			room = more
			s.receiver.Writable()
			synctest.Wait()
		}
		sent := s.outbound()
		if len(sent) != callers {
			t.Fatalf("%d frames were taken without waiting, want %d", len(sent), callers)
		}
		for i, o := range sent {
			if o.Route.Method != strconv.Itoa(i) {
				t.Errorf("frame %d is that of call %s, want call %[1]d", i, o.Route.Method)
			}
		}
		cancel()
		c.Stop()
		<-c.ended
	})
}
