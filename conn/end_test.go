package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport"
)

// errRestart is the cause with which a supervisor interrupts a Conn to restart it.
var errRestart = fmt.Errorf("the strategy restarts it: %w", conn.ErrInterrupted)

// interruptible runs a Conn. It also returns a function that interrupts its Run, waits for its end
// and returns its error.
func interruptible(t *testing.T, c *conn.Conn) (r run, interrupt func() error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	r = run{c, make(chan error, 1)}
	go func() { r.ended <- c.Run(ctx) }()
	synctest.Wait()
	return r, func() error { cancel(errRestart); return <-r.ended }
}

func wantInterrupted(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, conn.ErrInterrupted) || !errors.Is(err, errRestart) {
		t.Errorf("Run: %v, want ErrInterrupted and errRestart", err)
	}
}

// When Run is interrupted, calls end as lost, with their delivery. The Conn can run again, and
// continues with its ids and epochs.
//
// Guarantees: G-0001.15
func TestInterruptedConnRunsAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		began, links := time.Now(), []*script{}
		c := conn.New(opening(func(context.Context) (transport.Link, error) {
			links = append(links, &script{onSend: func(_ *script, o transport.Outbound) error {
				if strings.Contains(string(o.Frame), "waits") {
					return transport.ErrBusy
				}
				return nil
			}})
			return links[len(links)-1], nil
		}), conn.Options{})
		r, interrupt := interruptible(t, c)
		sent, unsent := r.calling(t.Context(), conn.Request{Method: "m"}), r.calling(t.Context(), conn.Request{Method: "waits"})
		awaits := r.calling(t.Context(), conn.Request{Method: "later", Retries: 1, Repeatable: true})
		wantInterrupted(t, interrupt())
		for call, delivery := range map[<-chan error]conn.Delivery{sent: conn.Unknown, unsent: conn.NotSent} {
			err, why := <-call, conn.Reason{}
			wantEnd(t, err, conn.LinkLost, delivery)
			if !errors.As(err, &why) || why.Kind != conn.Interrupted || !errors.Is(err, errRestart) {
				t.Errorf("a call ended with %v, want Interrupted and errRestart", err)
			}
		}
		status := c.Status()
		if status.State != conn.Starting || status.Reason.Kind != conn.Interrupted || status.LastFailure.Kind != conn.Interrupted {
			t.Errorf("%s, %v, last failure %v; want starting, Interrupted twice",
				status.State, status.Reason, status.LastFailure)
		}
		if links[0].closed() != 1 || !time.Now().Equal(began) {
			t.Errorf("the link was closed %d times after %v, want once at once", links[0].closed(), time.Since(began))
		}
		if _, err := c.Call(t.Context(), conn.Request{Method: "m"}); !errors.Is(err, conn.ErrNotRunning) {
			t.Errorf("a call between two Runs: %v, want ErrNotRunning", err)
		}
		ready := make(chan error, 1)
		go func() { ready <- c.AwaitReady(t.Context()) }()
		advance(time.Hour)
		if len(ready) != 0 {
			t.Errorf("AwaitReady returned %v, want it to wait for the next Run", <-ready)
		}
		again := start(c)
		if err := <-ready; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if status := c.Status(); status.State != conn.Ready || status.Epoch != 2 || len(links) != 2 {
			t.Errorf("%s in epoch %d with %d links, want ready in epoch 2 with 2", status.State, status.Epoch, len(links))
		}
		links[1].deliver(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		synctest.Wait()
		if frames := links[1].frames(); len(frames) != 1 || !strings.Contains(frames[0], `"id":5,`) {
			t.Errorf("the second link got %q, want one request with id 5", frames)
		}
		links[1].deliver(`{"jsonrpc":"2.0","id":5,"result":{}}`)
		if err := <-awaits; err != nil {
			t.Error(err)
		}
		if stats := c.Stats(); stats.Late != 1 || stats.Calls != stats.Ended() {
			t.Errorf("got %+v, want one late answer and all calls ended", stats)
		}
		again.Stop()
		if err := <-again.ended; err != nil {
			t.Error(err)
		}
	})
}

