package conn_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// In a sheddable dialect, a newer "changed" notification replaces an older one, and a "log" may be dropped.
type sheddable struct{ dialect }

func (w sheddable) Classify(m jsonrpc.Message) conn.Class {
	switch m.Method {
	case "changed":
		return conn.Class{Key: m.Method}
	case "log":
		return conn.Class{Droppable: true}
	default:
		return w.dialect.Classify(m)
	}
}

// Dropped notifications are reported and counted, the least important first. The others are handled in
// order.
//
// Guarantees: G-0006.1, G-0006.2, G-0006.3, G-0006.4
func TestShedNotificationsAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, release := &script{}, make(chan struct{})
		var handled, shed []string
		note := func(_ context.Context, in *conn.Incoming) (json.RawMessage, error) {
			<-release
			handled = append(handled, in.Method+string(in.Params))
			return nil, nil
		}
		r := scripted(t, s, conn.Options{
			Dialect: sheddable{},
			Handler: handler{"changed": note, "log": note, "other": note},
			Tuning: conn.Tuning{
				MaxNotifications: 4,
				Hooks:            telemetry.Hooks{Shed: func(e telemetry.Shed) { shed = append(shed, e.Method) }},
			},
		})
		for i, method := range []string{"other", "other", "log", "changed", "log", "changed", "other", "other", "other"} {
			s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","method":%q,"params":[%d]}`, method, i))
			synctest.Wait()
		}
		if want := []string{"changed", "log", "log", "other"}; !slices.Equal(shed, want) || r.Stats().Shed != 4 {
			t.Errorf("shed %q, want %q; %d are counted, want 4", shed, want, r.Stats().Shed)
		}
		close(release)
		synctest.Wait()
		if want := []string{"other[0]", "other[1]", "changed[5]", "other[6]", "other[7]"}; !slices.Equal(handled, want) {
			t.Errorf("handled %q, want %q", handled, want)
		}
		r.Stop()
		<-r.ended
	})
}

// Progress that newer progress replaces, while OnProgress still runs, is counted as dropped.
//
// Guarantees: G-0006.4
func TestReplacedProgressIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, release, shed := &script{}, make(chan struct{}), ""
		var got []string
		r := scripted(t, s, conn.Options{Dialect: dialect{}, Tuning: conn.Tuning{Hooks: telemetry.Hooks{Shed: func(e telemetry.Shed) { shed += e.Method + " " }}}})
		result := r.calling(t.Context(), conn.Request{Method: "m", OnProgress: func(p json.RawMessage) { <-release; got = append(got, string(p)) }})
		for i := range 4 {
			s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","method":"progress","params":[1,%d]}`, i))
			synctest.Wait()
		}
		close(release)
		synctest.Wait()
		s.deliver(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		if err := <-result; err != nil || !slices.Equal(got, []string{"[1,0]", "[1,3]"}) {
			t.Errorf("got %q, error %v; want the first and the last progress", got, err)
		}
		synctest.Wait()
		if shed != "progress progress " || r.Stats().Shed != 2 {
			t.Errorf("shed %q, %d are counted; want progress twice", shed, r.Stats().Shed)
		}
		r.Stop()
		<-r.ended
	})
}

// The handler of a notification may make calls: the link is read meanwhile.
//
// Guarantees: G-0015.2
func TestNotificationHandlerMayCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var r run
		s, answered := &script{}, 0
		call := func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
			if _, err := r.Call(ctx, conn.Request{Method: "m"}); err == nil {
				answered++
			}
			return nil, nil
		}
		r = scripted(t, s, conn.Options{Handler: handler{"n": call}, Tuning: conn.Tuning{MaxNotifications: 4}})
		for id := range 5 { // so many would pause the reading if no call were pending
			s.deliver(`{"jsonrpc":"2.0","method":"n"}`)
			synctest.Wait()
			if id == 0 {
				continue
			}
			s.deliver(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, id))
			synctest.Wait()
		}
		if answered != 4 {
			t.Errorf("%d calls were answered, want 4", answered)
		}
		r.Stop()
		<-r.ended
	})
}

