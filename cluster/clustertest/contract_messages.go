package clustertest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/cluster"
)

// A reader keeps what a subscription delivers.
type reader struct {
	s       *suite
	stop    func()
	busy    atomic.Int32  // calls that run
	hold    chan struct{} // closed: messages are taken
	changed chan struct{} // capacity one: a token when something has come

	mu       sync.Mutex
	messages []string
	missed   int
}

// subscribe subscribes a subject. What comes before release is called waits.
func (s *suite) subscribe(e cluster.Engine, subject string) (r *reader, release func()) {
	s.t.Helper()
	r = &reader{s: s, hold: make(chan struct{}), changed: make(chan struct{}, 1)}
	stop, err := e.Subscribe(s.ctx, subject, r.take)
	s.must(err)
	release = sync.OnceFunc(func() { close(r.hold) })
	r.stop = stop
	s.t.Cleanup(func() {
		release()
		stop()
	})
	return r, release
}

func (s *suite) read(e cluster.Engine, subject string) *reader {
	s.t.Helper()
	r, release := s.subscribe(e, subject)
	release()
	return r
}

func (r *reader) take(m cluster.Message) {
	if r.busy.Add(1) > 1 {
		r.s.t.Error("two messages were delivered at once")
	}
	defer r.busy.Add(-1)
	<-r.hold
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.Missed {
		r.missed++
		if m.Body != nil {
			r.s.t.Errorf("a message that says what was missed has the body %q", m.Body)
		}
	} else {
		r.messages = append(r.messages, string(m.Body))
	}
	select {
	case r.changed <- struct{}{}:
	default: // the channel has a token already
	}
}

// await waits until check returns true of the messages that came and of how often some were
// missed.
func (r *reader) await(what string, check func(messages []string, missed int) bool) {
	r.s.t.Helper()
	for {
		r.mu.Lock()
		ok, all, missed := check(r.messages, r.missed), fmt.Sprint(r.messages), r.missed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.changed:
		case <-r.s.ctx.Done():
			r.s.t.Fatalf("still not: %s (messages %.1000s, missed %d times)", what, all, missed)
		}
	}
}

// reach publishes until a reader gets it: from then on messages come.
func (s *suite) reach(from cluster.Engine, subject string, readers ...*reader) {
	s.t.Helper()
	probe := "probe " + s.name()
	for _, r := range readers {
		s.await("a message comes", func() bool {
			s.must(from.Publish(subject, []byte(probe)))
			r.mu.Lock()
			defer r.mu.Unlock()
			return slices.Contains(r.messages, probe)
		})
	}
}

func (s *suite) messagesInOrder() {
	const each = 300
	es := s.engines(3)
	subject := "a." + s.name()
	r, other := s.read(es[0], subject), s.read(es[0], subject+".below")
	s.reach(es[1], subject, r)
	s.reach(es[2], subject, r)
	var group sync.WaitGroup
	for n, e := range es[1:] {
		group.Go(func() {
			for i := range each {
				if err := e.Publish(subject, fmt.Appendf(nil, "%d:%d", n, i)); err != nil {
					s.t.Errorf("publish got %v", err)
				}
			}
		})
	}
	group.Wait()
	counted := func(messages []string) (counts [2]int) {
		for _, m := range messages {
			for n := range counts {
				if strings.HasPrefix(m, strconv.Itoa(n)+":") {
					counts[n]++
				}
			}
		}
		return counts
	}
	r.await("all messages have come", func(messages []string, missed int) bool {
		return counted(messages) == [2]int{each, each} && missed == 0
	})
	var next [2]int
	for _, m := range r.messages {
		for n := range next {
			if i, ours := strings.CutPrefix(m, strconv.Itoa(n)+":"); ours {
				if i != strconv.Itoa(next[n]) {
					s.t.Fatalf("of publisher %d message %s came in place of %d", n, i, next[n])
				}
				next[n]++
			}
		}
	}
	body := strings.Repeat("x", cluster.MaxMessage)
	s.must(es[1].Publish(subject, []byte(body)))
	r.await("the longest message has come", func(messages []string, _ int) bool { return messages[len(messages)-1] == body })
	if len(other.messages) > 0 {
		s.t.Errorf("another subject got %q", other.messages)
	}
}

func (s *suite) noOwnMessages() {
	es := s.engines(2)
	subject := s.name()
	a, b := s.read(es[0], subject), s.read(es[1], subject)
	s.reach(es[0], subject, b)
	s.reach(es[1], subject, a)
	s.must(es[0].Publish(subject, []byte("of a")))
	b.await("the other has a message", func(messages []string, _ int) bool { return slices.Contains(messages, "of a") })
	s.must(es[1].Publish(subject, []byte("of b"))) // after the one of a
	a.await("a has the message of b", func(messages []string, _ int) bool { return slices.Contains(messages, "of b") })
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.messages, "of a") {
		s.t.Error("an engine got the message that it has published")
	}
}

func (s *suite) slowSubscriberMissed() {
	es := s.engines(2)
	subject := s.name()
	probe := s.read(es[0], subject)
	s.reach(es[1], subject, probe)
	slow, release := s.subscribe(es[0], subject)
	const many = 2000
	for n := range many {
		s.must(es[1].Publish(subject, []byte(strconv.Itoa(n))))
		if n%200 == 199 { // so that the one that is not slow misses nothing
			probe.await("the quick one follows", func(messages []string, _ int) bool { return slices.Contains(messages, strconv.Itoa(n)) })
		}
	}
	release()
	slow.await("a slow subscriber has missed something", func(_ []string, missed int) bool { return missed > 0 })
	s.reach(es[1], subject, slow)
	probe.mu.Lock()
	defer probe.mu.Unlock()
	if probe.missed > 0 {
		s.t.Errorf("a quick subscriber missed something %d times", probe.missed)
	}
	slow.mu.Lock()
	defer slow.mu.Unlock()
	numbers := 0
	for n := range many {
		if slices.Contains(slow.messages, strconv.Itoa(n)) {
			numbers++
		}
	}
	if numbers < 1024 || numbers == many {
		s.t.Errorf("of %d messages %d waited for a slow subscriber, want 1,024 or a few more", many, numbers)
	}
}

func (s *suite) subscriptionSurvives() {
	es := s.engines(2)
	subject := s.name()
	r := s.read(es[0], subject)
	s.reach(es[1], subject, r)
	heal := s.Cut(es[0])
	s.awaitConnected(es[0], false)
	s.must(es[1].Publish(subject, []byte("lost")))
	heal()
	s.awaitConnected(es[0], true)
	r.await("an interruption was reported", func(_ []string, missed int) bool { return missed > 0 })
	s.reach(es[1], subject, r)
}

func (s *suite) stopEndsDelivery() {
	es := s.engines(2)
	subject := s.name()
	r, release := s.subscribe(es[0], subject)
	after := s.read(es[0], subject)
	s.reach(es[1], subject, after)
	s.await("a message is being delivered", func() bool { return r.busy.Load() == 1 })
	stopped := make(chan struct{})
	go func() {
		r.stop()
		close(stopped)
	}()
	s.reach(es[1], subject, after)
	select {
	case <-stopped:
		s.t.Error("stop returned while a message was being delivered")
	default:
	}
	release()
	<-stopped
	r.mu.Lock()
	before := len(r.messages)
	r.mu.Unlock()
	s.reach(es[1], subject, after)
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.messages) != before {
		s.t.Errorf("%q came after stop", r.messages[before:])
	}
}
