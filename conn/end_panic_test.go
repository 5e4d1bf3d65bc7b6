package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// If Options.Final panics, the reason does not count as final.
func TestPanicOfFinalIsNotFinal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, reported := &script{}, panics{}
		r := scripted(t, s, conn.Options{Tuning: conn.Tuning{Final: func(conn.Reason) bool { panic("final") }, Hooks: reported.hooks()}})
		result := r.calling(t.Context(), conn.Request{Method: "m"})
		s.lose(transport.Loss{Reason: errors.New("gone")})
		wantEnd(t, <-result, conn.LinkLost, conn.Unknown)
		synctest.Wait()
		if status := r.Status(); status.State != conn.Backoff || reported["Options.Final"] != "final" {
			t.Errorf("%s: %v, reported %v; want backoff and the panic of Final", status.State, status.Reason, reported)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// panics are the values of the panics that were reported, by where they happened.
type panics map[string]any

func (p panics) hooks() telemetry.Hooks {
	return telemetry.Hooks{Panic: func(e telemetry.Panic) { p[e.Where] = e.Value }}
}

// An unbindable link panics in Bind. It must not be used afterwards.
type unbindable struct {
	*script
	t *testing.T
}

func (unbindable) Bind(transport.Receiver)         { panic("bind") }
func (u unbindable) Grant(transport.Stream, int)   { u.t.Error("Grant was called") }
func (u unbindable) Send(transport.Outbound) error { u.t.Error("Send was called"); return nil }

// A link that panics in Bind is closed and counts as lost. The Conn reconnects.
//
// Guarantees: G-0001.4
func TestPanicOfBindLosesTheLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bad, good, reported, began := &script{}, &script{}, panics{}, time.Now()
		links := []transport.Link{unbindable{bad, t}, good}
		r := start(conn.New(opening(func(context.Context) (transport.Link, error) {
			link := links[0]
			links = links[1:]
			return link, nil
		}), conn.Options{
			Handshake: func(ctx context.Context, i *conn.Incarnation) error {
				i.Notify(ctx, "hello", nil)
				return nil
			},
			Tuning: conn.Tuning{
				Hooks: reported.hooks(),
			},
		}))
		if err := r.AwaitReady(t.Context()); err != nil || time.Since(began) < time.Second {
			t.Errorf("ready after %v: %v; want no error after 1s at least", time.Since(began), err)
		}
		why := r.Status().LastFailure
		if panicked := new(conn.PanicError); why.Kind != conn.LinkBroken || !errors.As(why, &panicked) || bad.closed() != 1 {
			t.Errorf("the loss is %q, closed %d times; want LinkBroken with a PanicError, once", why, bad.closed())
		}
		if synctest.Wait(); reported["Link"] != "bind" {
			t.Errorf("reported %v, want the panic of Bind", reported)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// An acceptor whose link panics in Bind closes the link and ends with LinkBroken.
func TestPanicOfBindClosesAnAcceptor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := start(conn.Accept(unbindable{s, t}, conn.Options{}))
		why := conn.Reason{}
		if err := <-r.ended; !errors.As(err, &why) || why.Kind != conn.LinkBroken || s.closed() != 1 {
			t.Errorf("Run: %v, closed %d times; want LinkBroken, once", err, s.closed())
		}
	})
}

