package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// runsWithin reports whether the calling goroutine runs within a method of the Conn.
func runsWithin(method string) bool {
	return strings.Contains(string(debug.Stack()), "conn.(*Conn)."+method+"(")
}

// A willing transport opens links at once, and tells where.
type willing struct {
	transport.Transport
	within []bool // Open ran within Conn.Open
	links  []transport.Link
}

func (o *willing) OpensAtOnce() bool { return true }

func (o *willing) Open(ctx context.Context) (transport.Link, error) {
	link, err := o.Transport.Open(ctx)
	o.within, o.links = append(o.within, runsWithin("Open")), append(o.links, link)
	return link, err
}

// echoes is a transport to acceptors that echo.
func echoes(served *sync.WaitGroup) transport.Transport {
	return inmem.New(func(link transport.Link) {
		startAccepted(served, conn.Accept(link, conn.Options{Handler: handler{"echo": echo}}))
	}, inmem.Options{})
}

// Guarantees: G-0054.1
func TestOpenMakesTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served sync.WaitGroup
		over := &willing{Transport: echoes(&served)}
		var handshakes []bool
		c := conn.New(over, conn.Options{Handshake: func(ctx context.Context, i *conn.Incarnation) error {
			handshakes = append(handshakes, runsWithin("Open"))
			_, err := i.Call(ctx, conn.Request{Method: "echo"})
			return err
		}})
		c.LeaveOpening()
		if err := c.Start(t.Context(), func(error) {}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(over.within) > 0 {
			t.Fatal("it was opened before Open")
		}
		c.Open() // the loop may still be on the goroutine that has brought the answer
		if err := c.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		over.links[0].Close(0)
		synctest.Wait()
		c.Wake()
		synctest.Wait()
		if c.State() != conn.Ready || !same(over.within, true, false) || !same(handshakes, true, false) {
			t.Fatalf("%s, opened %v, handshakes %v", c.State(), over.within, handshakes)
		}
		c.Stop()
		served.Wait()
	})
}

func same(got []bool, want ...bool) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if got[i] != want[i] {
			return false
		}
	}
	return true
}

// Guarantees: G-0054.1
func TestConnectDoesNotWaitForALeftOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served sync.WaitGroup
		begin := func() *conn.Conn {
			c := conn.New(echoes(&served), conn.Options{})
			c.LeaveOpening()
			if err := c.Start(t.Context(), func(err error) {
				if err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			return c
		}
		stopped := begin()
		stopped.Stop()
		synctest.Wait()
		select {
		case <-stopped.Done():
		default:
			t.Fatal("it waits for what nobody does")
		}
		stopped.Open() // does nothing
		late := begin()
		if err := late.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		if why := late.Status().LastFailure; why.Kind != conn.InitTimedOut {
			t.Fatalf("the first attempt failed for %v", why)
		}
		late.Stop()
		served.Wait()
	})
}

// Guarantees: G-0054.1
func TestStopEndsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := conn.New(inmem.New(func(transport.Link) {}, inmem.Options{}), conn.Options{
			Handshake: func(ctx context.Context, _ *conn.Incarnation) error { <-ctx.Done(); return context.Cause(ctx) },
		})
		c.LeaveOpening()
		if err := c.Start(t.Context(), func(error) {}); err != nil {
			t.Fatal(err)
		}
		opened := make(chan struct{})
		go func() { c.Open(); close(opened) }()
		synctest.Wait()
		c.Stop()
		<-opened
		<-c.Done()
	})
}

// An immediate dialect says that every message is served without waiting.
type immediate struct{ conn.Dialect }

func (immediate) Classify(*jsonrpc.Message) conn.Class { return conn.Class{Immediate: true} }
func (immediate) Cancel(int64, error) conn.Message     { return conn.Message{} }
func (immediate) Probe() conn.Message                  { return conn.Message{} }
func (immediate) Batches() bool                        { return false }

