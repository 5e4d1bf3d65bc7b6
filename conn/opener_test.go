package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// runsWithin reports whether the calling goroutine is inside of a method of a Conn.
func runsWithin(method string) bool {
	stack := string(debug.Stack())
	return strings.Contains(stack, "conn.(*Conn)."+method+"(") || strings.Contains(stack, "conn.Control."+method+"(")
}

// An openerAtOnce is a transport that opens links at once. It keeps the links, and where they were opened.
type openerAtOnce struct {
	transport.Transport
	within []bool // Open ran within Control.Open
	links  []transport.Link
}

func (o *openerAtOnce) Traits() transport.Traits { return transport.Traits{OpensAtOnce: true} }

func (o *openerAtOnce) Open(ctx context.Context) (transport.Link, error) {
	link, err := o.Transport.Open(ctx)
	o.within, o.links = append(o.within, runsWithin("Open")), append(o.links, link)
	return link, err
}

// echoes returns a transport to acceptors that echo.
func echoes(served *sync.WaitGroup) transport.Transport {
	return inmem.New(func(link transport.Link) {
		startAccepted(served, conn.Accept(link, conn.Options{Handler: handler{"echo": echo}}))
	}, inmem.Options{})
}

// After LeaveOpening, the first attempt is made by Open on its own goroutine, and later ones are not.
//
// Guarantees: G-0054.1
func TestOpenMakesTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served sync.WaitGroup
		opener := &openerAtOnce{Transport: echoes(&served)}
		var handshakes []bool
		c := conn.New(opener, conn.Options{Handshake: func(ctx context.Context, i *conn.Incarnation) error {
			handshakes = append(handshakes, runsWithin("Open"))
			_, err := i.Call(ctx, conn.Request{Method: "echo"})
			return err
		}})
		c.Control().LeaveOpening()
		if err := c.Start(t.Context(), func(error) {}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(opener.within) > 0 {
			t.Fatal("a link was opened before Open was called")
		}
		c.Control().Open() // another goroutine may still have the loop, the one that has brought the answer
		if err := c.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		opener.links[0].Close(0)
		synctest.Wait()
		c.Wake()
		synctest.Wait()
		if c.State() != conn.Ready || !equal(opener.within, true, false) || !equal(handshakes, true, false) {
			t.Fatalf("%s, opened within Open: %v, handshakes within Open: %v; want ready, true and false each",
				c.State(), opener.within, handshakes)
		}
		c.Stop()
		served.Wait()
	})
}

func equal(got []bool, want ...bool) bool {
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

// If Open is not called after LeaveOpening, a stopped Conn still ends, and a running one makes the
// next attempt itself after InitTimeout.
//
// Guarantees: G-0054.1
func TestConnDoesNotWaitForOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served sync.WaitGroup
		begin := func() *conn.Conn {
			c := conn.New(echoes(&served), conn.Options{})
			c.Control().LeaveOpening()
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
			t.Fatal("the stopped Conn has not ended")
		}
		stopped.Control().Open() // has no effect
		late := begin()
		if err := late.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		if why := late.Status().LastFailure; why.Kind != conn.InitTimedOut {
			t.Fatalf("the first attempt failed with %v, want InitTimedOut", why)
		}
		late.Stop()
		served.Wait()
	})
}

// Stop ends a call of Open that waits for the handshake.
//
// Guarantees: G-0054.1
func TestStopEndsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := conn.New(inmem.New(func(transport.Link) {}, inmem.Options{}), conn.Options{
			Handshake: func(ctx context.Context, _ *conn.Incarnation) error { <-ctx.Done(); return context.Cause(ctx) },
		})
		c.Control().LeaveOpening()
		if err := c.Start(t.Context(), func(error) {}); err != nil {
			t.Fatal(err)
		}
		opened := make(chan struct{})
		go func() { c.Control().Open(); close(opened) }()
		synctest.Wait()
		c.Stop()
		<-opened
		<-c.Done()
	})
}