// If Open returns neither a link nor an error, the attempt has failed.
func TestOpenWithoutALinkFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := start(conn.New(opens(nil), conn.Options{}))
		synctest.Wait()
		if status := r.Status(); status.State != conn.Backoff || status.Reason.Kind != conn.OpenFailed || status.Reason.Err == nil {
			t.Errorf("%s: %v, want backoff: OpenFailed with an error", status.State, status.Reason)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// Panics of the program's handlers, handshakes and transports are reported to Hooks.Panic, once, with the place. An error that has a
// panic as its cause is none: who has made the error has reported it.
//
// Guarantees: G-0024.4
func TestHooksReceiveEveryPanic(t *testing.T) {
	serve := handler{
		"m": func(context.Context, *conn.Incoming) (json.RawMessage, error) { panic("served") },
		"later": func(context.Context, *conn.Incoming) (json.RawMessage, error) {
			return nil, fmt.Errorf("it failed: %w", &conn.PanicError{Value: "before"})
		},
	}
	for name, o := range map[string]struct {
		conn.Options
		open opening
		do   func(*script)
		want []telemetry.Panic
	}{
		"a handler": {
			Options: conn.Options{Handler: serve}, do: func(s *script) { s.deliver(`{"jsonrpc":"2.0","id":1,"method":"m"}`) },
			want: []telemetry.Panic{{Conn: "c", Where: "m", Value: "served"}},
		},
		"an error of a handler": {Options: conn.Options{Handler: serve}, do: func(s *script) { s.deliver(`{"jsonrpc":"2.0","id":1,"method":"later"}`) }},
		"a handshake": {
			Options: conn.Options{Handshake: func(context.Context, *conn.Incarnation) error { panic("handshake") }},
			want:    []telemetry.Panic{{Conn: "c", Where: "handshake", Value: "handshake"}},
		},
		"Open": {
			open: func(context.Context) (transport.Link, error) { panic("open") },
			want: []telemetry.Panic{{Conn: "c", Where: "opening a link", Value: "open"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var reported []telemetry.Panic
				o.Name = "c"
				o.Hooks.Panic = func(p telemetry.Panic) {
					if len(p.Stack) == 0 {
						t.Errorf("%s: the panic has no stack", p.Where)
					}
					p.Stack = nil
					reported = append(reported, p)
				}
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
				if diff := cmp.Diff(o.want, reported); diff != "" {
					t.Errorf("the last failure is %v; reported (-want +got):\n%s", r.Status().LastFailure, diff)
				}
				r.Stop()
				<-r.ended
			})
		})
	}
}

type panickingTraits struct{ *script }

func (panickingTraits) LinkTraits() transport.LinkTraits { panic("traits") }

// A link whose LinkTraits panics is closed.
//
// Guarantees: G-0009.4
func TestLinkWhoseTraitsPanicIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := start(conn.New(opens(panickingTraits{s}), conn.Options{}))
		synctest.Wait()
		r.Stop()
		<-r.ended
		if s.closes == 0 {
			t.Error("the link was not closed")
		}
	})
}

type panickingCancel struct{ dialect }

func (panickingCancel) Cancel(jsonrpc.ID, error) conn.Message { panic("cancel") }

// A Panic hook that blocks delays no caller and no Stop. Run names it in a StuckError.
//
// Guarantees: G-0024.1
func TestPanicHookThatBlocksDelaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, release := &script{}, make(chan struct{})
		r := scripted(t, s, conn.Options{Dialect: panickingCancel{}, Tuning: conn.Tuning{Hooks: telemetry.Hooks{Panic: func(telemetry.Panic) { <-release }}}})
		ctx, cancel := context.WithCancel(t.Context())
		first := r.calling(ctx, conn.Request{Method: "m"})
		cancel()
		synctest.Wait()
		r.Stop()
		advance(time.Minute)
		select {
		case <-first:
		default:
			t.Error("the call has not returned a minute after it was cancelled and the Conn was stopped")
		}
		select {
		case err := <-r.ended:
			if stuck := new(conn.StuckError); !errors.As(err, &stuck) {
				t.Errorf("Run: %v, want a StuckError", err)
			}
		default:
			t.Error("Run has not returned a minute after Stop")
		}
		close(release)
	})
}

// When the loop panics, the calls whose events wait behind the present one are settled, too.
//
// Guarantees: G-0001.11
func TestPanicSettlesCallsBehindIt(t *testing.T) {
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
				t.Error("a call has not returned")
			}
		}
		if unsent != 2 {
			t.Errorf("%d calls ended as not executed, want 2", unsent)
		}
	})
}

// If a link panics while effects are performed, each call still ends as the core has decided.
//
// Guarantees: G-0001.11
func TestPanicBetweenTwoSettlements(t *testing.T) {
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
			t.Errorf("Run: %v, want a PanicError with \"send\"", err)
		}
	})
}
