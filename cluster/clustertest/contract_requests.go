package clustertest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
)

// answer answers requests with a prefix and what was asked.
func (s *suite) answer(e cluster.Engine, subject, prefix string) {
	s.t.Helper()
	s.serve(e, subject, func(_ context.Context, body []byte) []byte { return append([]byte(prefix), body...) })
}

func (s *suite) serve(e cluster.Engine, subject string, f func(context.Context, []byte) []byte) (stop func()) {
	s.t.Helper()
	stop, err := e.Answer(s.ctx, subject, f)
	s.must(err)
	s.t.Cleanup(stop)
	return stop
}

// awaitResponder waits until requests reach somebody.
func (s *suite) awaitResponder(from cluster.Engine, subject string) {
	s.t.Helper()
	s.await("a request reaches who answers it", func() bool {
		_, err := from.Request(s.ctx, subject, nil)
		return err == nil
	})
}

// awaitNoResponder waits until a request reaches nobody. One that is on its way when somebody
// stops to answer may be lost.
func (s *suite) awaitNoResponder(from cluster.Engine, subject string) {
	s.t.Helper()
	s.await("nobody answers", func() bool {
		ctx, cancel := context.WithTimeout(s.ctx, 200*time.Millisecond)
		defer cancel()
		_, err := from.Request(ctx, subject, nil)
		return errors.Is(err, cluster.ErrNoResponder)
	})
}

func (s *suite) requestIsAnswered() {
	es := s.engines(3)
	subject := s.name()
	s.answer(es[0], subject, "a:")
	s.awaitResponder(es[1], subject)
	body := strings.Repeat("x", cluster.MaxMessage-2)
	for _, ask := range []string{"", "x", body} {
		response, err := es[1].Request(s.ctx, subject, []byte(ask))
		s.must(err)
		if string(response) != "a:"+ask {
			s.t.Errorf("a request was answered with %.100q", response)
		}
	}
	held := make(chan struct{})
	s.serve(es[2], subject, func(ctx context.Context, _ []byte) []byte {
		select {
		case <-held:
		case <-ctx.Done():
		}
		return []byte("late")
	})
	defer close(held)
	response, err := es[1].Request(s.ctx, subject, []byte("first"))
	s.must(err)
	if string(response) != "a:first" {
		s.t.Errorf("the first response is %q", response)
	}
}

func (s *suite) noResponder() {
	es := s.engines(2)
	subject := s.name()
	s.answer(es[0], subject, "own")
	s.awaitResponder(es[1], subject)
	for what, do := range map[string]func() error{
		"a request to nobody":            func() error { _, err := es[1].Request(s.ctx, "nobody", nil); return err },
		"a request to its own answers":   func() error { _, err := es[0].Request(s.ctx, subject, nil); return err },
		"a collection from nobody":       func() error { return last(es[1].Collect(s.ctx, "nobody", nil)) },
		"a collection from itself alone": func() error { return last(es[0].Collect(s.ctx, subject, nil)) },
	} {
		s.want(what, do(), cluster.ErrNoResponder)
	}
}

func (s *suite) silentResponder() {
	es := s.engines(2)
	subject := s.name()
	arrived := make(chan struct{}, 100)
	s.serve(es[0], subject, func(ctx context.Context, body []byte) []byte {
		arrived <- struct{}{}
		if string(body) == "long" {
			return make([]byte, cluster.MaxMessage+1)
		}
		<-ctx.Done()
		return nil
	})
	for _, ask := range []string{"silent", "long"} {
		s.await("a request has arrived", func() bool {
			ctx, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
			defer cancel()
			_, err := es[1].Request(ctx, subject, []byte(ask))
			if !errors.Is(err, cluster.ErrNoResponder) {
				s.want("a request without a response", err, cluster.ErrUnavailable)
				s.want("a request without a response", err, context.DeadlineExceeded)
			}
			return len(arrived) > 0
		})
		<-arrived
	}
}

