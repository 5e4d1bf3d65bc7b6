package conn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
)

// opener is a transport that gives out dead links.
type opener struct{}

func (opener) Open(context.Context) (transport.Link, error) { return deadLink{}, nil }

// faulty makes the core panic with a call settled, and its caller not told yet.
type faulty struct{ plain }

func (faulty) Cancel(int64, error) []byte { panic("cancel") }

// Guarantees: G-0001.11
func TestPanicInTheCoreLosesNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(opener{}, Options{})
		l := newLoop(c)
		l.core.dialect = faulty{}
		ended := make(chan error, 1)
		woken := make(chan struct{}, 1)
		defer l.attach(context.Background(), func() { woken <- struct{}{} }, nil)()
		go func() { ended <- l.run(woken) }()
		synctest.Wait()
		results := make(chan error, 2)
		ctx, cancel := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				_, err := c.Call(ctx, Request{Method: "m"})
				results <- err
			}()
		}
		synctest.Wait()
		cancel()
		for range 2 {
			var failed *CallError
			if err := <-results; !errors.As(err, &failed) || failed.Delivery != Unknown {
				t.Errorf("got %v", err)
			}
		}
		var panicked *PanicError
		if err := <-ended; !errors.As(err, &panicked) {
			t.Errorf("run: %v", err)
		}
	})
}

// closable counts how often it was closed.
type closable struct {
	deadLink
	closes int
}

func (c *closable) Close(time.Duration) error { c.closes++; return nil }

// What lies in the mailbox when a loop ends is seen to: a link is closed, a
// caller is told.
//
// Guarantees: G-0001.11, G-0009.2, G-0009.4
func TestNothingIsLeftInTheMailbox(t *testing.T) {
	for name, end := range map[string]func(*loop){
		"regular end": func(l *loop) { l.close() },
		"panic":       func(l *loop) { l.abandon(errors.New("panic"), l.conn.mailbox.end()) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(New(opener{}, Options{}))
			l.step(&event{kind: stopAsked})
			link, caller := &closable{}, &call{done: make(chan outcome, 1)}
			l.conn.mailbox.begin(func() {}, nil)
			l.conn.mailbox.post(event{kind: linkOpened, link: link})
			l.conn.mailbox.post(event{kind: callMade, out: outboundFrame{id: 1, call: caller}})
			end(l)
			if link.closes != 1 {
				t.Errorf("the link was closed %d times", link.closes)
			}
			select {
			case o := <-caller.done:
				if o.delivery != NotSent {
					t.Errorf("the caller was told: %s", o.delivery)
				}
			default:
				t.Error("the caller was not told")
			}
		})
	}
}
