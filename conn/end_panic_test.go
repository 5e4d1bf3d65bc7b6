package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// A Final that panics has called nothing final.
func TestPanicOfFinalIsNotFinal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, told := &script{}, panics{}
		r := scripted(t, s, conn.Options{Final: func(conn.Reason) bool { panic("final") }, Hooks: told.hooks()})
		result := r.calling(t.Context(), conn.Request{Method: "m"})
		s.lose(transport.Loss{Reason: errors.New("gone")})
		wantEnd(t, <-result, conn.LinkLost, conn.Unknown)
		synctest.Wait()
		if status := r.Status(); status.State != conn.Backoff || told["Options.Final"] != "final" {
			t.Errorf("%s: %v, told %v", status.State, status.Reason, told)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// panics are those that a hook was told of: what ran, and the value.
type panics map[string]any

func (p panics) hooks() telemetry.Hooks {
	return telemetry.Hooks{Panic: func(e telemetry.Panic) { p[e.Where] = e.Value }}
}

// unbindable is a link with a fault in Bind. What was not bound is not to be used.
type unbindable struct {
	*script
	t *testing.T
}

func (unbindable) Bind(transport.Receiver)         { panic("bind") }
func (u unbindable) Grant(transport.Stream, int)   { u.t.Error("it was granted credit") }
func (u unbindable) Send(transport.Outbound) error { u.t.Error("it was sent a frame"); return nil }

// A link that panics when it is bound is lost, and closed.
//
// Guarantees: G-0001.4
func TestPanicOfBindLosesTheLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bad, good, told, began := &script{}, &script{}, panics{}, time.Now()
		links := []transport.Link{unbindable{bad, t}, good}
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			link := links[0]
			links = links[1:]
			return link, nil
		}), conn.Options{Hooks: told.hooks(), Handshake: func(ctx context.Context, i *conn.Incarnation) error {
			i.Notify(ctx, "hello", nil)
			return nil
		}}))
		if err := r.AwaitReady(t.Context()); err != nil || time.Since(began) < time.Second {
			t.Errorf("ready after %v: %v", time.Since(began), err)
		}
		why := r.Status().LastFailure
		if panicked := new(conn.PanicError); why.Kind != conn.LinkBroken || !errors.As(why, &panicked) || bad.closed() != 1 {
			t.Errorf("it was lost by %q, and closed %d times", why, bad.closed())
		}
		if synctest.Wait(); told["Link"] != "bind" {
			t.Errorf("told %v", told)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

func TestPanicOfBindClosesAnAcceptor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := start(conn.Accept(unbindable{s, t}, conn.Options{}))
		why := conn.Reason{}
		if err := <-r.ended; !errors.As(err, &why) || why.Kind != conn.LinkBroken || s.closed() != 1 {
			t.Errorf("Run: %v, closed %d times", err, s.closed())
		}
	})
}

// An attempt that gives neither a link nor an error has failed.
func TestOpenWithoutALink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(conn.New(opens(nil), conn.Options{}))
		synctest.Wait()
		if status := r.Status(); status.State != conn.Backoff || status.Reason.Kind != conn.OpenFailed || status.Reason.Err == nil {
			t.Errorf("%s: %v", status.State, status.Reason)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// Hooks.Panic is told of every panic of code that was handed in.
//
// Guarantees: G-0024.4
func TestHooksReceiveEveryPanic(t *testing.T) {
	serve := handler{"m": func(context.Context, *conn.Incoming) (json.RawMessage, error) { panic("served") }}
	for name, o := range map[string]struct {
		conn.Options
		open opening
		do   func(*script)
	}{
		"a handler":   {Options: conn.Options{Handler: serve}, do: func(s *script) { s.deliver(`{"jsonrpc":"2.0","id":1,"method":"m"}`) }},
		"a handshake": {Options: conn.Options{Handshake: func(context.Context, *conn.Incarnation) error { panic("handshake") }}},
		"Open":        {open: func(context.Context) (transport.Link, error) { panic("open") }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var told []telemetry.Panic
				o.Hooks.Panic = func(p telemetry.Panic) { told = append(told, p) }
				s := &script{}
				if o.open == nil {
					o.open = opens(s)
				}
				r := start(conn.New(o.open, o.Options))
				synctest.Wait()
				if o.do != nil {
					o.do(s)
				}
				synctest.Wait()
				if len(told) == 0 {
					t.Errorf("nobody was told; last failure: %v", r.Status().LastFailure)
				}
				r.Stop()
				<-r.ended
			})
		})
	}
}

