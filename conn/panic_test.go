package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
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

// An error whose methods panic, as those of a nil *transport.StartError do, is
// an error still.
func TestErrorsThatPanic(t *testing.T) {
	var typed *transport.StartError
	for name, c := range map[string]struct {
		open, shake, loss error
		want              conn.ReasonKind
	}{
		"open":      {open: typed, want: conn.OpenFailed},
		"handshake": {shake: typed, want: conn.HandshakeFailed},
		"loss":      {loss: typed, want: conn.LinkBroken},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &script{}
				r := start(conn.New(opening(func(context.Context) (transport.Link, error) { return s, c.open }),
					conn.Options{Handshake: func(context.Context, *conn.Incarnation) error { return c.shake }}))
				synctest.Wait()
				if c.loss != nil {
					s.lose(transport.Loss{Reason: c.loss})
					synctest.Wait()
				}
				if status := r.Status(); status.State != conn.Backoff || status.Reason.Kind != c.want || !errors.As(status.Reason, new(*conn.PanicError)) {
					t.Errorf("%s: %v", status.State, status.Reason)
				}
				r.Stop()
				if err := <-r.ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A handler that returns such an error has panicked, and is answered for.
func TestHandlersErrorThatPanics(t *testing.T) {
	var fault *jsonrpc.Error
	var start *transport.StartError
	for name, returned := range map[string]error{"fault": fault, "other": start} {
		bubble(t, func(t *testing.T) {
			s, told := &script{}, panics{}
			serve := handler{"m": func(context.Context, *conn.Incoming) (json.RawMessage, error) { return nil, returned }}
			r := scripted(t, s, conn.Options{Handler: serve, Hooks: told.hooks()})
			s.say(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
			synctest.Wait()
			if got := s.frames(); len(got) != 1 || !strings.Contains(got[0], "internal error") || told["m"] == nil {
				t.Errorf("%s: the peer got %q, told %v", name, got, told)
			}
			r.Stop()
			<-r.ended
		})
	}
}

// Hooks.Panic is told of every panic, and what ends its goroutine is one.
//
// Guarantees: G-0024.4
func TestHooksAreToldOfEveryPanic(t *testing.T) {
	var typed *transport.StartError
	exits := handler{"m": func(context.Context, *conn.Incoming) (json.RawMessage, error) { runtime.Goexit(); return nil, nil }}
	for name, o := range map[string]struct {
		conn.Options
		open opening
		do   func(*script)
	}{
		"a handler exits":   {Options: conn.Options{Handler: exits}, do: func(s *script) { s.say(`{"jsonrpc":"2.0","id":1,"method":"m"}`) }},
		"a handshake exits": {Options: conn.Options{Handshake: func(context.Context, *conn.Incarnation) error { runtime.Goexit(); return nil }}},
		"Open exits":        {open: func(context.Context) (transport.Link, error) { runtime.Goexit(); return nil, nil }},
		"a loss panics":     {do: func(s *script) { s.lose(transport.Loss{Reason: typed}) }},
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

// An error whose methods panic costs itself a call, and nobody else theirs.
//
// Guarantees: G-0001.11
func TestErrorOfSendThatPanicsCostsNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var typed *transport.StartError
		sends := 0
		s := &script{onSend: func(*script, transport.Outbound) error {
			if sends++; sends == 2 {
				return typed
			}
			return nil
		}}
		r := scripted(t, s, conn.Options{})
		first := r.calling(t.Context(), conn.Request{Method: "innocent"})
		r.calling(t.Context(), conn.Request{Method: "refused"})
		select {
		case err := <-first:
			t.Errorf("another's call ended with: %v", err)
		default:
		}
		r.Stop()
		if err := <-r.ended; errors.As(err, new(*conn.PanicError)) {
			t.Errorf("Run ended with %v", err)
		}
	})
}
