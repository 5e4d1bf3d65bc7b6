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

// A notification that a busy link refuses four times is refused, after the three delays.
//
// Guarantees: G-0007.1
func TestNotificationIsRefusedAfterThreeRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		offered := 0
		s := &script{onSend: func(*script, transport.Outbound) error { offered++; return transport.ErrBusy }}
		r := scripted(t, s, conn.Options{})
		began := time.Now()
		err := r.Notify(t.Context(), "m", nil)
		if wantEnd(t, err, conn.Refused, conn.NotSent); !errors.Is(err, transport.ErrBusy) {
			t.Errorf("got %v, want ErrBusy", err)
		}
		if took := time.Since(began); offered != 4 || took < 15*time.Millisecond || took > 45*time.Millisecond {
			t.Errorf("it was offered %d times in %v, want 4 times in 15ms to 45ms", offered, took)
		}
		r.Stop()
		<-r.ended
	})
}

// A thousand callers share a link that takes a few frames at a time. None is refused, and each gets
// its own answer.
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
					return answered.apply(s, o)
				}}
				r := scripted(t, s, conn.Options{Tuning: conn.Tuning{SendSlots: slots}})
				all := r.callMany(1000, time.Minute)
				for range cap(all) {
					if c := <-all; c.err != nil {
						t.Fatalf("a call ended after %v with %v, want no error", c.at.Sub(began), c.err)
					}
				}
				if stats := r.Stats(); stats.Calls != 1000 || stats.Retries != 0 {
					t.Errorf("got %+v, want 1000 calls without retries", stats)
				}
				r.Stop()
				<-r.ended
			})
		})
	}
}

// A call that waits for a send slot, or for a busy link, ends when its timeout has passed, with an
// error that names the cause.
//
// Guarantees: G-0007.6
func TestCallerWaitsNoLongerThanItsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(*script, transport.Outbound) error { return transport.ErrBusy }}
		r := scripted(t, s, conn.Options{Tuning: conn.Tuning{SendSlots: 1}})
		began := time.Now()
		first := r.calling(t.Context(), conn.Request{Method: "m", Timeout: time.Second})
		synctest.Wait()
		second := r.calling(t.Context(), conn.Request{Method: "m", Timeout: 10 * time.Millisecond}) // the first holds the slot for 15 ms at least
		err := <-second
		if wantEnd(t, err, conn.TimedOut, conn.NotSent); !errors.Is(err, conn.ErrTimedOut) || time.Since(began) != 10*time.Millisecond {
			t.Errorf("waiting for a slot, after %v: %v; want ErrTimedOut after 10ms", time.Since(began), err)
		}
		err = <-first
		if wantEnd(t, err, conn.TimedOut, conn.NotSent); !errors.Is(err, conn.ErrTimedOut) || !errors.Is(err, transport.ErrBusy) {
			t.Errorf("waiting for the link: %v, want ErrTimedOut and ErrBusy", err)
		}
		if took := time.Since(began); took < time.Second || took > time.Second+45*time.Millisecond {
			t.Errorf("waiting for the link took %v, want 1s to 1.045s", took)
		}
		third := r.calling(t.Context(), conn.Request{Method: "m", Timeout: -1})
		err = <-third
		wantEnd(t, err, conn.LinkLost, conn.NotSent) // a link that takes nothing is lost
		r.Stop()
		<-r.ended
	})
}

