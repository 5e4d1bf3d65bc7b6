package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// wantEnd checks that a call ended with this cause and delivery.
func wantEnd(t *testing.T, err error, cause conn.Cause, delivery conn.Delivery) {
	t.Helper()
	var failed *conn.CallError
	if !errors.As(err, &failed) || failed.Cause != cause || failed.Delivery != delivery {
		t.Errorf("got %v, want %s, %s", err, cause, delivery)
	}
}

// If the handshake has not ended after InitTimeout, the attempt fails with InitTimedOut.
//
// Guarantees: G-0001.3
func TestHandshakeThatHangsTimesOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hangs := func(ctx context.Context, _ *conn.Incarnation) error { <-ctx.Done(); return context.Cause(ctx) }
		r := start(conn.New(opens(&script{}), conn.Options{Handshake: hangs}))
		advance(10*time.Second - 1)
		if state := r.State(); state != conn.Initializing {
			t.Errorf("after almost 10 s the state is %s, want initializing", state)
		}
		advance(1)
		if status := r.Status(); status.State != conn.Backoff || status.Reason.Kind != conn.InitTimedOut {
			t.Errorf("after 10 s: %s, %v; want backoff, InitTimedOut", status.State, status.Reason)
		}
		r.Stop()
		<-r.ended
	})
}

// While the peer refuses connections, attempts are made with growing delays, as Status announces them.
//
// Guarantees: G-0001.4
func TestReconnectsAfterTheBackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var attempts atomic.Int32
		refuses := opening(func(context.Context) (transport.Link, error) {
			attempts.Add(1)
			return nil, errors.New("refused")
		})
		r := start(conn.New(refuses, conn.Options{}))
		for want, wait := int32(1), time.Duration(0); want <= 5; want++ {
			advance(wait)
			if got := attempts.Load(); got != want {
				t.Errorf("%d attempts, want %d", got, want)
			}
			status := r.Status()
			wait = time.Until(status.NextAttempt)
			ideal := time.Second << (want - 1)
			if wait < max(ideal*8/10, time.Second) || wait > ideal*12/10 {
				t.Errorf("after attempt %d the delay is %v, want about %v", want, wait, ideal)
			}
			if looping := status.Reason.Kind == conn.CrashLooping; looping != (want >= 3) {
				t.Errorf("after attempt %d the reason is %v, want CrashLooping: %v", want, status.Reason, want >= 3)
			}
		}
		r.Stop()
		<-r.ended
	})
}

// Wake in backoff reconnects without a delay.
//
// Guarantees: G-0001.4
func TestWakeReconnectsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := connect(t, handler{"echo": echo}, conn.Options{})
		p.ready()
		p.server().Stop()
		synctest.Wait()
		began := time.Now()
		p.client.Wake()
		p.ready()
		if waited := time.Since(began); waited != 0 {
			t.Errorf("reconnecting took %v, want 0", waited)
		}
		p.stop()
	})
}

// A call that waits for the Conn to be ready ends with its context, and when the Conn stops.
//
// Guarantees: G-0003.5
func TestWaitForReadyEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		never := opening(func(ctx context.Context) (transport.Link, error) { return nil, errors.New("refused") })
		r := start(conn.New(never, conn.Options{}))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := r.Call(ctx, conn.Request{Method: "m", WaitForReady: true})
		wantEnd(t, err, conn.TimedOut, conn.NotSent)
		waiting := r.calling(t.Context(), conn.Request{Method: "m", WaitForReady: true})
		r.Stop()
		wantEnd(t, <-waiting, conn.ShutDown, conn.NotSent)
		<-r.ended
	})
}

// OnProgress is called on the caller's goroutine, in order, and before the call returns.
//
// Guarantees: G-0003.9
func TestProgressComesBeforeTheAnswerOnTheCallersGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{Dialect: dialect{}})
		var got []string // only the caller's goroutine writes it; the race detector would report another one
		done := make(chan error)
		go func() {
			_, err := r.Call(t.Context(), conn.Request{Method: "m", OnProgress: func(params json.RawMessage) { got = append(got, string(params)) }})
			got = append(got, "answered")
			done <- err
		}()
		synctest.Wait()
		for i := range 3 {
			s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","method":"progress","params":[1,%d]}`, i))
			if i < 2 {
				synctest.Wait()
			}
		}
		s.deliver(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if want := []string{"[1,0]", "[1,1]", "[1,2]", "answered"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		r.Stop()
		<-r.ended
	})
}

