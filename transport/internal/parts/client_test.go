package parts_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/internal/parts"
)

// A link records in which order its Client ends it. It also is its receiver.
type link struct {
	parts.Client
	transport.Receiver
	queued bool          // until something is posted
	cancel chan struct{} // closed when the requests are cancelled
	waits  time.Duration // how long answers are awaited
	others error         // what EndOthers leaves

	mu     sync.Mutex
	steps  []string
	losses []transport.Loss
}

func newLink() *link {
	l := &link{cancel: make(chan struct{})}
	l.Link = l
	l.Bind(l)
	return l
}

func (l *link) step(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = append(l.steps, name)
}

func (l *link) IsEmpty() bool      { return !l.queued }
func (l *link) AwaitAnswers(error) { l.step("await"); l.AwaitReturn(l.waits) }
func (l *link) Cancel()            { l.step("cancel"); close(l.cancel) }
func (l *link) Name() string       { return "test" }

func (l *link) Gone() {
	l.step("gone")
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.Abandon(4, 40)
}

func (l *link) EndOthers(error) error {
	l.step("others")
	return l.others
}

func (l *link) Lost(loss transport.Loss) {
	l.step("lost")
	l.losses = append(l.losses, loss)
}

// request runs until the link cancels it, or for a while.
func (l *link) request(t *testing.T, while time.Duration) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	started := l.Run(func() {
		select {
		case <-l.cancel:
		case <-time.NewTimer(while).C:
		}
		l.step("return")
	})
	if !started {
		t.Error("the request has not started")
	}
}

// The end of a link takes its steps in order, once, for the first reason. The loss comes last, and lists what was not
// sent in the order of Send, without what its sender has given up and what has no tag.
//
// Guarantees: G-0014.6
func TestTheEndOfAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, broken := newLink(), errors.New("broken")
		l.request(t, time.Hour)
		l.Mu.Lock()
		for _, n := range []uint64{3, 1, 2, 0} {
			l.Abandon(n, transport.Tag(10*n))
		}
		l.Withdraw(2)
		l.Mu.Unlock()
		l.EndFor(broken)
		if err := l.Close(time.Minute, func() {}); err != nil {
			t.Error(err)
		}
		want := []string{"await", "cancel", "others", "return", "gone", "lost"}
		if i := slices.Index(l.steps, "return"); i > 1 { // beside the others
			l.steps = slices.Insert(slices.Delete(l.steps, i, i+1), 3, "return")
		}
		if !slices.Equal(l.steps, want) || len(l.losses) != 1 {
			t.Fatalf("got the steps %v and %d losses, want %v and one", l.steps, len(l.losses), want)
		}
		if loss := l.losses[0]; loss.Reason != broken || !slices.Equal(loss.Unsent, []transport.Tag{10, 30, 40}) {
			t.Errorf("got %+v, want what was not sent, in its order", loss)
		}
	})
}

// Once the peer is lost, Close does not wait until what is queued was sent. What it leaves behind, it names: other links, and requests
// that do not return.
//
// Guarantees: G-0014.6
func TestALossDuringClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begun, release := newLink(), time.Now(), make(chan struct{})
		l.queued, l.others = true, errors.New("another link")
		l.Mu.Lock()
		l.Run(func() { <-release })
		l.Mu.Unlock()
		time.AfterFunc(time.Second, func() { l.EndFor(errors.New("broken")) })
		err := l.Close(time.Minute, func() {})
		if took := time.Since(begun); took != 6*time.Second || l.losses[0].Reason != transport.ErrClosed {
			t.Errorf("after %v lost %+v, want %v, and 5 s for the request to return", took, l.losses, transport.ErrClosed)
		}
		if !errors.Is(err, l.others) || !strings.Contains(err.Error(), "has not returned") {
			t.Errorf("Close returned %v, want the other link and the request", err)
		}
		close(release)
	})
}

// A receiver that wraps a Runner lends it.
func TestAWrappedRunner(t *testing.T) {
	for _, lends := range []bool{true, false} {
		var to transport.Receiver = newLink()
		if lends {
			to = running{Receiver: to}
		}
		var r parts.Receiver
		if r.Bind(wrapping{to}); r.Lends() != lends {
			t.Errorf("it lends a Runner: %t, want %t", r.Lends(), lends)
		}
	}
}

type running struct {
	transport.Receiver
	transport.Runner
}

type wrapping struct{ transport.Receiver }

func (w wrapping) Unwrap() transport.Receiver { return w.Receiver }

// Nothing is cancelled while the link waits for answers that may still come, or for what is queued while the grace
// of Close lasts.
//
// Guarantees: G-0014.6
func TestAClientCancelsLate(t *testing.T) {
	for name, c := range map[string]struct {
		queued bool
		waits  time.Duration
		reason error
		took   time.Duration
		steps  []string
	}{
		"answers":       {waits: time.Minute, reason: errors.New("broken"), took: time.Second, steps: []string{"await", "return", "cancel"}},
		"queued":        {queued: true, reason: transport.ErrClosed, took: 7 * time.Second, steps: []string{"return", "await", "cancel"}},
		"nothing waits": {reason: transport.ErrClosed, steps: []string{"await", "cancel"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, begun := newLink(), time.Now()
				l.queued, l.waits = c.queued, c.waits
				l.request(t, time.Second)
				l.EndFor(c.reason)
				if err := l.Close(10*time.Second, func() {}); err != nil || time.Since(begun) != c.took {
					t.Errorf("Close returned %v after %v, want nil after %v", err, time.Since(begun), c.took)
				}
				if got := l.steps[:len(c.steps)]; !slices.Equal(got, c.steps) {
					t.Errorf("got the steps %v, want first %v", l.steps, c.steps)
				}
			})
		})
	}
}