type panickingHeard struct{ *script }

func (panickingHeard) Heard() (time.Time, bool) { panic("heard") }

// Guarantees: G-0009.4
func TestLinkWhoseHeardPanicsIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := start(conn.New(opens(panickingHeard{s}), conn.Options{}))
		synctest.Wait()
		r.Stop()
		<-r.ended
		if s.closes == 0 {
			t.Error("the link was never closed")
		}
	})
}

type panickingCancel struct{ dialect }

func (panickingCancel) Cancel(int64, error) conn.Message { panic("cancel") }

// A hook that is told of a panic, and blocks, is named at the end.
//
// Guarantees: G-0024.1
func TestPanicHookThatBlocksHoldsNobodyUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, release := &script{}, make(chan struct{})
		r := scripted(t, s, conn.Options{Dialect: panickingCancel{}, Hooks: telemetry.Hooks{Panic: func(telemetry.Panic) { <-release }}})
		ctx, cancel := context.WithCancel(t.Context())
		first := r.calling(ctx, conn.Request{Method: "m"})
		cancel()
		synctest.Wait()
		r.Stop()
		advance(time.Minute)
		select {
		case <-first:
		default:
			t.Error("the caller is not told, a minute after it left and the Conn was stopped")
		}
		select {
		case err := <-r.ended:
			if stuck := new(conn.StuckError); !errors.As(err, &stuck) {
				t.Errorf("Run: %v", err)
			}
		default:
			t.Error("a minute after Stop it runs")
		}
		close(release)
	})
}

// What waits behind the event that the loop panics of is told as well.
//
// Guarantees: G-0001.11
func TestPanicReportsEventsBehindIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release, sends := make(chan struct{}), 0
		s := &script{onSend: func(*script, transport.Outbound) error {
			switch sends++; sends {
			case 1:
				<-release
			case 2:
				panic("send")
			}
			return nil
		}}
		r := scripted(t, s, conn.Options{})
		first := r.calling(t.Context(), conn.Request{Method: "m"})
		var behind []<-chan error
		for range 3 {
			behind = append(behind, r.calling(t.Context(), conn.Request{Method: "m"}))
		}
		close(release)
		<-r.ended
		synctest.Wait()
		<-first
		unsent := 0
		for _, result := range behind {
			select {
			case err := <-result:
				if conn.NotExecuted(err) {
					unsent++
				}
			default:
				t.Error("a caller waits for ever")
			}
		}
		if unsent != 2 {
			t.Errorf("%d of 2 are told that they were not sent", unsent)
		}
	})
}

// A link that panics while the core's effects are performed keeps no caller from an outcome
// that the core has decided already.
//
// Guarantees: G-0001.11
func TestPanicBetweenTwoOutcomes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onSend: func(_ *script, o transport.Outbound) error {
			if o.Tag == 0 { // the cancellation of the first call
				panic("send")
			}
			return nil
		}}
		r := scripted(t, s, conn.Options{Dialect: dialect{}})
		first := r.calling(t.Context(), conn.Request{Method: "m", Timeout: time.Second})
		second := r.calling(t.Context(), conn.Request{Method: "m", Timeout: time.Second})
		wantEnd(t, <-first, conn.TimedOut, conn.Unknown)
		wantEnd(t, <-second, conn.TimedOut, conn.Unknown)
		if err, panicked := <-r.ended, new(conn.PanicError); !errors.As(err, &panicked) || panicked.Value != "send" {
			t.Errorf("Run returned %v", err)
		}
	})
}