// All progress that came before the answer is delivered, even if OnProgress was still running when
// the answer came.
//
// Guarantees: G-0003.9
func TestLastProgressIsNotLostToTheAnswer(t *testing.T) {
	for range 20 { // select chooses at random
		bubble(t, func(t *testing.T) {
			s, release, got := &script{}, make(chan struct{}), 0
			r := scripted(t, s, conn.Options{Dialect: dialect{}})
			result := r.calling(t.Context(), conn.Request{Method: "m", OnProgress: func(json.RawMessage) { <-release; got++ }})
			s.deliver(`{"jsonrpc":"2.0","method":"progress","params":[1,1]}`)
			synctest.Wait()
			s.deliver(`{"jsonrpc":"2.0","method":"progress","params":[1,2]}`)
			s.deliver(`{"jsonrpc":"2.0","id":1,"result":{}}`)
			synctest.Wait()
			close(release)
			if err := <-result; err != nil || got != 2 {
				t.Errorf("OnProgress was called %d times, error %v; want 2 and none", got, err)
			}
			r.Stop()
			<-r.ended
		})
	}
}

// Close waits until the handlers have returned and their answers are sent.
//
// Guarantees: G-0009.6
func TestCloseWaitsForHandlers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		serve := handler{"slow": func(context.Context, *conn.Incoming) (json.RawMessage, error) {
			advance(3 * time.Second)
			return json.RawMessage(`"done"`), nil
		}}
		r := scripted(t, s, conn.Options{Handler: serve})
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"slow"}`)
		began := time.Now()
		if err := r.Close(t.Context()); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("Close returned after %v: %v; want no error after 3s", time.Since(began), err)
		}
		if got := s.frames(); len(got) != 1 || !strings.Contains(got[0], `"done"`) {
			t.Errorf("the peer got %q, want one answer with \"done\"", got)
		}
		if err := <-r.ended; err != nil {
			t.Errorf("Run: %v, want no error", err)
		}
	})
}

// If handlers do not return within StopGrace, Run returns a StuckError with their names.
//
// Guarantees: G-0009.3
func TestHandlerThatIgnoresItsContextIsNamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, release := &script{}, make(chan struct{})
		serve := handler{"hangs": func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-release; return nil, nil }}
		r := scripted(t, s, conn.Options{Handler: serve})
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"hangs"}`)
		s.deliver(`{"jsonrpc":"2.0","method":"hangs"}`)
		synctest.Wait()
		began := time.Now()
		r.Stop()
		var stuck *conn.StuckError
		if err := <-r.ended; !errors.As(err, &stuck) || !slices.Equal(stuck.Tasks, []string{"hangs", "notification hangs"}) {
			t.Errorf("Run: %v, want a StuckError with both handlers", err)
		}
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("Run returned after %v, want 200ms", took)
		}
		close(release)
	})
}

// When the Conn closes, notifications that wait are handled as long as there is time, and the others
// are dropped. Only a handler that does not return in time is reported as stuck.
//
// Guarantees: G-0009.3
func TestCloseWhileNotificationsWait(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration // how long each handler takes
		stuck []string
		took  time.Duration // until Run returns
	}{
		"all in time":                {8 * time.Millisecond, nil, 80 * time.Millisecond},
		"too many":                   {40 * time.Millisecond, nil, 120 * time.Millisecond},
		"too many, the second stuck": {55 * time.Millisecond, []string{"notification stuck"}, 155 * time.Millisecond},
		"the first is too slow":      {150 * time.Millisecond, []string{"notification slow"}, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				release := make(chan struct{})
				s, serve := new(script), handler{
					"slow":  func(context.Context, *conn.Incoming) (json.RawMessage, error) { advance(c.takes); return nil, nil },
					"stuck": func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-release; return nil, nil },
				}
				r := scripted(t, s, conn.Options{Handler: serve})
				s.deliver(`{"jsonrpc":"2.0","method":"slow"}`)
				second := "slow"
				if len(c.stuck) > 0 {
					second = "stuck"
				}
				s.deliver(`{"jsonrpc":"2.0","method":"` + second + `"}`)
				for range 8 {
					s.deliver(`{"jsonrpc":"2.0","method":"slow"}`)
				}
				synctest.Wait()
				began := time.Now()
				r.Stop()
				err := <-r.ended
				took := time.Since(began)
				var stuck *conn.StuckError
				if errors.As(err, &stuck) != (c.stuck != nil) || stuck != nil && !slices.Equal(stuck.Tasks, c.stuck) {
					t.Errorf("Run: %v, want stuck tasks %q", err, c.stuck)
				}
				if took != c.took {
					t.Errorf("Run returned after %v, want %v", took, c.took)
				}
				close(release)
				advance(time.Second)
			})
		})
	}
}

