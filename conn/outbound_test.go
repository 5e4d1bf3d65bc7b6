package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// deaf is a peer that never reads: it gives no credit.
type deaf struct{}

func (deaf) Receive(transport.Inbound)                    {}
func (deaf) StreamOpened(transport.Stream, transport.Tag) {}
func (deaf) StreamLost(transport.StreamLoss)              {}
func (deaf) Writable()                                    {}
func (deaf) Failed(transport.Failure)                     {}
func (deaf) Ended()                                       {}
func (deaf) Lost(transport.Loss)                          {}

// reachDeaf runs a Conn to such a peer, over a link that queues so many frames.
func reachDeaf(t *testing.T, queue int, o conn.Options) run {
	t.Helper()
	r := start(conn.New(inmem.New(func(link transport.Link) { link.Bind(deaf{}) }, inmem.Options{QueueFrames: queue}), o))
	synctest.Wait()
	return r
}

// A returned call is its error, and when it came.
type returned struct {
	err error
	at  time.Time
}

// crowd makes so many calls at once, each in a context of its own.
func (r run) crowd(callers int, patience time.Duration) <-chan returned {
	all := make(chan returned, callers)
	for range callers {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_, err := r.Call(ctx, conn.Request{Method: "m"})
			all <- returned{err, time.Now()}
		}()
	}
	synctest.Wait()
	return all
}

// Those whose frames the link has taken wait until their context ends, and
// nobody waits longer.
//
// Guarantees: G-0003.1, G-0003.2
func TestCallEndsWithItsContextThoughThePeerNeverReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const queue, callers, patience = 4, 40, 200 * time.Millisecond
		r := reachDeaf(t, queue, conn.Options{SendSlots: 8})
		began := time.Now()
		all := r.crowd(callers, patience)
		inTime := 0
		for range callers {
			c := <-all
			if took := c.at.Sub(began); took > patience {
				t.Errorf("it took %v: %v", took, c.err)
			}
			if conn.NotExecuted(c.err) {
				continue
			}
			wantEnd(t, c.err, conn.TimedOut, conn.Unknown)
			if inTime++; c.at.Sub(began) != patience {
				t.Errorf("a call that was taken ended after %v", c.at.Sub(began))
			}
		}
		if inTime != queue {
			t.Errorf("%d calls were taken", inTime)
		}
		r.Stop()
		<-r.ended
	})
}

// Stop ends those who are queued at the link, behind it, and those who wait to
// be queued, in one moment.
//
// Guarantees: G-0009.2
func TestStopSettlesEveryoneThoughThePeerNeverReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const queue, callers = 4, 40
		r := reachDeaf(t, queue, conn.Options{SendSlots: 8})
		all := r.crowd(callers, time.Hour)
		began := time.Now()
		r.Stop()
		left := 0
		for range callers {
			c := <-all
			if took := c.at.Sub(began); took != 0 {
				t.Errorf("it took %v: %v", took, c.err)
			}
			if !conn.NotExecuted(c.err) {
				wantEnd(t, c.err, conn.ShutDown, conn.Unknown)
				left++
			}
		}
		if left != queue {
			t.Errorf("%d calls are said to have left", left)
		}
		<-r.ended
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("Run returned after %v", took)
		}
	})
}

// A frame that the link had no room for is not kept once it is sent.
func TestReturnedFrameIsForgotten(t *testing.T) {
	var first atomic.Bool
	first.Store(true)
	var seen weak.Pointer[byte]
	s := &script{onSend: func(s *script, o transport.Outbound) error {
		if first.Swap(false) {
			seen = weak.Make(&o.Frame[0])
			return transport.ErrBusy
		}
		return answered.befall(s, o)
	}}
	r := start(conn.New(opens(s), conn.Options{}))
	if err := r.AwaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Call(t.Context(), conn.Request{Method: "m", Params: make([]byte, 1<<16)}); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.sent = nil
	s.mu.Unlock()
	for range 3 { // later calls, on a link with room
		if _, err := r.Call(t.Context(), conn.Request{Method: "m"}); err != nil {
			t.Fatal(err)
		}
	}
	s.mu.Lock()
	s.sent = nil
	s.mu.Unlock()
	runtime.GC()
	runtime.GC()
	if seen.Value() != nil {
		t.Error("the frame is still held")
	}
	r.Stop()
	<-r.ended
}

// A reply that waits behind a call that fails is sent before a drain is over.
//
// Guarantees: G-0007.5, G-0009.6
func TestReplyBehindAFailureIsSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		full := false
		s := &script{}
		s.onSend = func(_ *script, o transport.Outbound) error {
			switch {
			case full:
				return transport.ErrBusy
			case o.Tag != 0:
				return errors.New("too large")
			}
			return nil
		}
		release := make(chan struct{})
		r := start(conn.Accept(s, conn.Options{Handler: answersLater{release}}))
		synctest.Wait()
		s.deliver(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		synctest.Wait()
		full = true
		call := r.calling(t.Context(), conn.Request{Method: "big"})
		closed := make(chan error, 1)
		go func() { closed <- r.Close(context.Background()) }()
		close(release)
		synctest.Wait()
		full = false
		s.receiver.Writable()
		synctest.Wait()
		<-call
		<-closed
		<-r.ended
		if len(s.frames()) != 1 {
			t.Errorf("sent %q: the reply is lost", s.frames())
		}
	})
}

// answersLater serves every request at once, then.
type answersLater struct{ release chan struct{} }

func (w answersLater) ServeRequest(context.Context, *conn.Incoming) (json.RawMessage, error) {
	<-w.release
	return json.RawMessage(`{}`), nil
}
func (answersLater) ServeNotification(context.Context, *conn.Incoming) {}

// A link that has room again is offered the whole queue in one go, if it takes all;
// and nothing behind a frame that it refuses in between.
//
// Guarantees: G-0007.2, G-0007.7
func TestALinkWithRoomTakesTheQueueAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const callers = 40
		room := 0
		s := &script{onSend: func(*script, transport.Outbound) error {
			if room == 0 {
				return transport.ErrBusy
			}
			room--
			return nil
		}}
		c := scripted(t, s, conn.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		for i := range callers {
			c.calling(ctx, conn.Request{Method: strconv.Itoa(i)})
		}
		for _, more := range []int{2, 0, 1, 5, callers} { // of 2 and 4 that are offered it takes some, then all
			room = more
			s.receiver.Writable()
			synctest.Wait()
		}
		sent := s.outbound()
		if len(sent) != callers {
			t.Fatalf("%d of %d frames were taken without waiting", len(sent), callers)
		}
		for i, o := range sent {
			if o.Route.Method != strconv.Itoa(i) {
				t.Errorf("frame %d is of %s", i, o.Route.Method)
			}
		}
		cancel()
		c.Stop()
		<-c.ended
	})
}