// An immediate dialect marks every message as Immediate.
type immediate struct{ conn.Dialect }

func (immediate) Classify(jsonrpc.Message) conn.Class   { return conn.Class{Immediate: true} }
func (immediate) Cancel(jsonrpc.ID, error) conn.Message { return conn.Message{} }
func (immediate) Probe() conn.Message                   { return conn.Message{} }
func (immediate) Batches() bool                         { return false }

// The handlers of small Immediate messages run in the turn of the loop, and those of large ones do not.
// A panic there is answered with an error.
//
// Guarantees: G-0054.2
func TestImmediateMessagesAreServedInTheLoop(t *testing.T) {
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
			t.Errorf("a request of %d bytes: served in the loop %v, want %v", len(params), !want, want)
		}
	}
	var fault *jsonrpc.Error
	if _, err := client.Call(t.Context(), conn.Request{Method: "panic"}); !errors.As(err, &fault) || fault.Code != jsonrpc.CodeInternalError {
		t.Fatalf("got %v, want an internal error", err)
	}
	if err := client.Notify(t.Context(), "note", nil); err != nil || !<-at {
		t.Fatalf("notify: %v; want it handled in the loop", err)
	}
}

// An Immediate notification waits for those that came before it.
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
	if _, err := client.Call(t.Context(), conn.Request{Method: "echo"}); err != nil { // now the notification has come in
		t.Fatal(err)
	}
	close(end)
	if first := <-order; first != "long" {
		t.Fatalf("%s was handled first, want long", first)
	}
	<-order
}

// After Begin, Close ends the loop on its own goroutine. After Start, it does not.
//
// Guarantees: G-0054.4
func TestLoopEndsOnTheGoroutineOfClose(t *testing.T) {
	for name, begin := range map[string]func(*conn.Conn, func(error)) error{
		"Close": func(c *conn.Conn, onEnd func(error)) error { return c.Control().Begin(context.Background(), onEnd) },
		"":      func(c *conn.Conn, onEnd func(error)) error { return c.Start(context.Background(), onEnd) },
	} {
		var served sync.WaitGroup
		c := conn.New(echoes(&served), conn.Options{})
		c.Control().LeaveOpening()
		ended := make(chan bool, 1)
		if err := begin(c, func(error) { ended <- runsWithin("Close") }); err != nil {
			t.Fatal(err)
		}
		c.Control().Open()
		if err := c.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-ended; got != (name == "Close") {
			t.Errorf("the end was reported within Close: %v, want %v", got, name == "Close")
		}
		served.Wait()
	}
}

// If a background function still runs, the loop does not end on the goroutine of Close, which does
// not wait for that function.
//
// Guarantees: G-0054.4
func TestCloseDoesNotEndAConnWithABackgroundFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served sync.WaitGroup
		c := conn.New(echoes(&served), conn.Options{})
		c.Control().LeaveOpening()
		ended := make(chan bool, 1)
		if err := c.Control().Begin(context.Background(), func(error) { ended <- runsWithin("Close") }); err != nil {
			t.Fatal(err)
		}
		c.Control().Open()
		held := make(chan struct{})
		c.Control().Go("held", func(context.Context) { <-held })
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if <-ended {
			t.Error("the loop ended on the goroutine of Close")
		}
		close(held)
		served.Wait()
	})
}

// After Begin, an idle acceptor in memory ends on the goroutine that closes the initiator.
//
// Guarantees: G-0054.4
func TestAcceptorEndsOnTheGoroutineThatClosesTheLink(t *testing.T) {
	for name, want := range map[string]bool{"idle": true, "busy": false} {
		synctest.Test(t, func(t *testing.T) {
			ended, held := make(chan bool, 1), make(chan struct{})
			peer := conn.New(inmem.New(func(link transport.Link) {
				accepted := conn.Accept(link, conn.Options{})
				if err := accepted.Control().Begin(context.Background(), func(error) { ended <- runsWithin("Close") }); err != nil {
					t.Error(err)
				}
				if name == "busy" {
					accepted.Control().Go("held", func(context.Context) { <-held })
				}
			}, inmem.Options{}), conn.Options{})
			peer.Control().LeaveOpening()
			if err := peer.Control().Begin(context.Background(), func(error) {}); err != nil {
				t.Fatal(err)
			}
			peer.Control().Open()
			if err := peer.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := <-ended; got != want {
				t.Errorf("%s: the end was reported within Close of the initiator: %v, want %v", name, got, want)
			}
			close(held)
		})
	}
}