// A panic of a handler is reported to the hook. The peer gets an error without its text, and a
// panic of the hook itself does no harm.
func TestPanicOfAHandlerIsAnsweredAndReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reported []string
		s := &script{}
		serve := handler{"bad": func(context.Context, *conn.Incoming) (json.RawMessage, error) { panic("secret") }}
		r := scripted(t, s, conn.Options{
			Handler: serve,
			Tuning: conn.Tuning{
				Hooks: telemetry.Hooks{Panic: func(p telemetry.Panic) {
					reported = append(reported, p.Where)
					panic("the hook panics too")
				}},
			},
		})
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"bad"}`)
		synctest.Wait()
		if got := s.frames(); len(got) != 1 || !strings.Contains(got[0], "-32603") || strings.Contains(got[0], "secret") {
			t.Errorf("the peer got %q, want one internal error without the text of the panic", got)
		}
		s.deliver(`{"jsonrpc":"2.0","method":"bad"}`)
		synctest.Wait()
		if !slices.Equal(reported, []string{"bad", "bad"}) || r.State() != conn.Ready {
			t.Errorf("reported %q in state %s, want \"bad\" twice in ready", reported, r.State())
		}
		r.Stop()
		<-r.ended
	})
}

// Notifications beyond MaxNotifications that wait for the handler are dropped and counted.
//
// Guarantees: G-0004.5
func TestFloodOfNotificationsIsShedAndCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, release, served := &script{}, make(chan struct{}), 0
		serve := handler{"n": func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-release; served++; return nil, nil }}
		r := scripted(t, s, conn.Options{Handler: serve, Tuning: conn.Tuning{MaxNotifications: 10}})
		for range 100 {
			s.deliver(`{"jsonrpc":"2.0","method":"n"}`)
			synctest.Wait()
		}
		if shed := r.Stats().Shed; shed != 89 {
			t.Errorf("%d were shed, want 89: one is in the handler and ten wait", shed)
		}
		close(release)
		synctest.Wait()
		if served != 11 {
			t.Errorf("%d were handled, want 11", served)
		}
		r.Stop()
		<-r.ended
	})
}

// Notifications that wait with more than MaxHeld bytes together are dropped and counted.
//
// Guarantees: G-0004.6
func TestFloodOfLargeNotificationsIsShedByTheirSize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, release := &script{}, make(chan struct{})
		serve := handler{"n": func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-release; return nil, nil }}
		r := scripted(t, s, conn.Options{Handler: serve, Tuning: conn.Tuning{MaxHeld: 2000}})
		for range 20 {
			s.deliver(`{"jsonrpc":"2.0","method":"n","params":["` + strings.Repeat("a", 396) + `"]}`)
			synctest.Wait()
		}
		if shed := r.Stats().Shed; shed != 17 {
			t.Errorf("%d were shed, want 17: one of 400 bytes, which counts 860, is in the handler and two wait", shed)
		}
		close(release)
		r.Stop()
		<-r.ended
	})
}

// Requests beyond MaxServing and MaxWaiting are answered with an error.
//
// Guarantees: G-0004.4
func TestFloodOfRequestsIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{Handler: handler{"hang": hang}, Tuning: conn.Tuning{MaxServing: 3, MaxWaiting: 4}})
		for i := range 100 {
			s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"hang"}`, i))
		}
		synctest.Wait()
		if n := len(s.frames()); n != 93 {
			t.Errorf("%d were refused, want 93", n)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Errorf("Run: %v, want no error", err)
		}
	})
}