// Notify returns when its context ends, even if the notification waits for a busy link.
//
// Guarantees: G-0007.3
func TestNotifyEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(*script, transport.Outbound) error { return transport.ErrBusy }}
		r := scripted(t, s, conn.Options{})
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"unknown"}`) // its answer stays at the head of the queue
		synctest.Wait()
		impatient := errors.New("impatient")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, impatient)
		defer cancel()
		began := time.Now()
		err := r.Notify(ctx, "m", nil)
		if wantEnd(t, err, conn.TimedOut, conn.NotSent); !errors.Is(err, impatient) || time.Since(began) != time.Second {
			t.Errorf("Notify returned after %v: %v; want %v after 1s", time.Since(began), err, impatient)
		}
		r.Stop()
		<-r.ended
	})
}

// TryNotify fails at once if the link takes nothing, and if another frame waits for it.
func TestTryNotifyNeverWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(*script, transport.Outbound) error { return transport.ErrBusy }}
		r := scripted(t, s, conn.Options{})
		for _, when := range []string{"the link is busy", "another frame waits"} {
			began := time.Now()
			err := r.TryNotify(t.Context(), "m", nil)
			if wantEnd(t, err, conn.Refused, conn.NotSent); !errors.Is(err, transport.ErrBusy) || time.Since(began) != 0 {
				t.Errorf("%s: after %v: %v, want ErrBusy at once", when, time.Since(began), err)
			}
			s.deliver(`{"jsonrpc":"2.0","id":1,"method":"unknown"}`) // its answer stays at the head of the queue
			synctest.Wait()
		}
		r.Stop()
		<-r.ended
	})
}

// Notifications that a Conn refuses because it has ended give back their slot, so the next one is refused, too.
func TestNotifyAfterTheEndGivesBackItsSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := scripted(t, new(script), conn.Options{Tuning: conn.Tuning{SendSlots: 1}})
		r.Stop()
		<-r.ended
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 2 {
			wantEnd(t, r.Notify(ctx, "m", nil), conn.ShutDown, conn.NotSent)
		}
	})
}

// A link that takes no frame for ten seconds is lost with PeerNotReading.
//
// Guarantees: G-0007.4
func TestPeerThatDoesNotReadIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(*script, transport.Outbound) error { return transport.ErrBusy }}
		r := scripted(t, s, conn.Options{})
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"unknown"}`)
		advance(10*time.Second - 1)
		if state := r.State(); state != conn.Ready {
			t.Errorf("after almost 10 s the state is %s, want ready", state)
		}
		advance(1)
		if why := r.Status().LastFailure; why.Kind != conn.PeerNotReading {
			t.Errorf("after 10 s the failure is %v, want PeerNotReading", why)
		}
		r.Stop()
		<-r.ended
	})
}

