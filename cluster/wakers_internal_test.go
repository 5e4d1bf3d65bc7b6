package cluster

import (
	"testing"

	"github.com/bowline-mcp/bowline/transport"
)

// A sleeper counts how often it was woken.
type sleeper struct {
	woken int
	ended chan struct{}
}

func (s *sleeper) Wake()                 { s.woken++ }
func (s *sleeper) Done() <-chan struct{} { return s.ended }

// A connection is woken after a change until it asks for a link, also if the change came while it
// got none, and a few times at most.
//
// Guarantees: G-0079.10
func TestWakersWakeWhoHasNotAskedSince(t *testing.T) {
	w := newWakers()
	waits, asks, ended := &sleeper{ended: make(chan struct{})}, &sleeper{ended: make(chan struct{})}, &sleeper{ended: make(chan struct{})}
	for _, s := range []transport.Waker{waits, asks, ended, nil} {
		w.asks(s)
	}
	w.wake()
	if waits.woken != 0 {
		t.Error("a connection was woken although nothing has changed")
	}
	w.change()
	close(ended.ended)
	wakeAll(t, w)
	w.asks(asks)
	wakeAll(t, w)
	if waits.woken != wakeTimes || asks.woken != wakeTimes || ended.woken != 0 {
		t.Errorf("connections were woken %d, %d and %d times", waits.woken, asks.woken, ended.woken)
	}
	seen := w.asks(waits)
	w.change()
	wakeAll(t, w) // it cannot be woken yet
	w.failed(seen)
	wakeAll(t, w)
	if waits.woken != 3*wakeTimes {
		t.Errorf("a connection was woken %d times, want again when it got no link", waits.woken)
	}
	w.failed(w.asks(waits))
	wakeAll(t, w)
	if waits.woken != 3*wakeTimes {
		t.Error("a connection was woken although nothing has changed while it got no link")
	}
	for range 2 { // the second one comes while they are still being woken
		w.change()
		select {
		case <-w.kick:
			w.wake()
		default:
			t.Error("after a change connections wait until those of the change before are woken again")
		}
	}
	close(waits.ended)
	close(asks.ended)
	if w.areThere() {
		t.Error("connections that have ended count")
	}
}

// wakeAll does what is to be done after a change.
func wakeAll(t *testing.T, w *wakers) {
	t.Helper()
	for range wakeTimes {
		if !w.wake() {
			return
		}
	}
	t.Error("there is no end of it")
}
