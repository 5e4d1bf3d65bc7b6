package clustertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// A Harness makes the Engines that EngineContract checks.
type Harness struct {
	// Engine connects one more node of a cluster. The suite closes the Engine.
	Engine func(t *testing.T) cluster.Engine

	// Cut cuts an Engine off until heal is called: nothing passes. The Engine notices that
	// within Guard, and within Guard after heal it is connected again.
	Cut func(e cluster.Engine) (heal func())

	// Wipe loses all that the Engines have stored, and interrupts their connections. Nil:
	// this cannot happen.
	Wipe func()

	// Guard is how long the suite waits for an event before it fails. Default: a minute.
	Guard time.Duration
}

// EngineContract checks the contract of cluster.Engine in real time, in a few seconds. It calls
// open once; the Engines then share buckets and subjects. Release resources in clean-ups of the
// test.
func EngineContract(t *testing.T, open func(t *testing.T) Harness) {
	h := open(t)
	h.Guard = cmp.Or(h.Guard, time.Minute)
	var names atomic.Int64
	run := func(t *testing.T, name string, check func(s *suite)) {
		t.Run(name, func(t *testing.T) { check(newSuite(t, h, &names)) })
	}
	for _, c := range clauses() {
		run(t, c.name, c.check)
	}
	t.Run("with time", func(t *testing.T) { // they wait for the clock, so together
		for _, c := range timedClauses() {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.check(newSuite(t, h, &names))
			})
		}
	})
	t.Run("buckets agree with a map", func(t *testing.T) {
		all := h
		all.Guard *= 10 // of many cases
		m := newModel(newSuite(t, all, &names))
		rapid.Check(t, m.check)
	})
	if h.Wipe != nil {
		run(t, "an engine that has lost everything begins anew", func(s *suite) { s.wiped(h.Wipe) })
	}
}

// A clause is a part of the contract, with what checks it.
type clause struct {
	name  string
	check func(s *suite)
}

func clauses() []clause {
	return []clause{
		{"what is not allowed is refused before it is sent", (*suite).refusesInvalid},
		{"a bucket keeps its settings", (*suite).keepsSettings},
		{"of many creates one wins", (*suite).oneCreateWins},
		{"of many updates one wins", (*suite).oneUpdateWins},
		{"a deleted key is free", (*suite).deletedKeyIsFree},
		{"other revisions conflict", (*suite).otherRevisionsConflict},
		{"values are copied", (*suite).valuesAreCopied},
		{"a full bucket refuses values and accepts deletions", (*suite).fullBucket},
		{"keys are listed by their prefix", (*suite).keysByPrefix},
		{"a watch yields what there is, and then changes", (*suite).watchYields},
		{"a watch ends", (*suite).watchEnds},
		{"a watch survives an interruption", (*suite).watchSurvives},
		{"messages come in the order of each publisher", (*suite).messagesInOrder},
		{"an engine does not get its own messages", (*suite).noOwnMessages},
		{"messages are delivered one at a time, and a slow subscriber learns that it missed some", (*suite).slowSubscriberMissed},
		{"a subscription survives an interruption, and reports it", (*suite).subscriptionSurvives},
		{"nothing is delivered after stop", (*suite).stopEndsDelivery},
		{"a request gets the first response", (*suite).requestIsAnswered},
		{"a request without a responder fails at once", (*suite).noResponder},
		{"a silent responder costs the time of the context", (*suite).silentResponder},
		{"collect yields every response", (*suite).collectYields},
		{"requests are answered 64 at a time, and 1,024 wait", (*suite).answersAreBounded},
		{"stop ends answers", (*suite).stopEndsAnswers},
		{"messages and requests are apart", (*suite).messagesAndRequestsAreApart},
		{"messages are counted", (*suite).messagesAreCounted},
		{"an engine that is cut off is unavailable, and comes back", (*suite).cutOff},
		{"a context that has ended sends nothing", (*suite).endedContext},
		{"a closed engine is unavailable", (*suite).closed},
	}
}

func timedClauses() []clause {
	return []clause{
		{"a value expires, and an update renews it", (*suite).valueExpires},
		{"a key has a TTL of its own until it is updated", (*suite).ownTTL},
		{"the TTL of the bucket limits that of a key", (*suite).bucketTTLFirst},
	}
}

// A suite has what a clause needs.
type suite struct {
	Harness
	t     *testing.T
	ctx   context.Context // ends the clause if something hangs
	names *atomic.Int64
}

func newSuite(t *testing.T, h Harness, names *atomic.Int64) *suite {
	ctx, cancel := context.WithTimeoutCause(context.Background(), h.Guard, errors.New("the engine does not answer"))
	t.Cleanup(cancel)
	return &suite{h, t, ctx, names}
}