func (s *suite) collectYields() {
	es := s.engines(4)
	subject := s.name()
	for n, e := range es[:3] {
		s.answer(e, subject, strconv.Itoa(n)+":")
	}
	collect := func(e cluster.Engine, want ...string) {
		s.t.Helper()
		var got []string
		s.await(fmt.Sprintf("the responses are %q", want), func() bool {
			ctx, cancel := context.WithCancel(s.ctx)
			defer cancel()
			got = nil
			timer := time.AfterFunc(100*time.Millisecond, cancel) // some may not be known yet
			defer timer.Stop()
			for response, err := range e.Collect(ctx, subject, []byte("x")) {
				if errors.Is(err, cluster.ErrNoResponder) {
					break
				}
				s.must(err)
				if got = append(got, string(response)); len(got) == len(want) {
					break
				}
			}
			slices.Sort(got)
			return slices.Equal(got, want)
		})
	}
	collect(es[3], "0:x", "1:x", "2:x")
	collect(es[0], "1:x", "2:x")
	ctx, cancel := context.WithCancel(s.ctx)
	responses := 0
	for _, err := range es[3].Collect(ctx, subject, nil) {
		if responses++; responses == 3 {
			cancel()
		}
		s.must(err) // the end of ctx is no error
	}
	cancel()
	if responses != 3 {
		s.t.Errorf("%d responses came", responses)
	}
}