// The ten seconds begin when the link last took a frame.
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
		for id := range 3 { // each time the link takes a frame after nine seconds
			full.Store(true)
			s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"unknown"}`, id))
			advance(9 * time.Second)
			full.Store(false)
			advance(time.Second / 10)
			if status := r.Status(); status.State != conn.Ready || len(s.frames()) != id+1 {
				t.Fatalf("%s (%v), %d answers were taken; want ready, %d",
					status.State, status.Reason, len(s.frames()), id+1)
			}
		}
		full.Store(true)
		s.deliver(`{"jsonrpc":"2.0","id":9,"method":"unknown"}`)
		advance(10*time.Second - 1)
		if state := r.State(); state != conn.Ready {
			t.Errorf("after almost 10 s the state is %s, want ready", state)
		}
		advance(1)
		if why := r.Status().LastFailure; why.Kind != conn.PeerNotReading {
			t.Errorf("after 10 s the failure is %v, want PeerNotReading", why)
		}
		r.Stop()
		<-r.ended
	})
}

// A link that opens only after Stop is closed, even after Run has returned.
//
// Guarantees: G-0009.4
func TestLinkThatComesAfterStopIsClosed(t *testing.T) {
	for name, late := range map[string]time.Duration{"while Run waits": 50 * time.Millisecond, "after Run": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{}
				slow := opening(func(context.Context) (transport.Link, error) { advance(late); return s, nil })
				r := start(conn.New(slow, conn.Options{}))
				synctest.Wait()
				r.Stop()
				<-r.ended
				advance(late)
				if s.closed() == 0 {
					t.Error("the link was not closed")
				}
			})
		})
	}
}

// A link that does not close in time is named in Run's StuckError.
//
// Guarantees: G-0009.5
func TestLinkThatDoesNotCloseIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		r := scripted(t, &script{onClose: func() error { <-release; return nil }}, conn.Options{})
		r.Stop()
		var stuck *conn.StuckError
		if err := <-r.ended; !errors.As(err, &stuck) || !strings.Contains(err.Error(), "closing the link") {
			t.Errorf("Run: %v, want a StuckError with \"closing the link\"", err)
		}
		close(release)
	})
}

// An error of the link's Close is returned by Run.
//
// Guarantees: G-0009.5
func TestErrorOfClosingALinkIsReturned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		left := errors.New("a child was left behind")
		r := scripted(t, &script{onClose: func() error { return left }}, conn.Options{})
		r.Stop()
		if err := <-r.ended; !errors.Is(err, left) {
			t.Errorf("Run: %v, want %v", err, left)
		}
	})
}

// A panic of a transport's Open or of a handshake fails that attempt and is reported.
func TestPanicOfOpenOrHandshakeFailsTheAttempt(t *testing.T) {
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
				reported := panics{}
				c.options.Hooks = reported.hooks()
				r := start(conn.New(c.transport, c.options))
				synctest.Wait()
				var panicked *conn.PanicError
				if status := r.Status(); status.State != conn.Backoff || !errors.As(status.Reason, &panicked) {
					t.Errorf("%s: %v, want backoff with a PanicError", status.State, status.Reason)
				}
				if reported[c.where] != "no" {
					t.Errorf("reported %v, want %q", reported, c.where)
				}
				r.Stop()
				<-r.ended
			})
		})
	}
}

// A panickingDialect panics in each method.
type panickingDialect struct{}

func (panickingDialect) Classify(jsonrpc.Message) conn.Class   { panic("classify") }
func (panickingDialect) Cancel(jsonrpc.ID, error) conn.Message { panic("cancel") }
func (panickingDialect) Probe() conn.Message                   { panic("probe") }
func (panickingDialect) Batches() bool                         { panic("batches") }

// A panic of the Dialect affects only the message that it is called for.
func TestPanicOfTheDialectAffectsOneMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{Dialect: panickingDialect{}, Handler: handler{"echo": echo}})
		s.deliver(`{"jsonrpc":"2.0","id":7,"method":"echo","params":[1]}`)
		ctx, cancel := context.WithCancel(t.Context())
		result := r.calling(ctx, conn.Request{Method: "m"})
		cancel()
		wantEnd(t, <-result, conn.Cancelled, conn.Unknown)
		if got := s.frames(); len(got) != 2 || r.State() != conn.Ready {
			t.Errorf("in %s the peer got %q, want two frames in ready", r.State(), got)
		}
		r.Stop()
		<-r.ended
	})
}

// A panic of the loop settles the calls, closes the link, is reported, and is returned by Run. The
// Conn is then not running.
//
// Guarantees: G-0001.11, G-0048.4
func TestPanicOfTheLoopEndsRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(_ *script, o transport.Outbound) error {
			if strings.Contains(string(o.Frame), "bad") {
				panic("send")
			}
			return nil
		}}
		reported := panics{}
		r := scripted(t, s, conn.Options{Tuning: conn.Tuning{Hooks: reported.hooks()}})
		first := r.calling(t.Context(), conn.Request{Method: "m"})
		second := r.calling(t.Context(), conn.Request{Method: "bad"})
		wantEnd(t, <-first, conn.LinkLost, conn.Unknown)
		wantEnd(t, <-second, conn.LinkLost, conn.Unknown)
		var panicked *conn.PanicError
		if err := <-r.ended; !errors.As(err, &panicked) || panicked.Error() != "conn: panic: send" || s.closed() == 0 {
			t.Errorf("Run: %v, the link was closed %d times; want a PanicError with \"send\", once at least",
				err, s.closed())
		}
		if reported["Run"] != "send" {
			t.Errorf("reported %v, want the panic of Run", reported)
		}
		_, err := r.Call(t.Context(), conn.Request{Method: "m"})
		wantEnd(t, err, conn.Refused, conn.NotSent)
		if err := r.Close(t.Context()); !errors.Is(err, conn.ErrNotRunning) {
			t.Errorf("Close: %v, want ErrNotRunning", err)
		}
	})
}

// A Run after a panic continues with the ids and epochs of the first one.
//
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
		s.lossReported = false
		s.mu.Unlock()
		again := start(r.Conn)
		synctest.Wait()
		if status := again.Status(); status.State != conn.Ready || status.Epoch != 2 {
			t.Errorf("%s in epoch %d, want ready in epoch 2", status.State, status.Epoch)
		}
		s.deliver(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		result := again.calling(t.Context(), conn.Request{Method: "m"})
		s.deliver(`{"jsonrpc":"2.0","id":2,"result":{}}`)
		if err := <-result; err != nil {
			t.Error(err)
		}
		if stats := again.Stats(); stats.Late != 1 || stats.Unknown != 0 || stats.Ended() != stats.Calls {
			t.Errorf("got %+v, want one late answer, to an id of the first Run, and none unknown", stats)
		}
		again.Stop()
		<-again.ended
	})
}

// If the loop panics while Close waits, Close returns ErrNotRunning.
//
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
			t.Errorf("Close: %v, want ErrNotRunning", err)
		}
		<-r.ended
	})
}

// The answers to a batch with a probe are sent together. A batch gets credit for one frame, and each
// malformed message is counted.
//
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
			t.Errorf("the peer got %q, %d were malformed; want one array of two answers, 1", got, r.Stats().Malformed)
		}
		if s.granted != granted+1 {
			t.Errorf("a batch was granted %d frames, want 1", s.granted-granted)
		}
		s.deliver(`[]`)
		s.deliver(`garbage`)
		s.receiver.Receive(transport.Inbound{Err: &transport.OversizedError{Limit: 1, Size: 2}})
		synctest.Wait()
		if s.granted != granted+4 || r.Stats().Malformed != 4 {
			t.Errorf("%d granted, %d malformed; want 4, 4", s.granted-granted, r.Stats().Malformed)
		}
		r.Stop()
		<-r.ended
	})
}

// A transport learns for which connection it opens a link, so that one transport can serve many.
//
// Guarantees: G-0014.22
func TestTransportLearnsTheNameOfItsConnection(t *testing.T) {
	for _, name := range []string{"search", ""} {
		bubble(t, func(t *testing.T) {
			var got []string
			s := &script{}
			c := conn.New(opening(func(ctx context.Context) (transport.Link, error) {
				got = append(got, transport.ConnectionName(ctx))
				return s, nil
			}), conn.Options{Tuning: conn.Tuning{Name: name}})
			ended := make(chan error, 1)
			go func() { ended <- c.Run(t.Context()) }()
			synctest.Wait()
			c.Stop()
			<-ended
			if len(got) != 1 || got[0] != name {
				t.Errorf("Open got the names %q, want %q once", got, name)
			}
		})
	}
}

// A transport that could open no link learns who has asked, and can end the wait before the next
// attempt.
//
// Guarantees: G-0014.25
func TestTransportWakesItsConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var asked []transport.Waker
		began := time.Now()
		c := conn.New(opening(func(ctx context.Context) (transport.Link, error) {
			asked = append(asked, transport.WakerOf(ctx))
			return nil, errors.New("not yet")
		}), conn.Options{Tuning: conn.Tuning{BackoffMin: time.Hour, BackoffMax: time.Hour}})
		ended := make(chan error, 1)
		go func() { ended <- c.Run(t.Context()) }()
		synctest.Wait()
		for range 2 {
			asked[len(asked)-1].Wake()
			synctest.Wait()
		}
		if len(asked) != 3 || time.Since(began) > 0 {
			t.Errorf("Open was called %d times within %v, want 3 times at once", len(asked), time.Since(began))
		}
		c.Stop()
		<-ended
		asked[0].Wake() // it has no effect
	})
	if got := transport.WakerOf(t.Context()); got != nil {
		t.Errorf("got %v of a context without a Waker, want nil", got)
	}
}