// A Conn can be interrupted in every state. It then returns to Starting, and its next Run begins
// another incarnation.
//
// Guarantees: G-0001.15
func TestConnIsInterruptedInAnyState(t *testing.T) {
	refused := func(context.Context) (transport.Link, error) { return nil, errors.New("refused") }
	late := &script{}
	for name, c := range map[string]struct {
		open      opening
		handshake func(context.Context, *conn.Incarnation) error
		state     conn.State
	}{
		"starting":               {func(ctx context.Context) (transport.Link, error) { return nil, wait.Sleep(ctx, time.Hour) }, nil, conn.Starting},
		"starting, link is late": {func(ctx context.Context) (transport.Link, error) { <-ctx.Done(); return late, nil }, nil, conn.Starting},
		"initializing":           {fresh, hanging, conn.Initializing},
		"ready":                  {fresh, nil, conn.Ready},
		"backoff":                {refused, nil, conn.Backoff},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				began, c := time.Now(), c
				handle := conn.New(c.open, conn.Options{Handshake: c.handshake})
				_, interrupt := interruptible(t, handle)
				if before := handle.State(); before != c.state {
					t.Fatalf("the state is %s, want %s", before, c.state)
				}
				failed := handle.Status().LastFailure
				wantInterrupted(t, interrupt())
				status := handle.Status()
				if status.State != conn.Starting || status.Reason.Kind != conn.Interrupted || !time.Now().Equal(began) {
					t.Errorf("%s, %v, after %v; want starting, Interrupted, at once",
						status.State, status.Reason, time.Since(began))
				}
				if failed.Kind != "" && status.LastFailure != failed {
					t.Errorf("the last failure is %v, want %v", status.LastFailure, failed)
				}
				again := start(handle)
				synctest.Wait()
				if status := handle.Status(); status.Epoch != 2 || status.State != c.state {
					t.Errorf("after the second Run: %s in epoch %d, want %s in epoch 2",
						status.State, status.Epoch, c.state)
				}
				again.Stop()
				if err := <-again.ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
	if late.closed() == 0 {
		t.Error("the link that opened late was not closed")
	}
}

// The hooks report an interruption as a transition and, once the Conn is ready again, as a gap.
//
// Guarantees: G-0001.15, G-0024.4, G-0024.5
func TestInterruptionIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := new(eventLog)
		c := conn.New(opening(fresh), conn.Options{Tuning: conn.Tuning{Hooks: s.hooks()}})
		r, interrupt := interruptible(t, c)
		result := r.calling(t.Context(), conn.Request{Method: "m"})
		wantInterrupted(t, interrupt())
		wantEnd(t, <-result, conn.LinkLost, conn.Unknown)
		advance(time.Minute)
		again := start(c)
		synctest.Wait()
		again.Stop()
		<-again.ended
		want := []string{
			"1 starting → initializing: link opened",
			"1 initializing → ready: handshaken",
			"1 ready → starting: interrupted",
			"2 starting → initializing: link opened",
			"2 initializing → ready: handshaken",
			"gap from 1 to 2 of 1m0s, 1 calls, interrupted, interrupted: the strategy restarts it: conn: interrupted",
			"2 ready → closing: stopped",
		}
		if !slices.Equal(s.conn, want) {
			t.Errorf("reported %q, want %q", s.conn, want)
		}
	})
}