// A request counts with what its values take when they are decoded.
//
// Guarantees: G-0004.6
func TestValuesOfRequestsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{Handler: handler{"hang": hang}, Tuning: conn.Tuning{MaxHeld: 1 << 20}})
		for i := range 2 {
			s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"hang","params":[0%s]}`, i, strings.Repeat(",0", 20_000)))
		}
		synctest.Wait()
		if frames := s.frames(); len(frames) != 1 || !strings.Contains(frames[0], "-32050") {
			t.Errorf("got %v, want that one of two requests with 20,000 values is refused", frames)
		}
		r.Stop()
		<-r.ended
	})
}

// A burst of small requests is served completely, even with slow handlers: what waits is limited by
// its bytes.
//
// Guarantees: G-0004.6, G-0004.10
func TestBurstOfSmallRequestsIsServed(t *testing.T) {
	const burst = 5000
	bubble(t, func(t *testing.T) {
		s := &script{}
		slow := func(context.Context, *conn.Incoming) (json.RawMessage, error) {
			<-time.NewTimer(100 * time.Millisecond).C
			return json.RawMessage(`{}`), nil
		}
		r := scripted(t, s, conn.Options{Handler: handler{"m": slow}, Tuning: conn.Tuning{MaxHeld: 4 << 20}})
		for i := range burst {
			s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i))
		}
		synctest.Wait()
		s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":"large","method":"m","params":[%q]}`, strings.Repeat("x", 4<<20)))
		advance((burst/128 + 1) * 100 * time.Millisecond)
		refused := 0
		for _, frame := range s.frames() {
			if !strings.Contains(frame, `"result"`) {
				refused++
			}
		}
		if n := len(s.frames()); n != burst+1 || refused != 1 {
			t.Errorf("%d were answered, %d of them refused; want %d, 1", n, refused, burst+1)
		}
		r.Stop()
		<-r.ended
	})
}

// Stop ends the Conn at once from every state, however often it is called. Later calls are refused.
//
// Guarantees: G-0009.1, G-0009.2
func TestStopFromAnywhereAndAgain(t *testing.T) {
	for name, reach := range map[string]func() *conn.Conn{
		"starting": func() *conn.Conn {
			return conn.New(opening(func(ctx context.Context) (transport.Link, error) { <-ctx.Done(); return nil, ctx.Err() }), conn.Options{})
		},
		"initializing": func() *conn.Conn {
			return conn.New(opens(&script{}), conn.Options{Handshake: func(ctx context.Context, _ *conn.Incarnation) error { <-ctx.Done(); return ctx.Err() }})
		},
		"ready":    func() *conn.Conn { return conn.New(opens(&script{}), conn.Options{}) },
		"acceptor": func() *conn.Conn { return conn.Accept(&script{}, conn.Options{}) },
		"backoff": func() *conn.Conn {
			return conn.New(opening(func(context.Context) (transport.Link, error) { return nil, errors.New("refused") }), conn.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := start(reach())
				synctest.Wait()
				began := time.Now()
				for range 3 {
					r.Stop()
				}
				if err := <-r.ended; err != nil || time.Since(began) != 0 || r.State() != conn.Closing {
					t.Errorf("Run returned %v after %v in state %s, want no error at once in closing",
						err, time.Since(began), r.State())
				}
				<-r.Done()
				r.Stop()
				if err := r.Close(t.Context()); err != nil {
					t.Errorf("Close: %v, want no error", err)
				}
				_, err := r.Call(t.Context(), conn.Request{Method: "m"})
				wantEnd(t, err, conn.ShutDown, conn.NotSent)
				if err := r.Run(t.Context()); !errors.Is(err, conn.ErrNotRunning) {
					t.Errorf("a second Run: %v, want ErrNotRunning", err)
				}
			})
		})
	}
}

// Before Run, calls are refused and Close returns ErrNotRunning. A Run after that Close opens no link.
//
// Guarantees: G-0009.1
func TestConnThatNeverRan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opened := 0
		c := conn.New(opening(func(context.Context) (transport.Link, error) { opened++; return &script{}, nil }), conn.Options{})
		_, err := c.Call(t.Context(), conn.Request{Method: "m"})
		wantEnd(t, err, conn.Refused, conn.NotSent)
		wantEnd(t, c.Notify(t.Context(), "m", nil), conn.Refused, conn.NotSent)
		if err := c.Close(t.Context()); !errors.Is(err, conn.ErrNotRunning) {
			t.Errorf("Close: %v, want ErrNotRunning", err)
		}
		if err := c.Run(t.Context()); err != nil || opened != 0 {
			t.Errorf("Run: %v, %d links were opened; want no error and none", err, opened)
		}
		<-c.Done()
	})
}