// Guarantees: G-0054.2
func TestImmediateMessagesAreServedInTheTurn(t *testing.T) {
	at := make(chan bool, 1)
	within := func() { at <- strings.Contains(string(debug.Stack()), "conn.(*loop).step(") }
	h := handler{
		"where": func(context.Context, *conn.Incoming) (json.RawMessage, error) {
			within()
			return json.RawMessage(`"there"`), nil
		},
		"panic": func(context.Context, *conn.Incoming) (json.RawMessage, error) { panic("broken") },
		"note":  func(context.Context, *conn.Incoming) (json.RawMessage, error) { within(); return nil, nil },
	}
	client := serveInMemoryWith(t, startAccepted, h, conn.Options{Dialect: immediate{}})
	for params, want := range map[string]bool{`{}`: true, `["` + strings.Repeat("x", 5<<10) + `"]`: false} {
		if got, err := client.Call(t.Context(), conn.Request{Method: "where", Params: json.RawMessage(params)}); err != nil || string(got) != `"there"` {
			t.Fatal(string(got), err)
		}
		if <-at != want {
			t.Errorf("a request of %d bytes is served in the turn: %v", len(params), !want)
		}
	}
	var fault *jsonrpc.Error
	if _, err := client.Call(t.Context(), conn.Request{Method: "panic"}); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInternalError {
		t.Fatal(err)
	}
	if err := client.Notify(t.Context(), "note", nil); err != nil || !<-at {
		t.Fatal("a notification is not handled in the turn", err)
	}
}

// A notification is not handled before another that came before it.
//
// Guarantees: G-0054.2
func TestImmediateNotificationsKeepTheirOrder(t *testing.T) {
	begun, end, order := make(chan struct{}), make(chan struct{}), make(chan string, 2)
	h := handler{
		"long": func(context.Context, *conn.Incoming) (json.RawMessage, error) {
			close(begun)
			<-end
			order <- "long"
			return nil, nil
		},
		"short": func(context.Context, *conn.Incoming) (json.RawMessage, error) { order <- "short"; return nil, nil },
		"echo":  echo,
	}
	client := serveInMemoryWith(t, startAccepted, h, conn.Options{Dialect: immediate{}})
	if err := client.Notify(t.Context(), "long", json.RawMessage(`["`+strings.Repeat("x", 5<<10)+`"]`)); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := client.Notify(t.Context(), "short", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Call(t.Context(), conn.Request{Method: "echo"}); err != nil { // so that it has come
		t.Fatal(err)
	}
	close(end)
	if first := <-order; first != "long" {
		t.Fatalf("%s was handled first", first)
	}
	<-order
}

// Guarantees: G-0054.4
func TestLoopEndsOnTheGoroutineOfClose(t *testing.T) {
	for name, begin := range map[string]func(*conn.Conn, func(error)) error{
		"Close": func(c *conn.Conn, over func(error)) error { return c.Begin(context.Background(), over) },
		"":      func(c *conn.Conn, over func(error)) error { return c.Start(context.Background(), over) },
	} {
		var served sync.WaitGroup
		c := conn.New(echoes(&served), conn.Options{})
		c.LeaveOpening()
		over := make(chan bool, 1)
		if err := begin(c, func(error) { over <- runsWithin("Close") }); err != nil {
			t.Fatal(err)
		}
		c.Open()
		if err := c.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-over; got != (name == "Close") {
			t.Errorf("over was called within Close: %v", got)
		}
		served.Wait()
	}
}

// Close does not end a Conn for which code of the program's still runs: its context may
// end before that code does.
//
// Guarantees: G-0054.4
func TestCloseDoesNotEndWhatStillRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served sync.WaitGroup
		c := conn.New(echoes(&served), conn.Options{})
		c.LeaveOpening()
		over := make(chan bool, 1)
		if err := c.Begin(context.Background(), func(error) { over <- runsWithin("Close") }); err != nil {
			t.Fatal(err)
		}
		c.Open()
		held := make(chan struct{})
		c.Go("held", func(context.Context) { <-held })
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if <-over {
			t.Error("it ended on the goroutine of Close")
		}
		close(held)
		served.Wait()
	})
}

// An acceptor in memory that was begun with Begin ends where the initiator is closed.
//
// Guarantees: G-0054.4
func TestAcceptorEndsOnTheGoroutineThatClosesTheLink(t *testing.T) {
	for name, want := range map[string]bool{"idle": true, "busy": false} {
		synctest.Test(t, func(t *testing.T) {
			over, held := make(chan bool, 1), make(chan struct{})
			peer := conn.New(inmem.New(func(link transport.Link) {
				accepted := conn.Accept(link, conn.Options{})
				if err := accepted.Begin(context.Background(), func(error) { over <- runsWithin("Close") }); err != nil {
					t.Error(err)
				}
				if name == "busy" {
					accepted.Go("held", func(context.Context) { <-held })
				}
			}, inmem.Options{}), conn.Options{})
			peer.LeaveOpening()
			if err := peer.Begin(context.Background(), func(error) {}); err != nil {
				t.Fatal(err)
			}
			peer.Open()
			if err := peer.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := <-over; got != want {
				t.Errorf("%s: over was called within Close of the initiator: %v", name, got)
			}
			close(held)
		})
	}
}
