package conn_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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