// If Open is called before Start, the Conn connects by itself when it starts.
//
// Guarantees: G-0054.1
func TestOpenBeforeStart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var served sync.WaitGroup
		c := conn.New(&openerAtOnce{Transport: echoes(&served)}, conn.Options{})
		c.Control().LeaveOpening()
		c.Control().Open()
		ended := make(chan error, 1)
		if err := c.Start(context.Background(), func(err error) { ended <- err }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if state := c.State(); state != conn.Ready {
			t.Errorf("got the state %s, want %s", state, conn.Ready)
		}
		c.Stop()
		<-ended
		served.Wait()
	})
}

// A keepingHandler keeps the context of its request.
type keepingHandler struct{ kept chan context.Context }

func (h keepingHandler) ServeRequest(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
	h.kept <- ctx
	return json.RawMessage("{}"), nil
}

func (keepingHandler) ServeNotification(context.Context, *conn.Incoming) {}

// The context of a handler, which a program may keep, does not keep the link in memory.
func TestContextOfAHandlerKeepsNoLink(t *testing.T) {
	type namedLink struct{ transport.Link } // so that the pipe does not refer to it
	handler := keepingHandler{make(chan context.Context, 1)}
	var opened weak.Pointer[namedLink]
	func() {
		accepted, theirs := make(chan error, 1), make(chan *conn.Conn, 1)
		over := inmem.New(func(link transport.Link) {
			c := conn.Accept(link, conn.Options{})
			theirs <- c
			go func() { accepted <- c.Run(context.Background()) }()
		}, inmem.Options{})
		r := start(conn.New(opening(func(ctx context.Context) (transport.Link, error) {
			link, err := over.Open(ctx)
			named := &namedLink{link}
			opened = weak.Make(named)
			return named, err
		}), conn.Options{Handler: handler}))
		server := <-theirs
		if err := server.AwaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Call(t.Context(), conn.Request{Method: "m"}); err != nil {
			t.Fatal(err)
		}
		r.Stop()
		<-r.ended
		<-accepted
	}()
	kept := <-handler.kept
	for range 1000 { // until a goroutine that has returned is gone
		if runtime.GC(); opened.Value() == nil {
			break
		}
		runtime.Gosched()
	}
	if opened.Value() != nil {
		t.Error("the link is in memory after the Conn has ended")
	}
	runtime.KeepAlive(kept)
}

// LeaveOpening holds for one Start: after an interruption the Conn connects by itself again.
//
// Guarantees: G-0054.1
func TestLeaveOpeningHoldsForOneStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served sync.WaitGroup
		opener := &openerAtOnce{Transport: echoes(&served)}
		c := conn.New(opener, conn.Options{})
		c.Control().LeaveOpening()
		for run := range 2 {
			ended := make(chan error, 1)
			if err := c.Start(t.Context(), func(err error) { ended <- err }); err != nil {
				t.Fatal(err)
			}
			if run == 0 {
				c.Control().Open()
			}
			if err := c.AwaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.Control().Cancel(conn.ErrInterrupted)
			if err := <-ended; !errors.Is(err, conn.ErrInterrupted) {
				t.Errorf("the Conn ended with %v, want ErrInterrupted", err)
			}
		}
		if !equal(opener.within, true, false) {
			t.Errorf("opened within Open: %v, want true and false", opener.within)
		}
		c.Stop()
		served.Wait()
	})
}