// An interruption cancels the handlers' contexts with its cause. A handler that does not return
// within StopGrace is named in a StuckError, and no longer waited for.
//
// Guarantees: G-0001.15, G-0009.2
func TestInterruptionEndsHandlers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		causes, release := make(chan error, 1), make(chan struct{})
		s := new(script)
		c := conn.New(opens(s), conn.Options{
			Handler: handler{
				"returns": func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
					<-ctx.Done()
					causes <- context.Cause(ctx)
					return nil, nil
				},
				"hangs": func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-release; return nil, nil },
			},
			Tuning: conn.Tuning{
				StopGrace: time.Second,
			},
		})
		_, interrupt := interruptible(t, c)
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"returns"}`)
		s.deliver(`{"jsonrpc":"2.0","id":2,"method":"hangs"}`)
		synctest.Wait()
		began := time.Now()
		err := interrupt()
		wantInterrupted(t, err)
		var stuck *conn.StuckError
		if !errors.As(err, &stuck) || !slices.Equal(stuck.Tasks, []string{"hangs"}) || time.Since(began) > 2*time.Second {
			t.Errorf("after %v: %v; want a StuckError with \"hangs\" after 2s at most", time.Since(began), err)
		}
		if cause := <-causes; !errors.Is(cause, errRestart) {
			t.Errorf("the handler's context ended with %v, want errRestart", cause)
		}
		close(release)
	})
}

// An interruption does not wait for a link that does not close, which a StuckError names. The error
// of a link that fails to close is part of Run's error.
//
// Guarantees: G-0001.7, G-0001.15
func TestInterruptionDoesNotWaitForALinkThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		closes := make(chan struct{})
		c := conn.New(opens(&script{onClose: func() error { <-closes; return nil }}), conn.Options{Tuning: conn.Tuning{StopGrace: time.Second}})
		_, interrupt := interruptible(t, c)
		began, stuck := time.Now(), new(conn.StuckError)
		err := interrupt()
		wantInterrupted(t, err)
		if !errors.As(err, &stuck) || !slices.Equal(stuck.Tasks, []string{"closing the link"}) || time.Since(began) != 2*time.Second {
			t.Errorf("after %v: %v; want a StuckError with \"closing the link\" after 2s", time.Since(began), err)
		}
		close(closes)
	})
	bubble(t, func(t *testing.T) {
		c := conn.New(opens(&script{onClose: func() error { return io.ErrClosedPipe }}), conn.Options{})
		_, interrupt := interruptible(t, c)
		err := interrupt()
		wantInterrupted(t, err)
		if !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("Run: %v, want ErrClosedPipe", err)
		}
	})
}

// An acceptor that is interrupted stops for good, because it has no transport to open another link.
//
// Guarantees: G-0001.15
func TestInterruptedAcceptorStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, interrupt := interruptible(t, conn.Accept(&script{}, conn.Options{}))
		result := r.calling(t.Context(), conn.Request{Method: "m"})
		if err := interrupt(); err != nil {
			t.Errorf("Run: %v, want no error", err)
		}
		wantEnd(t, <-result, conn.ShutDown, conn.Unknown)
		wantClosed(t, r.Conn, conn.Stopped)
	})
}

func wantClosed(t *testing.T, c *conn.Conn, why conn.ReasonKind) {
	t.Helper()
	<-c.Done()
	if status := c.Status(); status.State != conn.Closing || status.Reason.Kind != why {
		t.Errorf("%s: %v, want closing: %s", status.State, status.Reason, why)
	}
	if err := c.Run(t.Context()); !errors.Is(err, conn.ErrNotRunning) {
		t.Errorf("another Run: %v, want ErrNotRunning", err)
	}
}

// If Stop or Close comes before the interruption, or at once, the Conn closes. If Stop comes after
// it, the next Run closes the Conn without a link.
//
// Guarantees: G-0001.15
func TestStopAndInterruption(t *testing.T) {
	for name, stops := range map[string]func(c *conn.Conn, interrupt func() error) error{
		"at once": func(c *conn.Conn, interrupt func() error) error { c.Stop(); return interrupt() },
		"before":  func(c *conn.Conn, interrupt func() error) error { c.Stop(); synctest.Wait(); return interrupt() },
		"during Close": func(c *conn.Conn, interrupt func() error) error {
			go c.Close(context.Background())
			synctest.Wait()
			return interrupt()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r, interrupt := interruptible(t, conn.New(opening(fresh), conn.Options{}))
				result := r.calling(t.Context(), conn.Request{Method: "m"}) // a drain waits for it
				if err := stops(r.Conn, interrupt); err != nil {
					t.Errorf("Run: %v, want no error", err)
				}
				wantEnd(t, <-result, conn.ShutDown, conn.Unknown)
				wantClosed(t, r.Conn, conn.Stopped)
			})
		})
	}
	t.Run("after", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			opened := 0
			c := conn.New(opening(func(context.Context) (transport.Link, error) { opened++; return new(script), nil }), conn.Options{})
			_, interrupt := interruptible(t, c)
			wantInterrupted(t, interrupt())
			c.Stop()
			if err := c.Run(t.Context()); err != nil || opened != 1 {
				t.Errorf("the second Run: %v, opened %d times; want no error, once", err, opened)
			}
			wantClosed(t, c, conn.Stopped)
		})
	})
}

// If a Conn is already closing when it is interrupted, it closes with its first reason.
//
// Guarantees: G-0001.15
func TestInterruptionWhileClosing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{onClose: func() error { return wait.Sleep(context.Background(), 50*time.Millisecond) }}
		r, interrupt := interruptible(t, conn.New(opens(s), conn.Options{Tuning: conn.Tuning{Final: func(conn.Reason) bool { return true }}}))
		s.lose(transport.Loss{Reason: io.EOF})
		synctest.Wait()
		if state := r.State(); state != conn.Closing {
			t.Fatalf("the state is %s, want closing", state)
		}
		if err := interrupt(); !errors.Is(err, io.EOF) || errors.Is(err, conn.ErrInterrupted) {
			t.Errorf("Run: %v, want EOF without ErrInterrupted", err)
		}
		wantClosed(t, r.Conn, conn.LinkBroken)
	})
}

// Close during an interruption returns ErrNotRunning. The next Run closes the Conn without a link.
//
// Guarantees: G-0001.15, G-0009.1
func TestCloseDuringAnInterruption(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opened := 0
		c := conn.New(opening(func(context.Context) (transport.Link, error) {
			opened++
			return &script{onClose: func() error { return wait.Sleep(context.Background(), 50*time.Millisecond) }}, nil
		}), conn.Options{})
		_, interrupt := interruptible(t, c)
		closing, interrupted := make(chan error, 1), make(chan error, 1)
		go func() { interrupted <- interrupt() }()
		synctest.Wait()
		go func() { closing <- c.Close(context.Background()) }()
		wantInterrupted(t, <-interrupted)
		if err := <-closing; !errors.Is(err, conn.ErrNotRunning) {
			t.Errorf("Close: %v, want ErrNotRunning", err)
		}
		if err := c.Run(t.Context()); err != nil || opened != 1 {
			t.Errorf("the second Run: %v, opened %d times; want no error, once", err, opened)
		}
		wantClosed(t, c, conn.Stopped)
	})
}

// A Conn that was begun with Start can be interrupted and started again, like one that runs.
//
// Guarantees: G-0001.13, G-0001.15
func TestStartedConnIsInterrupted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c, ended := conn.New(opening(fresh), conn.Options{}), make(chan error, 1)
		onEnd := func(err error) { ended <- err }
		if err := c.Start(ctx, onEnd); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		result := run{c, ended}.calling(t.Context(), conn.Request{Method: "m"})
		cancel(errRestart)
		wantInterrupted(t, <-ended)
		wantEnd(t, <-result, conn.LinkLost, conn.Unknown)
		if err := c.Start(t.Context(), onEnd); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if status := c.Status(); status.State != conn.Ready || status.Epoch != 2 {
			t.Errorf("%s in epoch %d, want ready in epoch 2", status.State, status.Epoch)
		}
		c.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// If Run's context ends with another cause than ErrInterrupted, the Conn stops for good.
//
// Guarantees: G-0001.15
func TestAnotherCauseStops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		r := run{conn.New(opening(fresh), conn.Options{}), make(chan error, 1)}
		go func() { r.ended <- r.Run(ctx) }()
		synctest.Wait()
		cancel(errors.New("interrupted"))
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		wantClosed(t, r.Conn, conn.Stopped)
	})
}

// A second Run is refused, and does not affect the first one, even if its own context has ended.
//
// Guarantees: G-0001.15
func TestRefusedRunDoesNotStopTheFirst(t *testing.T) {
	for name, cause := range map[string]error{"stop": errors.New("enough"), "interruption": errRestart} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := conn.New(opening(func(context.Context) (transport.Link, error) { return &script{}, nil }), conn.Options{})
				r := start(c)
				synctest.Wait()
				endedContext, cancel := context.WithCancelCause(t.Context())
				cancel(cause)
				if err := c.Run(endedContext); !errors.Is(err, conn.ErrRunning) {
					t.Errorf("the second Run: %v, want ErrRunning", err)
				}
				synctest.Wait()
				if status := c.Status(); status.State != conn.Ready || len(r.ended) != 0 {
					t.Errorf("the first Run is in %s: %v; want ready", status.State, status.Reason)
				}
				c.Stop()
				<-r.ended
			})
		})
	}
}

// A Run whose context has ended opens no link.
func TestRunWithAnEndedContextOpensNothing(t *testing.T) {
	for range 20 { // whether Run or its context is first is random
		bubble(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			opened := 0
			c := conn.New(opening(func(context.Context) (transport.Link, error) { opened++; return &script{}, nil }), conn.Options{})
			if err := c.Run(ctx); err != nil || opened != 0 {
				t.Errorf("Run: %v, %d links were opened; want no error and none", err, opened)
			}
		})
	}
}

// A Conn whose Start gets a context that has ended opens no link.
func TestStartWithAnEndedContextOpensNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opened := 0
		c := conn.New(opening(func(context.Context) (transport.Link, error) { opened++; return &script{}, nil }), conn.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ended := make(chan error, 1)
		if err := c.Start(ctx, func(err error) { ended <- err }); err != nil {
			t.Fatal(err)
		}
		<-ended
		if opened != 0 {
			t.Errorf("%d links were opened, want none", opened)
		}
	})
}

// A process is a transport that starts one.
type process struct{ opening }

func (process) Traits() transport.Traits { return transport.Traits{StartsProcess: true} }

// The next Run of an interrupted Conn says until its first link why the last one has ended, and knows whether the peer
// has ever sent a message: a process that has gets no more time to install itself.
//
// Guarantees: G-0001.15
func TestRunAfterAnInterruption(t *testing.T) {
	for name, within := range map[string]time.Duration{"heard": 10 * time.Second, "silent": time.Minute} {
		bubble(t, func(t *testing.T) {
			first, opened := new(script), 0
			c := conn.New(process{func(ctx context.Context) (transport.Link, error) {
				if opened++; opened == 1 {
					return first, nil
				}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}}, conn.Options{})
			_, interrupt := interruptible(t, c)
			if name == "heard" {
				first.deliver(`{"jsonrpc":"2.0","method":"n"}`)
				synctest.Wait()
			}
			wantInterrupted(t, interrupt())
			again := start(c)
			synctest.Wait()
			if status := c.Status(); status.State != conn.Starting || status.Reason.Kind != conn.Interrupted || status.Epoch != 2 {
				t.Errorf("%s: %s (%v) in epoch %d, want starting, interrupted, in epoch 2", name, status.State, status.Reason, status.Epoch)
			}
			advance(within - 1)
			if state := c.State(); state != conn.Starting {
				t.Errorf("%s: %s just before %v have passed, want starting", name, state, within)
			}
			if advance(1); c.State() != conn.Backoff {
				t.Errorf("%s: %s after %v, want backoff", name, c.State(), within)
			}
			again.Stop()
			<-again.ended
		})
	}
}
