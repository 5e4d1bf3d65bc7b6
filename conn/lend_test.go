package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// A borrower is a link that does its work on the goroutines of those who wait.
type borrower struct {
	script
	work    func(o transport.Outbound) // for each frame that has a lender
	lenders chan transport.Lender      // of all of them
}

func (b *borrower) Borrows() bool { return true }

func (b *borrower) Send(o transport.Outbound) error {
	if err := b.script.Send(o); err != nil || o.Lender == nil {
		return err
	}
	if !o.Lender.Lend(func() { b.work(o) }) {
		return errors.New("nobody lends a goroutine")
	}
	b.lenders <- o.Lender
	return nil
}

func borrowing(t *testing.T, work func(b *borrower, o transport.Outbound)) (*borrower, *conn.Conn) {
	t.Helper()
	b := &borrower{lenders: make(chan transport.Lender, 10)}
	b.work = func(o transport.Outbound) { work(b, o) }
	c := conn.New(opens(b), conn.Options{Dialect: dialect{}})
	start(c)
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := c.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b, c
}

func answer(o transport.Outbound) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, o.Tag)
}

// Who waits for an answer works for the link, once for each call, and not for another.
//
// Guarantees: G-0059.1, G-0059.2
func TestCallersWorkForTheirLink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		working := 0
		b, c := borrowing(t, func(b *borrower, o transport.Outbound) {
			working++ // without a lock: on the goroutine that reads it
			b.say(answer(o))
		})
		var before transport.Lender
		for calls := 1; calls <= 3; calls++ {
			if _, err := c.Call(t.Context(), conn.Request{Method: "work"}); err != nil || working != calls {
				t.Fatalf("%v, and %d calls have worked of %d", err, working, calls)
			}
			if before = <-b.lenders; before.Lend(func() { t.Error("worked without a call") }) {
				t.Error("the goroutine of a call that is over was lent")
			}
		}
	})
}

// The context of a caller who works for the link ends the call nevertheless.
//
// Guarantees: G-0059.3
func TestCallerWhoWorksLeavesWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		_, c := borrowing(t, func(b *borrower, _ transport.Outbound) {
			cancel(why)
			pass(0)
			if sent := b.frames(); len(sent) != 2 {
				t.Errorf("the link was told nothing: %q", sent)
			}
		})
		_, err := c.Call(ctx, conn.Request{Method: "work"})
		var failed *conn.CallError
		if !errors.As(err, &failed) || failed.Cause != conn.Cancelled || !errors.Is(err, why) {
			t.Fatalf("%v", err)
		}
	})
}

// A call lends nothing if it has something else to do, or stays open.
//
// Guarantees: G-0059.1
func TestCallsThatLendNothing(t *testing.T) {
	for name, r := range map[string]conn.Request{
		"progress":  {Method: "work", OnProgress: func(json.RawMessage) {}},
		"streaming": {Method: "work", Streaming: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b, c := borrowing(t, func(*borrower, transport.Outbound) {})
				called := make(chan error, 1)
				go func() {
					_, err := c.Call(t.Context(), r)
					called <- err
				}()
				pass(0)
				sent := b.outbound()
				if len(sent) != 1 || sent[0].Lender != nil {
					t.Fatalf("%+v", sent)
				}
				b.say(answer(sent[0]))
				if err := <-called; err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