// A panic of a notification's handler is reported. Later notifications are handled.
//
// Guarantees: G-0015.3
func TestPanicOfANotificationHandlerAffectsNoOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, handled, where := &script{}, 0, ""
		r := scripted(t, s, conn.Options{
			Handler: handler{
				"bad":  func(context.Context, *conn.Incoming) (json.RawMessage, error) { panic("bad") },
				"good": func(context.Context, *conn.Incoming) (json.RawMessage, error) { handled++; return nil, nil },
			},
			Tuning: conn.Tuning{
				Hooks: telemetry.Hooks{Panic: func(e telemetry.Panic) { where = e.Where }},
			},
		})
		s.deliver(`{"jsonrpc":"2.0","method":"bad"}`)
		s.deliver(`{"jsonrpc":"2.0","method":"good"}`)
		synctest.Wait()
		if handled != 1 || where != "bad" || r.State() != conn.Ready {
			t.Errorf("%d were handled, panic in %q, state %s; want 1, \"bad\", ready", handled, where, r.State())
		}
		r.Stop()
		<-r.ended
	})
}

// When all notifications are handled, no goroutine is left for them.
//
// Guarantees: G-0015.4
func TestIdleConnHasNoGoroutineForNotifications(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &script{}
		r := scripted(t, s, conn.Options{})
		before := goroutines()
		for range 100 {
			s.deliver(`{"jsonrpc":"2.0","method":"n"}`)
		}
		advance(time.Second)
		if now := goroutines(); now > before {
			t.Errorf("%d goroutines, want %d as before", now, before)
		}
		r.Stop()
		<-r.ended
	})
}

// A slowGrant is a link whose Grant blocks the loop while hold is set.
type slowGrant struct {
	*script
	hold atomic.Pointer[chan struct{}] // nil: Grant does not block
}

func (s *slowGrant) Grant(stream transport.Stream, frames int) {
	s.script.Grant(stream, frames)
	if hold := s.hold.Load(); hold != nil {
		<-*hold
	}
}

// If many notifications wait again by the time the loop steps the event that few do, reading is paused.
//
// Guarantees: G-0004.7
func TestOutdatedEaseDoesNotEndACrowd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const note = `{"jsonrpc":"2.0","method":"n"}`
		s, next := &slowGrant{script: &script{}}, make(chan struct{})
		take := func(context.Context, *conn.Incoming) (json.RawMessage, error) { <-next; return nil, nil }
		r := start(conn.New(opens(s), conn.Options{Dialect: dialect{}, Handler: handler{"n": take}, Tuning: conn.Tuning{MaxNotifications: 8}}))
		synctest.Wait()
		result := r.calling(t.Context(), conn.Request{Method: "m"}) // so that the link is not paused
		for range 5 {
			s.deliver(note)
			synctest.Wait()
		}
		hold := make(chan struct{})
		s.hold.Store(&hold)
		s.deliver(`{"jsonrpc":"2.0","method":"none"}`)
		synctest.Wait() // the loop is in Grant, and 5 notifications wait
		s.deliver("[" + note + "," + note + "," + note + "," + note + "]")
		for range 4 { // few wait now; the event of that comes behind the batch
			next <- struct{}{}
			synctest.Wait()
		}
		s.hold.Store(nil)
		close(hold)
		synctest.Wait()
		s.deliver(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if stats := r.Stats(); stats.Depths.Notifications < 4 || stats.Stalls == 0 {
			t.Errorf("%d of 8 notifications wait, %d stalls; want a stall, since no call is pending",
				stats.Depths.Notifications, stats.Stalls)
		}
		close(next)
		r.Stop()
		<-r.ended
	})
}

