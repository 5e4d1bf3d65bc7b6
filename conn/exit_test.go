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
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
)

// Code that ends its goroutine, as t.FailNow does, misses its event and no other.
//
// Guarantees: G-0024.1
func TestHookThatEndsItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		told := 0
		s := &script{}
		r := start(conn.New(opens(s), conn.Options{Hooks: telemetry.Hooks{Transition: func(telemetry.Transition) {
			if told++; told == 1 {
				runtime.Goexit()
			}
		}}}))
		synctest.Wait()
		r.Stop()
		<-r.ended
		if told < 3 {
			t.Errorf("told %d", told)
		}
	})
}

// Guarantees: G-0003.10
func TestHandlerThatEndsItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := start(conn.Accept(s, conn.Options{Handler: goexiting{}}))
		synctest.Wait()
		s.say(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		synctest.Wait()
		if len(s.frames()) != 1 {
			t.Errorf("answered %v, depths %+v", s.frames(), r.Stats().Depths)
		}
		r.Stop()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
}

// goexiting ends every goroutine that it is called on.
type goexiting struct{}

func (goexiting) ServeRequest(context.Context, *conn.Incoming) (json.RawMessage, error) {
	runtime.Goexit()
	return nil, nil
}

func (goexiting) ServeNotification(context.Context, *conn.Incoming) { runtime.Goexit() }

// exiting ends every goroutine that sends.
type exiting struct{ *script }

func (exiting) Send(transport.Outbound) error {
	runtime.Goexit()
	return nil
}

// What ends the goroutine of a turn is a panic of the loop: every caller has been
// told, and an initiator can be run again.
//
// Guarantees: G-0001.11
func TestLinkThatEndsTheGoroutineOfTheLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		links := []transport.Link{exiting{&script{}}, &script{}}
		c := conn.New(opening(func(context.Context) (transport.Link, error) {
			link := links[0]
			links = links[1:]
			return link, nil
		}), conn.Options{})
		r := start(c)
		synctest.Wait()
		cause := new(conn.CallError)
		if err := <-r.calling(t.Context(), conn.Request{Method: "m"}); !errors.As(err, &cause) || cause.Cause != conn.LinkLost {
			t.Errorf("Call: %v", err)
		}
		panicked := new(conn.PanicError)
		if err := <-r.ended; !errors.As(err, &panicked) || !strings.Contains(string(panicked.Stack), "exiting.Send") {
			t.Errorf("Run: %v", err)
		}
		again := start(c)
		if err := c.AwaitReady(t.Context()); err != nil || c.Status().Epoch != 2 {
			t.Errorf("run again it is %v in epoch %d", err, c.Status().Epoch)
		}
		c.Stop()
		if err := <-again.ended; err != nil {
			t.Error(err)
		}
	})
}

// Guarantees: G-0001.11
func TestLinkThatEndsTheGoroutineOfAStartedConn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		c, ended := started(t, t.Context(), exiting{s}, conn.Options{Handler: goexiting{}})
		s.say(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		if err := <-ended; !errors.As(err, new(*conn.PanicError)) || !isOver(c) {
			t.Errorf("over was told %v", err)
		}
	})
}

func isOver(c *conn.Conn) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// deserter ends the goroutine that opens, shakes hands over, or closes its link,
// the first time.
type deserter struct {
	*script
	during string
	times  int
}

func (d *deserter) desert(during string) {
	if d.during == during {
		if d.times++; d.times == 1 {
			runtime.Goexit()
		}
	}
}

func (d *deserter) Open(context.Context) (transport.Link, error) {
	d.desert("open")
	return d, nil
}

func (d *deserter) Handshake(context.Context, *conn.Incarnation) error {
	d.desert("handshake")
	return nil
}

func (d *deserter) Close(grace time.Duration) error {
	d.desert("close")
	return d.script.Close(grace)
}

// A step that ends its goroutine has failed, like one that panics.
//
// Guarantees: G-0001.11
func TestStepThatEndsItsGoroutine(t *testing.T) {
	for during, want := range map[string]conn.ReasonKind{"open": conn.OpenFailed, "handshake": conn.HandshakeFailed, "close": ""} {
		bubble(t, func(t *testing.T) {
			d := &deserter{script: &script{}, during: during}
			r := start(conn.New(d, conn.Options{Handshake: d.Handshake}))
			if err := r.AwaitReady(t.Context()); err != nil || r.Status().LastFailure.Kind != want {
				t.Errorf("%s: %v, last failure %q", during, err, r.Status().LastFailure)
			}
			r.Stop()
			began := time.Now()
			if err := <-r.ended; (err != nil) != (during == "close") || time.Since(began) > 0 {
				t.Errorf("%s: Run returned %v after %v", during, err, time.Since(began))
			}
		})
	}
}

type deafening struct{ *script }

func (deafening) Heard() (uint64, bool) { panic("heard") }

// Guarantees: G-0009.4
func TestLinkWhoseHeardPanicsIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := start(conn.New(opens(deafening{s}), conn.Options{}))
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
		pass(time.Minute)
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
func TestPanicTellsWhatWasTakenWithIt(t *testing.T) {
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
