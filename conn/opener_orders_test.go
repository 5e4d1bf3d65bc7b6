package conn_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
)

// An openingRun is a Conn whose first attempt is left to Open, and the steps that may happen to it.
type openingRun struct {
	t         *testing.T
	conn      *conn.Conn
	served    sync.WaitGroup
	callers   sync.WaitGroup
	interrupt context.CancelCauseFunc // interrupts the last run
	begun     int                     // runs that have begun
	ended     atomic.Int32            // how many of them have ended

	transport.Transport
	mu   sync.Mutex
	last transport.Link // nil before the first
}

// Traits implements transport.Describer.
func (l *openingRun) Traits() transport.Traits { return transport.Traits{OpensAtOnce: true} }

func (l *openingRun) Open(ctx context.Context) (transport.Link, error) {
	link, err := l.Transport.Open(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.last = link
	}
	return link, err
}

// lose closes the last link.
func (l *openingRun) lose() {
	l.mu.Lock()
	link := l.last
	l.mu.Unlock()
	if link == nil {
		return
	}
	if err := link.Close(0); err != nil {
		l.t.Error(err)
	}
}

func newOpeningRun(t *testing.T) *openingRun {
	l := &openingRun{t: t}
	l.Transport = echoes(&l.served)
	l.conn = conn.New(l, conn.Options{Handshake: func(ctx context.Context, i *conn.Incarnation) error {
		_, err := i.Call(ctx, conn.Request{Method: "echo"})
		return err
	}})
	return l
}

// run begins a run, unless the last one has not ended.
func (l *openingRun) run(start func(context.Context, func(error)) error) {
	ctx, interrupt := context.WithCancelCause(context.Background())
	if err := start(ctx, func(error) { l.ended.Add(1) }); err != nil {
		interrupt(err)
		return
	}
	l.begun++
	l.interrupt = interrupt
}

// steps returns what may happen, in any order. Steps that may block run on their own goroutines.
func (l *openingRun) steps() map[byte]func() {
	later := func(f func()) func() { return func() { l.callers.Go(f) } }
	return map[byte]func(){
		'b': func() { l.conn.Control().LeaveOpening(); l.run(l.conn.Control().Begin) },
		's': func() { l.run(l.conn.Start) },
		'o': later(l.conn.Control().Open),
		'x': l.conn.Stop,
		'c': later(func() { _ = l.conn.Close(context.Background()) }),
		'i': func() {
			if l.interrupt != nil {
				l.interrupt(conn.ErrInterrupted)
			}
		},
		'l': l.lose,
		't': func() { <-time.NewTimer(time.Minute).C },
	}
}

// After any sequence of four steps, with or without time to settle between them: a Conn that still runs
// becomes ready, one that was stopped ends, the end of each run is reported once, and no goroutine is
// left.
//
// Guarantees: G-0054.1, G-0054.4
func TestOpeningInEveryOrder(t *testing.T) {
	const kinds, length = "bsoxcilt", 4
	total := 1
	for range length {
		total *= len(kinds)
	}
	for _, settles := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			for number := range total {
				var order strings.Builder
				for n := number; order.Len() < length; n /= len(kinds) {
					order.WriteByte(kinds[n%len(kinds)])
				}
				if fault := runOrder(t, order.String(), settles); fault != "" {
					t.Fatalf("%s, settles %v: %s", order.String(), settles, fault)
				}
			}
		})
	}
}

// runOrder takes the steps of one order, and then ends the Conn. It returns what is wrong.
func runOrder(t *testing.T, order string, settles bool) (fault string) {
	l := newOpeningRun(t)
	steps, asked := l.steps(), false
	for _, kind := range []byte(order) {
		if asked = asked || kind == 'x' || kind == 'c'; settles {
			synctest.Wait()
		}
		steps[kind]()
	}
	<-time.NewTimer(time.Minute).C // more than InitTimeout and a backoff
	synctest.Wait()
	state := l.conn.State()
	switch runs := l.begun > int(l.ended.Load()); {
	case asked && runs:
		return fmt.Sprintf("it was stopped and is %s, want its runs ended", state)
	case runs && state != conn.Ready:
		return fmt.Sprintf("it runs and is %s (%v), want ready", state, l.conn.Status().LastFailure)
	case runs:
		l.conn.Stop()
	default:
		l.conn.Stop()
		if err := l.conn.Run(context.Background()); err != nil && state != conn.Closing {
			return fmt.Sprintf("the last Run returned %v, want no error", err)
		}
	}
	<-l.conn.Done()
	l.callers.Wait()
	l.served.Wait()
	synctest.Wait()
	if ended := int(l.ended.Load()); ended != l.begun {
		return fmt.Sprintf("%d of %d runs have ended, want all", ended, l.begun)
	}
	return ""
}