// engines connects nodes.
func (s *suite) engines(n int) []cluster.Engine {
	s.t.Helper()
	all := make([]cluster.Engine, n)
	for i := range all {
		all[i] = s.Engine(s.t)
		s.t.Cleanup(func() {
			if err := all[i].Close(); err != nil {
				s.t.Errorf("Close got %v", err)
			}
		})
	}
	return all
}

// name returns a name that nobody has used.
func (s *suite) name() string { return fmt.Sprintf("n%d", s.names.Add(1)) }

// buckets opens one new bucket from several Engines.
func (s *suite) buckets(o cluster.BucketOptions, of ...cluster.Engine) []cluster.Bucket {
	s.t.Helper()
	o.Name = s.name()
	var all []cluster.Bucket
	for _, e := range of {
		b, err := e.Bucket(s.ctx, o)
		s.must(err)
		all = append(all, b)
	}
	return all
}

func (s *suite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *suite) want(what string, err, sentinel error) {
	s.t.Helper()
	if !errors.Is(err, sentinel) {
		s.t.Errorf("%s got %v, want %v", what, err, sentinel)
	}
}

func (s *suite) create(b cluster.Bucket, key, value string) uint64 {
	s.t.Helper()
	revision, err := b.Create(s.ctx, key, []byte(value), 0)
	s.must(err)
	return revision
}

// await calls check until it returns true.
func (s *suite) await(what string, check func() bool) {
	s.t.Helper()
	for !check() {
		if err := wait.Sleep(s.ctx, time.Millisecond); err != nil {
			s.t.Fatalf("still not: %s (%v)", what, err)
		}
	}
}

// awaitConnected waits until an Engine says that it is connected, or not.
func (s *suite) awaitConnected(e cluster.Engine, want bool) {
	s.t.Helper()
	for {
		connected, changed := e.Connected()
		if connected == want {
			return
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			s.t.Fatalf("an engine says connected: %v, want %v", connected, want)
		}
	}
}

func (s *suite) refusesInvalid() {
	e := s.engines(1)[0]
	b := s.buckets(cluster.BucketOptions{MaxValue: 10}, e)[0]
	sent, _ := e.Messages()
	long := make([]byte, cluster.MaxMessage+1)
	never := func(context.Context, []byte) []byte { return nil }
	for what, do := range map[string]func() error{
		"a bucket with a capital":    func() error { _, err := e.Bucket(s.ctx, cluster.BucketOptions{Name: "A"}); return err },
		"a bucket with a short TTL":  func() error { _, err := e.Bucket(s.ctx, cluster.BucketOptions{Name: "a", TTL: 1}); return err },
		"publish to a wildcard":      func() error { return e.Publish("a.*", nil) },
		"a message that is too long": func() error { return e.Publish("a", long) },
		"subscribe to everything":    func() error { _, err := e.Subscribe(s.ctx, ">", func(cluster.Message) {}); return err },
		"request an empty part":      func() error { _, err := e.Request(s.ctx, "a..b", nil); return err },
		"a request that is too long": func() error { _, err := e.Request(s.ctx, "a", long); return err },
		"collect from nobody":        func() error { return last(e.Collect(s.ctx, "", nil)) },
		"answer a space":             func() error { _, err := e.Answer(s.ctx, "a b", never); return err },
		"create a wildcard":          func() error { _, err := b.Create(s.ctx, "*", nil, 0); return err },
		"create with a TTL":          func() error { _, err := b.Create(s.ctx, "k", nil, time.Second); return err },
		"create a long value":        func() error { _, err := b.Create(s.ctx, "k", long[:11], 0); return err },
		"put a long key":             func() error { _, err := b.Put(s.ctx, strings.Repeat("k", 257), nil); return err },
		"update with a line feed":    func() error { _, err := b.Update(s.ctx, "k\n", nil, 1); return err },
		"delete a dot":               func() error { return b.Delete(s.ctx, ".", 1) },
		"get nothing":                func() error { _, err := b.Get(s.ctx, ""); return err },
		"keys with half a part":      func() error { return last(b.Keys(s.ctx, "a")) },
	} {
		s.want(what, do(), cluster.ErrInvalid)
	}
	for entry := range b.Watch(s.ctx, "a") {
		s.t.Errorf("a watch of half a part yielded %+v", entry)
	}
	if after, _ := e.Messages(); after != sent {
		s.t.Errorf("%d messages were sent", after-sent)
	}
}

// last returns the last error of a loop.
func last[T any](seq func(func(T, error) bool)) (err error) {
	for _, err = range seq {
		continue
	}
	return err
}