// Concurrent calls, notifications, Stop, Close and Wake do not block each other, and each call is
// counted once.
//
// Guarantees: G-0003.1, G-0009.1
func TestConcurrentUseSettlesEveryCall(t *testing.T) {
	for range 20 {
		p := connect(t, handler{"echo": echo, "hang": hang}, conn.Options{Tuning: conn.Tuning{BackoffMin: time.Millisecond}})
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				for range 20 {
					method := []string{"echo", "hang"}[i%2]
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
					p.client.Call(ctx, conn.Request{Method: method, Params: json.RawMessage("{}"), WaitForReady: i%3 == 0})
					p.client.Notify(ctx, "echo", nil)
					cancel()
				}
			})
		}
		callers.Go(func() { p.client.AwaitReady(t.Context()); p.server().Stop(); p.client.Wake() })
		callers.Go(func() { p.client.AwaitReady(t.Context()); p.client.Close(t.Context()) })
		callers.Go(func() { p.client.AwaitReady(t.Context()); p.client.Stop() })
		callers.Wait()
		<-p.client.Done()
		if s := p.client.Stats(); s.Ended() != s.Calls {
			t.Fatalf("%d calls ended, want %d: %+v", s.Ended(), s.Calls, s)
		}
		p.stop()
	}
}

// While the Conn drains, a handler may still make calls with its context, or through its Incoming.
//
// Guarantees: G-0009.6
func TestHandlerMayCallDuringClose(t *testing.T) {
	elicit := conn.Request{Method: "elicit"}
	for name, call := range map[string]func(context.Context, *conn.Conn, *conn.Incoming) (json.RawMessage, error){
		"Conn.Call": func(ctx context.Context, c *conn.Conn, _ *conn.Incoming) (json.RawMessage, error) {
			return c.Call(ctx, elicit)
		},
		"Incoming.Call": func(_ context.Context, _ *conn.Conn, in *conn.Incoming) (json.RawMessage, error) {
			return in.Call(context.Background(), elicit)
		},
	} {
		t.Run(name, func(t *testing.T) { callDuringClose(t, call) })
	}
}

func callDuringClose(t *testing.T, call func(context.Context, *conn.Conn, *conn.Incoming) (json.RawMessage, error)) {
	bubble(t, func(t *testing.T) {
		s, release := &script{}, make(chan struct{})
		var r run
		r = scripted(t, s, conn.Options{Handler: handler{"ask": func(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
			<-release
			return call(ctx, r.Conn, in)
		}}})
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"ask"}`)
		closing := make(chan error, 1)
		go func() { closing <- r.Close(t.Context()) }()
		synctest.Wait()
		_, err := r.Call(t.Context(), conn.Request{Method: "m"})
		if wantEnd(t, err, conn.Refused, conn.NotSent); !errors.Is(err, conn.ErrDraining) {
			t.Errorf("a call outside of a handler: %v, want ErrDraining", err)
		}
		close(release)
		synctest.Wait()
		s.deliver(`{"jsonrpc":"2.0","id":2,"result":"yes"}`)
		if err := <-closing; err != nil {
			t.Errorf("Close: %v, want no error", err)
		}
		if got := s.frames(); len(got) != 2 || !strings.Contains(got[1], `"yes"`) {
			t.Errorf("the peer got %q, want the handler's call and an answer with \"yes\"", got)
		}
		<-r.ended
	})
}

// When the context of Close ends, the Conn stops and Close returns the cause.
//
// Guarantees: G-0009.1, G-0009.7
func TestCloseStopsAtTheEndOfItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := scripted(t, &script{}, conn.Options{})
		result := r.calling(t.Context(), conn.Request{Method: "m"})
		ctx, cancel := context.WithCancelCause(t.Context())
		closing := make(chan error, 1)
		go func() { closing <- r.Close(ctx) }()
		advance(time.Second)
		enough := errors.New("enough")
		cancel(enough)
		if err := <-closing; !errors.Is(err, enough) {
			t.Errorf("Close: %v, want %v", err, enough)
		}
		wantEnd(t, <-result, conn.ShutDown, conn.Unknown)
		<-r.ended
	})
}