// Notifications that wait count with the size of their whole frame, since they keep it in memory.
//
// Guarantees: G-0004.6
func TestFramesOfNotificationsAreBounded(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for name, frame := range map[string]string{
		"a long method":    `{"jsonrpc":"2.0","method":"n` + large + `"}`,
		"a foreign member": `{"jsonrpc":"2.0","method":"n","params":{},"junk":"` + large + `"}`,
		"a batch":          `[{"jsonrpc":"2.0","method":"n","params":{}},{"jsonrpc":"2.0","method":"x","params":"` + large + `"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s, release := &script{}, make(chan struct{})
				r := scripted(t, s, conn.Options{Dialect: dialect{}, Handler: stuckHandler{release}, Tuning: conn.Tuning{MaxHeld: 1 << 20, MaxNotifications: 200}})
				before := heap()
				for range 50 {
					s.deliver(string([]byte(frame)))
					synctest.Wait()
				}
				if grown := int64(heap()) - int64(before); grown > 8<<20 {
					t.Errorf("the heap has grown by %d bytes with MaxHeld of 1 MiB, want 8 MiB at most", grown)
				}
				close(release)
				r.Stop()
				<-r.ended
			})
		})
	}
}

// A stuckHandler blocks on every notification until its channel is closed.
type stuckHandler struct{ until chan struct{} }

func (stuckHandler) ServeRequest(context.Context, *conn.Incoming) (json.RawMessage, error) {
	return nil, nil
}
func (s stuckHandler) ServeNotification(context.Context, *conn.Incoming) { <-s.until }

// A Run after a panic counts its notifications from zero, even if a handler of the first Run still runs.
//
// Guarantees: G-0001.11, G-0006.4
func TestNotificationsOfASecondRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release, panics := make(chan struct{}), true
		var links []*script
		c := conn.New(opening(func(context.Context) (transport.Link, error) {
			links = append(links, &script{onSend: func(*script, transport.Outbound) error {
				if panics {
					panic("the link")
				}
				return nil
			}})
			return links[len(links)-1], nil
		}), conn.Options{Dialect: sheddable{}, Handler: stuckHandler{release}, Tuning: conn.Tuning{MaxNotifications: 4}})
		r := start(c)
		synctest.Wait()
		for range 5 {
			links[0].deliver(`{"jsonrpc":"2.0","method":"changed"}`)
			synctest.Wait()
		}
		r.calling(t.Context(), conn.Request{Method: "m"})
		if err := <-r.ended; err == nil || r.Stats().Shed != 4 {
			t.Fatalf("Run: %v, %d were shed; want an error, 4", err, r.Stats().Shed)
		}
		panics = false
		r = start(c)
		synctest.Wait()
		for range 20 {
			links[1].deliver(`{"jsonrpc":"2.0","method":"other"}`)
			synctest.Wait()
		}
		if r.State() != conn.Ready || r.Stats().Shed != 4+16 {
			t.Errorf("%s, %d were shed; want ready, %d", r.State(), r.Stats().Shed, 4+16)
		}
		close(release)
		r.Stop()
		<-r.ended
	})
}

// A peer whose notifications are handled slowly still gets answers to its probes, and its frames are
// still taken. So it does not give the link up.
//
// Guarantees: G-0004.8
func TestSlowHandlerDoesNotLoseTheLink(t *testing.T) {
	for name, c := range map[string]struct {
		liveness time.Duration
		more     int
	}{
		"peer that probes": {5 * time.Second, 0},
		"peer that writes": {-1, 100},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var server run
				slow := func(ctx context.Context, _ *conn.Incoming) (json.RawMessage, error) {
					timer := time.NewTimer(time.Second)
					defer timer.Stop()
					select {
					case <-timer.C:
					case <-ctx.Done():
					}
					return nil, nil
				}
				client := start(conn.New(inmem.New(func(link transport.Link) {
					server = start(conn.Accept(link, conn.Options{Dialect: dialect{}, Handler: handler{"n": slow}}))
				}, inmem.Options{}), conn.Options{Dialect: dialect{}, Tuning: conn.Tuning{Liveness: c.liveness}}))
				synctest.Wait()
				flood := func(count int) {
					for range count {
						client.Notify(t.Context(), "n", nil) // a busy link refuses some
					}
				}
				flood(525)
				for range 120 {
					advance(time.Second)
					flood(c.more)
					if status := client.Status(); status.Epoch != 1 || status.State != conn.Ready {
						t.Fatalf("%s (%v), want ready in epoch 1", status.State, status.LastFailure)
					}
				}
				client.Stop()
				<-client.ended
				<-server.ended
			})
		})
	}
}

var flood = flag.Int("flood", 50_000, "how many notifications the flood tests send")

// A flooder is a peer that sends notifications as fast as the link takes them, and answers every
// request.
type flooder struct {
	link     transport.Link
	asked    chan []byte
	writable chan struct{}
	lost     chan struct{}
}

// credit is how many requests a flooder takes at once.
const credit = 100

func newFlooder(link transport.Link) *flooder {
	f := &flooder{link: link, asked: make(chan []byte, credit), writable: make(chan struct{}, 1), lost: make(chan struct{})}
	link.Bind(f)
	link.Grant(transport.Main, credit)
	return f
}

func (f *flooder) Receive(in transport.Inbound)                 { f.asked <- in.Frame } // has room for credit frames
func (f *flooder) Lost(transport.Loss)                          { close(f.lost) }
func (f *flooder) StreamOpened(transport.Stream, transport.Tag) {}
func (f *flooder) StreamLost(transport.StreamLoss)              {}
func (f *flooder) Failed(transport.Failure)                     {}
func (f *flooder) Ended()                                       {}

func (f *flooder) Writable() {
	select {
	case f.writable <- struct{}{}:
	default: // an earlier event is still there
	}
}

// run sends this many notifications, and then only answers.
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

// A flooded Conn has a handler that takes a millisecond for each notification. It counts what was
// handled, and in which order.
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

// heap returns how many bytes of the heap are in use.
func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// floodBound is how much memory a flood may take: 1,024 notifications of about 300 bytes each, with all
// that belongs to them, and as much again for everything else.
const floodBound = 1 << 20

func (f *flooded) checkHeap(t *testing.T) {
	if grown := int64(heap()) - int64(f.base); grown > floodBound {
		t.Errorf("the heap has grown by %d bytes, want %d at most", grown, floodBound)
	}
}

// finish waits until everything is handled, and checks the counts and the order.
func (f *flooded) finish(t *testing.T) conn.Stats {
	for f.Stats().Depths.Notifications > 0 {
		advance(time.Second)
	}
	stats := f.Stats()
	if f.handled+int(stats.Shed) != *flood || f.disorder > 0 {
		t.Errorf("%d were handled and %d shed, %d out of order; want %d in all, none",
			f.handled, stats.Shed, f.disorder, *flood)
	}
	f.Stop()
	<-f.ended
	return stats
}

// While no request is pending, a peer that floods is slowed down to the pace of the handler, and no
// notification is dropped.
//
// Guarantees: G-0004.7, G-0004.9
func TestFloodIsPausedWithoutPendingRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFlooded(t, conn.Options{})
		for range 10 {
			advance(time.Duration(*flood/10) * time.Millisecond)
			f.checkHeap(t)
		}
		stats := f.finish(t)
		if stats.Shed != 0 || stats.Stalls == 0 {
			t.Errorf("%d were shed, %d stalls; want none, some", stats.Shed, stats.Stalls)
		}
		t.Logf("%d notifications, %d stalls", f.handled, stats.Stalls)
	})
}

// While calls are pending, the link is read, and notifications that the handler has no time for are
// dropped and counted.
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
				t.Fatalf("call %d: %v after %v, want no error after 20ms at most", calls, err, time.Since(began))
			}
			if calls++; calls%1000 == 0 {
				f.checkHeap(t)
			}
			advance(time.Millisecond)
		}
		stats := f.finish(t)
		if stats.Shed == 0 || stats.Settled[conn.Answered][conn.Sent] != uint64(calls) {
			t.Errorf("%d were shed, settled %v; want some, %d calls answered", stats.Shed, stats.Settled, calls)
		}
		t.Logf("%d notifications handled, %d shed, %d calls answered", f.handled, stats.Shed, calls)
	})
}
