package conn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// Guarantees: G-0007.1
func TestBusyLinkRefusesAfterThreeRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		offered := 0
		s := &script{onSend: func(*script, transport.Outbound) error { offered++; return transport.ErrBusy }}
		r := scripted(t, s, conn.Options{})
		began := time.Now()
		err := r.Notify(t.Context(), "m", nil)
		if wantEnd(t, err, conn.Refused, conn.NotSent); !errors.Is(err, transport.ErrBusy) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); offered != 4 || took < 15*time.Millisecond || took > 45*time.Millisecond {
			t.Errorf("it was offered %d times in %v", offered, took)
		}
		r.Stop()
		<-r.ended
	})
}

// A crowd of callers meets a link that takes a frame now and then: none of them is
// refused, and each gets its own answer.
//
// Guarantees: G-0007.6
func TestCallersWaitForABusyLink(t *testing.T) {
	for name, slots := range map[string]int{"with slots for few": 8, "with slots for all": 1000} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var taken atomic.Int64 // the link takes 100 frames every 200 ms
				began := time.Now()
				s := &script{onSend: func(s *script, o transport.Outbound) error {
					if taken.Load() >= 100*int64(time.Since(began)/(200*time.Millisecond)) {
						return transport.ErrBusy
					}
					taken.Add(1)
					return answered.befall(s, o)
				}}
				r := scripted(t, s, conn.Options{SendSlots: slots})
				all := r.crowd(1000, time.Minute)
				for range cap(all) {
					if c := <-all; c.err != nil {
						t.Fatalf("after %v: %v", c.at.Sub(began), c.err)
					}
				}
				if stats := r.Stats(); stats.Calls != 1000 || stats.Retries != 0 {
					t.Errorf("%+v", stats)
				}
				r.Stop()
				<-r.ended
			})
		})
	}
}

// A caller waits for its turn no longer than its timeout, be it for a slot or for a
// link that takes other frames only, and is told why.
//
// Guarantees: G-0007.6
func TestCallerWaitsNoLongerThanItsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(*script, transport.Outbound) error { return transport.ErrBusy }}
		r := scripted(t, s, conn.Options{SendSlots: 1})
		began := time.Now()
		first := r.calling(t.Context(), conn.Request{Method: "m", Timeout: time.Second})
		synctest.Wait()
		second := r.calling(t.Context(), conn.Request{Method: "m", Timeout: 10 * time.Millisecond}) // the first holds the slot for 15 ms at least
		err := <-second
		if wantEnd(t, err, conn.TimedOut, conn.NotSent); !errors.Is(err, conn.ErrTimedOut) || time.Since(began) != 10*time.Millisecond {
			t.Errorf("without a slot, after %v: %v", time.Since(began), err)
		}
		err = <-first
		if wantEnd(t, err, conn.TimedOut, conn.NotSent); !errors.Is(err, conn.ErrTimedOut) || !errors.Is(err, transport.ErrBusy) {
			t.Errorf("behind a busy link: %v", err)
		}
		if took := time.Since(began); took < time.Second || took > time.Second+45*time.Millisecond {
			t.Errorf("behind a busy link it took %v", took)
		}
		third := r.calling(t.Context(), conn.Request{Method: "m", Timeout: -1})
		err = <-third
		wantEnd(t, err, conn.LinkLost, conn.NotSent) // a link that is stuck is given up
		r.Stop()
		<-r.ended
	})
}

// Guarantees: G-0007.3
func TestNotifyHeedsItsContextBehindABusyLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(*script, transport.Outbound) error { return transport.ErrBusy }}
		r := scripted(t, s, conn.Options{})
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"unknown"}`) // its answer heads the queue, and stays
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		wantEnd(t, r.Notify(ctx, "m", nil), conn.TimedOut, conn.NotSent)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it took %v", took)
		}
		r.Stop()
		<-r.ended
	})
}

// Guarantees: G-0007.4
func TestPeerThatDoesNotReadIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(*script, transport.Outbound) error { return transport.ErrBusy }}
		r := scripted(t, s, conn.Options{})
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"unknown"}`)
		advance(10*time.Second - 1)
		if state := r.State(); state != conn.Ready {
			t.Errorf("after almost 10 s the state is %s", state)
		}
		advance(1)
		if why := r.Status().LastFailure; why.Kind != conn.PeerNotReading {
			t.Errorf("after 10 s: %v", why)
		}
		r.Stop()
		<-r.ended
	})
}

