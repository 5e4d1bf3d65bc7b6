package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

var flood = flag.Int("flood", 50_000, "how many notifications the flood tests send")

// A flooder is a peer that sends notifications as fast as they are taken, and
// answers whatever it is asked.
type flooder struct {
	link     transport.Link
	asked    chan []byte
	writable chan struct{}
	lost     chan struct{}
}

// credit is how many calls it takes at once.
const credit = 100

func newFlooder(link transport.Link) *flooder {
	f := &flooder{link: link, asked: make(chan []byte, credit), writable: make(chan struct{}, 1), lost: make(chan struct{})}
	link.Bind(f)
	link.Grant(transport.Main, credit)
	return f
}

func (f *flooder) Receive(in transport.Inbound)                 { f.asked <- in.Frame } // there is room for what has credit
func (f *flooder) Lost(transport.Loss)                          { close(f.lost) }
func (f *flooder) StreamOpened(transport.Stream, transport.Tag) {}
func (f *flooder) StreamLost(transport.StreamLoss)              {}
func (f *flooder) Failed(transport.Failure)                     {}
func (f *flooder) Ended()                                       {}

func (f *flooder) Writable() {
	select {
	case f.writable <- struct{}{}:
	default: // it was told already
	}
}

// run sends so many notifications, and then only answers.
func (f *flooder) run(count int) {
	for i := range count {
		f.answerAll()
		f.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"n","params":[%d]}`, i))
	}
	for {
		select {
		case frame := <-f.asked:
			f.answer(frame)
		case <-f.lost:
			return
		}
	}
}

func (f *flooder) answerAll() {
	for {
		select {
		case frame := <-f.asked:
			f.answer(frame)
		default:
			return
		}
	}
}

func (f *flooder) answer(frame []byte) {
	f.link.Grant(transport.Main, 1)
	var request struct{ ID int64 }
	if json.Unmarshal(frame, &request) == nil && request.ID != 0 {
		f.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{}}`, request.ID))
	}
}

func (f *flooder) send(frame []byte) {
	for errors.Is(f.link.Send(transport.Outbound{Frame: frame}), transport.ErrBusy) {
		select {
		case <-f.writable:
		case <-f.lost:
			return
		}
	}
}

// A flooded Conn has a handler that takes a millisecond for each notification,
// and keeps the books of what it has handled.
type flooded struct {
	run
	handled  int
	last     int
	disorder int
	base     uint64
}

func newFlooded(t *testing.T, o conn.Options) *flooded {
	f := &flooded{last: -1, base: heap()}
	o.Handler = handler{"n": f.handle}
	peers := inmem.New(func(link transport.Link) { go newFlooder(link).run(*flood) }, inmem.Options{})
	f.run = start(conn.New(peers, o))
	return f
}

func (f *flooded) handle(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
	var number [1]int
	if json.Unmarshal(in.Params, &number) != nil || number[0] <= f.last {
		f.disorder++
	}
	f.last = number[0]
	f.handled++
	timer := time.NewTimer(time.Millisecond)
	<-timer.C
	return nil, nil
}

// heap is what is in use, garbage apart.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// floodBound is what a flood may hold: 1,024 notifications of some 300 bytes,
// all included, and as much again for everything else.
const floodBound = 1 << 20

func (f *flooded) checkHeap(t *testing.T) {
	if grown := int64(heap()) - int64(f.base); grown > floodBound {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}

// finish lets everything be handled, and checks the books.
func (f *flooded) finish(t *testing.T) conn.Stats {
	for f.Stats().Depths.Notifications > 0 {
		pass(time.Second)
	}
	stats := f.Stats()
	if f.handled+int(stats.Shed) != *flood || f.disorder > 0 {
		t.Errorf("%d were handled and %d shed, of %d; %d out of order", f.handled, stats.Shed, *flood, f.disorder)
	}
	f.Stop()
	<-f.ended
	return stats
}

// With nobody waiting, a peer that floods is slowed down to what the handler
// takes, and nothing is shed.
//
// Guarantees: G-0004.7, G-0004.9
func TestFloodIsPausedWhileNobodyWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFlooded(t, conn.Options{})
		for range 10 {
			pass(time.Duration(*flood/10) * time.Millisecond)
			f.checkHeap(t)
		}
		stats := f.finish(t)
		if stats.Shed != 0 || stats.Stalls == 0 {
			t.Errorf("%d were shed, in %d stalls", stats.Shed, stats.Stalls)
		}
		t.Logf("%d notifications, %d stalls", f.handled, stats.Stalls)
	})
}

// With calls in flight the link is read, and what the handler cannot take is
// shed and counted.
//
// Guarantees: G-0004.5, G-0004.8, G-0015.1
func TestCallsAreAnsweredDuringAFlood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFlooded(t, conn.Options{})
		synctest.Wait()
		calls := 0
		for f.Stats().Depths.Notifications > 0 {
			began := time.Now()
			if _, err := f.Call(t.Context(), conn.Request{Method: "m"}); err != nil || time.Since(began) > 20*time.Millisecond {
				t.Fatalf("call %d, after %v: %v", calls, time.Since(began), err)
			}
			if calls++; calls%1000 == 0 {
				f.checkHeap(t)
			}
			pass(time.Millisecond)
		}
		stats := f.finish(t)
		if stats.Shed == 0 || stats.Settled[conn.Answered][conn.Sent] != uint64(calls) {
			t.Errorf("%d were shed; of %d calls %v", stats.Shed, calls, stats.Settled)
		}
		t.Logf("%d notifications handled, %d shed, %d calls answered", f.handled, stats.Shed, calls)
	})
}