func (s *suite) answersAreBounded() {
	const running, waiting, more = 64, 1024, 200
	es := s.engines(2)
	subject, barrier := s.name(), s.name()
	var now, most, all atomic.Int64
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	s.serve(es[0], subject, func(ctx context.Context, body []byte) []byte {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer now.Add(-1)
		if string(body) == "counted" {
			all.Add(1)
			select {
			case <-hold:
			case <-ctx.Done():
			}
		}
		return nil
	})
	s.answer(es[0], barrier, "")
	s.awaitResponder(es[1], subject)
	s.awaitResponder(es[1], barrier)
	_, before := es[0].Messages()
	ctx, cancel := context.WithCancel(s.ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	var answered atomic.Int64
	for range running + waiting + more {
		group.Go(func() {
			if _, err := es[1].Request(ctx, subject, []byte("counted")); err == nil {
				answered.Add(1)
			}
		})
	}
	s.await("all requests have arrived", func() bool {
		_, received := es[0].Messages()
		return received-before >= running+waiting+more
	})
	_, err := es[1].Request(s.ctx, barrier, nil) // is answered after they were
	s.must(err)
	s.await("64 requests are being answered", func() bool { return now.Load() == running })
	release()
	s.await("what waited was answered", func() bool { return answered.Load() >= running+waiting })
	s.await("nothing is being answered", func() bool { return now.Load() == 0 })
	if most.Load() != running || all.Load() > running+waiting+2 {
		s.t.Errorf("of %d requests %d were answered, up to %d at a time; want %d and %d", running+waiting+more, all.Load(), most.Load(), running+waiting, running)
	}
}

func (s *suite) stopEndsAnswers() {
	es := s.engines(2)
	subject := s.name()
	var running atomic.Int64
	stop := s.serve(es[0], subject, func(ctx context.Context, body []byte) []byte {
		running.Add(1)
		defer running.Add(-1)
		if string(body) == "wait" {
			<-ctx.Done()
		}
		return nil
	})
	s.awaitResponder(es[1], subject)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	go es[1].Request(ctx, subject, []byte("wait")) //nolint:errcheck // it is never answered, or late
	s.await("a request is being answered", func() bool { return running.Load() > 0 })
	stop()
	if running.Load() != 0 {
		s.t.Error("stop returned while a request was being answered")
	}
	s.awaitNoResponder(es[1], subject)
	stop()
	s.answer(es[0], subject, "") // again
	s.awaitResponder(es[1], subject)
}

func (s *suite) messagesAndRequestsAreApart() {
	es := s.engines(2)
	subject := s.name()
	r := s.read(es[0], subject)
	s.reach(es[1], subject, r)
	_, err := es[1].Request(s.ctx, subject, []byte("request"))
	s.want("a request to who only subscribed", err, cluster.ErrNoResponder)
	s.serve(es[0], subject, func(_ context.Context, body []byte) []byte {
		if len(body) > 0 {
			s.t.Errorf("a message was answered: %q", body)
		}
		return nil
	})
	s.awaitResponder(es[1], subject)
	s.must(es[1].Publish(subject, []byte("message")))
	s.awaitResponder(es[1], subject) // what is answered after the message
	r.await("the message has come", func(messages []string, _ int) bool { return messages[len(messages)-1] == "message" })
}

func (s *suite) messagesAreCounted() {
	es := s.engines(2)
	b := s.buckets(cluster.BucketOptions{}, es...)
	subject := s.name()
	r := s.read(es[1], subject)
	s.answer(es[1], subject, "")
	s.awaitResponder(es[0], subject)
	s.reach(es[0], subject, r)
	s.must(es[0].Publish(subject, []byte("counted from here")))
	r.await("the last probe has come", func(messages []string, _ int) bool { return slices.Contains(messages, "counted from here") })
	counts := func() (all [4]uint64) {
		all[0], all[1] = es[0].Messages()
		all[2], all[3] = es[1].Messages()
		return all
	}
	step := func(what string, least [4]uint64, do func()) {
		s.t.Helper()
		before := counts()
		do()
		after := counts()
		for n := range after {
			if rise := after[n] - before[n]; rise < least[n] || least[n] == 0 && rise > 0 {
				s.t.Errorf("%s: the messages rose from %v to %v, want by at least %v", what, before, after, least)
				return
			}
		}
	}
	var revision uint64
	step("nothing", [4]uint64{}, func() {})
	step("create", [4]uint64{1, 1, 0, 0}, func() { revision = s.create(b[0], "k", "") })
	step("get", [4]uint64{0, 0, 1, 1}, func() { s.awaitValue(b[1:], "k", "") })
	step("update", [4]uint64{1, 1, 0, 0}, func() {
		var err error
		revision, err = b[0].Update(s.ctx, "k", []byte("x"), revision)
		s.must(err)
	})
	step("publish", [4]uint64{10, 0, 0, 10}, func() {
		for n := range 10 {
			s.must(es[0].Publish(subject, []byte(strconv.Itoa(n))))
		}
		r.await("they have come", func(messages []string, _ int) bool { return messages[len(messages)-1] == "9" })
	})
	step("request", [4]uint64{1, 1, 1, 1}, func() {
		_, err := es[0].Request(s.ctx, subject, nil)
		s.must(err)
	})
	step("keys", [4]uint64{0, 0, 1, 1}, func() { s.keys(b[1], "") })
	step("delete", [4]uint64{1, 1, 0, 0}, func() { s.must(b[0].Delete(s.ctx, "k", revision)) })
	if address := es[0].LocalAddress(); net.ParseIP(address) == nil {
		s.t.Errorf("LocalAddress is %q", address)
	}
}

func (s *suite) cutOff() {
	es := s.engines(2)
	b := s.buckets(cluster.BucketOptions{}, es...)
	subject := s.name()
	revision := s.create(b[0], "k", "before")
	s.answer(es[0], subject, "")
	s.awaitResponder(es[1], subject)
	connected, changed := es[0].Connected()
	if !connected {
		s.t.Fatal("an engine says that it is not connected")
	}
	heal := s.Cut(es[0])
	short, cancel := context.WithTimeout(s.ctx, 300*time.Millisecond)
	_, err := b[0].Put(short, "k", []byte("unknown"))
	cancel()
	s.want("a put of an engine that is cut off", err, cluster.ErrUnavailable)
	select {
	case <-changed:
	case <-s.ctx.Done():
		s.t.Fatal("an engine does not notice that it is cut off")
	}
	s.awaitConnected(es[0], false)
	short, cancel = context.WithTimeout(s.ctx, 300*time.Millisecond)
	s.unavailable(short, es[0], b[0], revision)
	cancel()
	s.want("publish", es[0].Publish(subject, nil), cluster.ErrUnavailable)
	_, changed = es[0].Connected()
	heal()
	select {
	case <-changed:
	case <-s.ctx.Done():
		s.t.Fatal("an engine does not come back")
	}
	s.awaitConnected(es[0], true)
	s.awaitResponder(es[1], subject)
	s.create(b[0], "after", "")
	s.awaitValue(b, "after", "")
}

func (s *suite) closed() {
	es := s.engines(2)
	e := es[0]
	b := s.buckets(cluster.BucketOptions{}, e)[0]
	subject := s.name()
	r := s.read(e, subject)
	s.reach(es[1], subject, r)
	s.answer(e, subject, "")
	s.awaitResponder(es[1], subject)
	waits := make(chan error, 1)
	s.serve(es[1], "silent."+subject, func(ctx context.Context, _ []byte) []byte {
		go func() { waits <- e.Close() }()
		<-ctx.Done()
		return nil
	})
	s.await("a request that waits returns when its engine is closed", func() bool {
		_, err := e.Request(s.ctx, "silent."+subject, nil)
		return errors.Is(err, cluster.ErrUnavailable)
	})
	s.must(<-waits)
	s.must(e.Close())
	if connected, _ := e.Connected(); connected {
		s.t.Error("a closed engine says that it is connected")
	}
	s.unavailable(s.ctx, e, b, 1)
	s.want("publish", e.Publish(subject, nil), cluster.ErrUnavailable)
	s.want("collect", last(e.Collect(s.ctx, subject, nil)), cluster.ErrUnavailable)
	s.awaitNoResponder(es[1], subject)
}