// What a link took before it stopped does not count for ever.
//
// Guarantees: G-0007.4
func TestPeerThatStopsReadingIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var full atomic.Bool
		s := &script{onSend: func(*script, transport.Outbound) error {
			if full.Load() {
				return transport.ErrBusy
			}
			return nil
		}}
		r := scripted(t, s, conn.Options{})
		for id := range 3 { // each time something is taken, and then nothing for a while
			full.Store(true)
			s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"unknown"}`, id))
			advance(9 * time.Second)
			full.Store(false)
			advance(time.Second / 10)
			if status := r.Status(); status.State != conn.Ready || len(s.frames()) != id+1 {
				t.Fatalf("%s (%v), and %d answers were taken", status.State, status.Reason, len(s.frames()))
			}
		}
		full.Store(true)
		s.deliver(`{"jsonrpc":"2.0","id":9,"method":"unknown"}`)
		advance(10*time.Second - 1)
		if state := r.State(); state != conn.Ready {
			t.Errorf("after almost 10 s the state is %s", state)
		}
		advance(1)
		if why := r.Status().LastFailure; why.Kind != conn.PeerNotReading {
			t.Errorf("after 10 s: %v", why)
		}
		r.Stop()
		<-r.ended
	})
}

// Guarantees: G-0009.4
func TestLinkThatComesAfterStopIsClosed(t *testing.T) {
	for name, late := range map[string]time.Duration{"while Run waits": 50 * time.Millisecond, "after Run": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{}
				deaf := opening(func(context.Context) (transport.Link, error) { advance(late); return s, nil })
				r := start(conn.New(deaf, conn.Options{}))
				synctest.Wait()
				r.Stop()
				<-r.ended
				advance(late)
				if s.closed() == 0 {
					t.Error("it was left open")
				}
			})
		})
	}
}

// Guarantees: G-0009.5
func TestLinkThatDoesNotCloseIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		r := scripted(t, &script{onClose: func() error { <-release; return nil }}, conn.Options{})
		r.Stop()
		var stuck *conn.StuckError
		if err := <-r.ended; !errors.As(err, &stuck) || !strings.Contains(err.Error(), "closing the link") {
			t.Errorf("Run: %v", err)
		}
		close(release)
	})
}

// Guarantees: G-0009.5
func TestLeftoversOfALinkAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		left := errors.New("a child was left behind")
		r := scripted(t, &script{onClose: func() error { return left }}, conn.Options{})
		r.Stop()
		if err := <-r.ended; !errors.Is(err, left) {
			t.Errorf("Run: %v", err)
		}
	})
}

// A panic in what was handed in is an error of that, not of the process.
func TestPanicsOfStrategies(t *testing.T) {
	fails := func() { panic("no") }
	for name, c := range map[string]struct {
		transport opening
		options   conn.Options
		where     string
	}{
		"open":      {func(context.Context) (transport.Link, error) { fails(); return nil, nil }, conn.Options{}, "opening a link"},
		"handshake": {opens(&script{}), conn.Options{Handshake: func(context.Context, *conn.Incarnation) error { fails(); return nil }}, "handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				told := panics{}
				c.options.Hooks = told.hooks()
				r := start(conn.New(c.transport, c.options))
				synctest.Wait()
				var panicked *conn.PanicError
				if status := r.Status(); status.State != conn.Backoff || !errors.As(status.Reason, &panicked) {
					t.Errorf("%s: %v", status.State, status.Reason)
				}
				if told[c.where] != "no" {
					t.Errorf("told %v", told)
				}
				r.Stop()
				<-r.ended
			})
		})
	}
}

// panicky is a dialect with a fault in each method.
type panicky struct{}

func (panicky) Classify(*jsonrpc.Message) conn.Class { panic("classify") }
func (panicky) Cancel(int64, error) conn.Message     { panic("cancel") }
func (panicky) Probe() conn.Message                  { panic("probe") }
func (panicky) Batches() bool                        { panic("batches") }

func TestPanicsOfTheDialectCostTheirMessageOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{Dialect: panicky{}, Handler: handler{"echo": echo}})
		s.deliver(`{"jsonrpc":"2.0","id":7,"method":"echo","params":[1]}`)
		ctx, cancel := context.WithCancel(t.Context())
		result := r.calling(ctx, conn.Request{Method: "m"})
		cancel()
		wantEnd(t, <-result, conn.Cancelled, conn.Unknown)
		if got := s.frames(); len(got) != 2 || r.State() != conn.Ready {
			t.Errorf("in %s the peer got %q", r.State(), got)
		}
		r.Stop()
		<-r.ended
	})
}

// Guarantees: G-0001.11, G-0048.4
func TestPanicOfTheLoopIsToldAndRunContinues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(_ *script, o transport.Outbound) error {
			if strings.Contains(string(o.Frame), "bad") {
				panic("send")
			}
			return nil
		}}
		told := panics{}
		r := scripted(t, s, conn.Options{Hooks: told.hooks()})
		first := r.calling(t.Context(), conn.Request{Method: "m"})
		second := r.calling(t.Context(), conn.Request{Method: "bad"})
		wantEnd(t, <-first, conn.LinkLost, conn.Unknown)
		wantEnd(t, <-second, conn.LinkLost, conn.Unknown)
		var panicked *conn.PanicError
		if err := <-r.ended; !errors.As(err, &panicked) || panicked.Error() != "conn: panic: send" || s.closed() == 0 {
			t.Errorf("Run: %v, the link was closed %d times", err, s.closed())
		}
		if told["Run"] != "send" {
			t.Errorf("told %v", told)
		}
		_, err := r.Call(t.Context(), conn.Request{Method: "m"})
		wantEnd(t, err, conn.Refused, conn.NotSent)
		if err := r.Close(t.Context()); !errors.Is(err, conn.ErrNotRunning) {
			t.Errorf("Close: %v", err)
		}
	})
}

// Guarantees: G-0001.11
func TestRunAgainContinuesIdsAndEpochs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first := true
		s := &script{}
		s.onSend = func(*script, transport.Outbound) error {
			if first {
				first = false
				panic("send")
			}
			return nil
		}
		r := scripted(t, s, conn.Options{})
		<-r.calling(t.Context(), conn.Request{Method: "m"})
		<-r.ended
		s.mu.Lock()
		s.over = false
		s.mu.Unlock()
		again := start(r.Conn)
		synctest.Wait()
		if status := again.Status(); status.State != conn.Ready || status.Epoch != 2 {
			t.Errorf("%s in epoch %d", status.State, status.Epoch)
		}
		s.deliver(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		result := again.calling(t.Context(), conn.Request{Method: "m"})
		s.deliver(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		if err := <-result; err != nil {
			t.Error(err)
		}
		if stats := again.Stats(); stats.Late != 1 || stats.Unknown != 0 || stats.Ended() != stats.Calls {
			t.Errorf("the answer to an id of the old run was not late: %+v", stats)
		}
		again.Stop()
		<-again.ended
	})
}

// Guarantees: G-0001.11, G-0009.1
func TestCloseEndsWhenTheLoopPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(_ *script, o transport.Outbound) error {
			if strings.Contains(string(o.Frame), "shutting down") {
				panic("send")
			}
			return nil
		}}
		r := scripted(t, s, conn.Options{})
		result := r.calling(t.Context(), conn.Request{Method: "m"})
		closing := make(chan error, 1)
		go func() { closing <- r.Close(context.Background()) }()
		synctest.Wait()
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		wantEnd(t, <-result, conn.LinkLost, conn.Unknown)
		if err := <-closing; !errors.Is(err, conn.ErrNotRunning) {
			t.Errorf("Close: %v", err)
		}
		<-r.ended
	})
}

// Guarantees: G-0019.9
func TestMessagesOfABatchAndProbes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{Dialect: dialect{}, Handler: handler{"echo": echo}})
		granted := s.granted
		s.deliver(`[{"jsonrpc":"2.0","id":"a","method":"ping"},5,{"jsonrpc":"2.0","id":"b","method":"echo","params":[1]}]`)
		synctest.Wait()
		if got := s.frames(); len(got) != 1 || r.Stats().Malformed != 1 ||
			got[0] != `[{"jsonrpc":"2.0","id":"a","result":{}},{"jsonrpc":"2.0","id":"b","result":[1]}]` {
			t.Errorf("the peer got %q, %d were malformed", got, r.Stats().Malformed)
		}
		if s.granted != granted+1 {
			t.Errorf("a batch of one frame gave back %d", s.granted-granted)
		}
		s.deliver(`[]`)
		s.deliver(`garbage`)
		s.receiver.Receive(transport.Inbound{Err: &transport.OversizedError{Limit: 1, Size: 2}})
		synctest.Wait()
		if s.granted != granted+4 || r.Stats().Malformed != 4 {
			t.Errorf("%d granted, %d malformed", s.granted-granted, r.Stats().Malformed)
		}
		r.Stop()
		<-r.ended
	})
}
