package clustertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/internal/wait"
)

// A view is the map that a Watch builds.
type view struct {
	cancel  context.CancelFunc
	done    chan struct{}
	changed chan struct{} // capacity one: a token when something has changed

	mu      sync.Mutex
	values  map[string]string
	entries []cluster.Entry // all that was yielded
	current int             // how often Current was
	expired map[string]time.Time
}

// watch watches a bucket until stop is called or the clause ends.
func (s *suite) watch(b cluster.Bucket, prefix string) *view {
	v := &view{done: make(chan struct{}), changed: make(chan struct{}, 1), values: map[string]string{}, expired: map[string]time.Time{}}
	var ctx context.Context
	ctx, v.cancel = context.WithCancel(s.ctx)
	s.t.Cleanup(v.stop)
	go v.run(b.Watch(ctx, prefix))
	return v
}

func (v *view) run(entries func(func(cluster.Entry) bool)) {
	defer close(v.done)
	for entry := range entries {
		v.record(entry)
	}
}

func (v *view) record(entry cluster.Entry) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.entries = append(v.entries, entry)
	switch {
	case entry.Current:
		v.current++
	case entry.Deleted:
		v.expired[entry.Key] = time.Now()
		delete(v.values, entry.Key)
	default:
		v.values[entry.Key] = string(entry.Value)
	}
	select {
	case v.changed <- struct{}{}:
	default: // the channel has a token already
	}
}

func (v *view) stop() {
	v.cancel()
	<-v.done
}

// await waits until check returns true of the view.
func (v *view) await(t rapid.TB, what string, check func() bool) {
	t.Helper()
	for {
		v.mu.Lock()
		ok, values, current := check(), fmt.Sprint(v.values), v.current
		v.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-v.changed:
		case <-v.done:
			t.Fatalf("a watch ended, and still not: %s (values %.1000s, current %d times)", what, values, current)
		}
	}
}

func (v *view) awaitValues(t rapid.TB, want map[string]string) {
	t.Helper()
	v.await(t, fmt.Sprintf("a watch has yielded %v", want), func() bool { return v.current > 0 && maps.Equal(v.values, want) })
}

// inOrder checks the entries after the first Current, if nothing was interrupted: each is of a
// higher revision than the one before.
func (v *view) inOrder(t rapid.TB) {
	t.Helper()
	v.mu.Lock()
	defer v.mu.Unlock()
	first := slices.IndexFunc(v.entries, func(e cluster.Entry) bool { return e.Current })
	last := uint64(0)
	for _, entry := range v.entries[first+1:] {
		if entry.Current {
			return // from here on revisions may be lower
		}
		if entry.Revision <= last {
			t.Fatalf("a watch yielded revision %d after %d: %+v", entry.Revision, last, v.entries)
		}
		last = entry.Revision
	}
}

func (s *suite) watchYields() {
	buckets := s.buckets(cluster.BucketOptions{}, s.engines(2)...)
	a, b := buckets[0], buckets[1]
	empty := s.watch(b, "")
	empty.await(s.t, "a watch of an empty bucket is current", func() bool { return empty.has(0, 1) })
	one := s.create(a, "k.1", "one")
	s.create(a, "k", "another")
	empty.awaitValues(s.t, map[string]string{"k.1": "one", "k": "another"})

	later := s.watch(b, "k.")
	later.awaitValues(s.t, map[string]string{"k.1": "one"})
	later.mu.Lock()
	value := slices.IndexFunc(later.entries, func(e cluster.Entry) bool { return !e.Current })
	if first := later.entries[value]; first.Key != "k.1" || string(first.Value) != "one" || first.Revision != one || first.Deleted || first.Current {
		s.t.Errorf("a watch began with %+v", first)
	}
	later.mu.Unlock()
	two, err := a.Update(s.ctx, "k.1", []byte("two"), one)
	s.must(err)
	later.awaitValues(s.t, map[string]string{"k.1": "two"})
	s.create(b, "k.2", "own")
	later.awaitValues(s.t, map[string]string{"k.1": "two", "k.2": "own"})
	s.must(a.Delete(s.ctx, "k.1", two))
	later.awaitValues(s.t, map[string]string{"k.2": "own"})
	s.create(a, "k.1", "three")
	later.awaitValues(s.t, map[string]string{"k.1": "three", "k.2": "own"})
	empty.awaitValues(s.t, map[string]string{"k.1": "three", "k.2": "own", "k": "another"})
	for _, watched := range []*view{empty, later} {
		watched.inOrder(s.t)
		watched.mu.Lock()
		for _, entry := range watched.entries {
			if (entry.Deleted || entry.Current) && entry.Value != nil || entry.Current && (entry.Key != "" || entry.Revision != 0) {
				s.t.Errorf("a watch yielded %+v", entry)
			}
		}
		watched.mu.Unlock()
	}
}

// has reports whether there are so many values, and Current was yielded so often or more.
func (v *view) has(values, current int) bool { return len(v.values) == values && v.current >= current }

func (s *suite) watchEnds() {
	es := s.engines(2)
	buckets := s.buckets(cluster.BucketOptions{}, es...)
	s.create(buckets[0], "k", "1")
	for entry := range buckets[0].Watch(s.ctx, "") {
		if entry.Key == "k" { // it may be current before, because it shows an older state
			break
		}
	}
	byContext, byClose := s.watch(buckets[0], ""), s.watch(buckets[1], "")
	for _, watched := range []*view{byContext, byClose} {
		watched.awaitValues(s.t, map[string]string{"k": "1"})
	}
	byContext.stop()
	s.must(es[1].Close())
	select {
	case <-byClose.done:
	case <-s.ctx.Done():
		s.t.Fatal("a watch did not end when its engine was closed")
	}
	for range buckets[1].Watch(s.ctx, "") {
		s.t.Error("a watch of a closed engine yielded something")
	}
}

func (s *suite) watchSurvives() {
	es := s.engines(2)
	buckets := s.buckets(cluster.BucketOptions{}, es...)
	changed := s.create(buckets[0], "k.changed", "before")
	deleted := s.create(buckets[0], "k.deleted", "before")
	s.create(buckets[0], "k.same", "before")
	watched := s.watch(buckets[1], "k.")
	watched.awaitValues(s.t, map[string]string{"k.changed": "before", "k.deleted": "before", "k.same": "before"})
	heal := s.Cut(es[1])
	s.awaitConnected(es[1], false)
	begun := s.watch(buckets[1], "k.")
	_, err := buckets[0].Update(s.ctx, "k.changed", []byte("after"), changed)
	s.must(err)
	s.must(buckets[0].Delete(s.ctx, "k.deleted", deleted))
	s.create(buckets[0], "k.new", "after")
	s.create(buckets[0], "other", "")
	short := s.create(buckets[0], "k.short", "after")
	s.must(buckets[0].Delete(s.ctx, "k.short", short))
	heal()
	want := map[string]string{"k.changed": "after", "k.new": "after", "k.same": "before"}
	watched.await(s.t, "a watch is current again after an interruption", func() bool { return watched.current >= 2 })
	watched.awaitValues(s.t, want)
	begun.awaitValues(s.t, want)
	s.create(buckets[0], "k.later", "")
	want["k.later"] = ""
	watched.awaitValues(s.t, want)
	begun.awaitValues(s.t, want)
}

func (s *suite) wiped(wipe func()) {
	es := s.engines(2)
	buckets := s.buckets(cluster.BucketOptions{}, es...)
	watched := s.watch(buckets[1], "")
	revision := s.create(buckets[0], "old", "before")
	watched.awaitValues(s.t, map[string]string{"old": "before"})
	wipe()
	for _, e := range es {
		s.awaitConnected(e, true)
	}
	watched.await(s.t, "a watch yields that everything has gone", func() bool { return watched.has(0, 2) })
	s.await("a bucket that was lost is there again", func() bool {
		_, err := buckets[0].Update(s.ctx, "old", []byte("x"), revision)
		if !errors.Is(err, cluster.ErrUnavailable) {
			s.want("an update of what was lost", err, cluster.ErrConflict)
			return true
		}
		return false
	})
	s.create(buckets[0], "new", "after")
	watched.awaitValues(s.t, map[string]string{"new": "after"})
	s.awaitValue(buckets, "new", "after")
}

// expired returns when a watch saw that a key had expired.
func (v *view) awaitExpired(t rapid.TB, key string) time.Time {
	t.Helper()
	v.await(t, key+" has expired", func() bool { return !v.expired[key].IsZero() })
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.expired[key]
}

// early is by how much a value may seem to expire too early, because clocks have ticks.
const early = 20 * time.Millisecond

func (s *suite) valueExpires() {
	buckets := s.buckets(cluster.BucketOptions{TTL: time.Second, Memory: true}, s.engines(2)...)
	watched := s.watch(buckets[1], "")
	lasts := func(key string, since time.Time) {
		s.t.Helper()
		if took := watched.awaitExpired(s.t, key).Sub(since); took < time.Second-early {
			s.t.Errorf("%s expired after %v, want a second", key, took)
		}
	}
	created := time.Now()
	once := s.create(buckets[0], "once", "value")
	revision := s.create(buckets[0], "renewed", "value")
	putAt := time.Now()
	_, err := buckets[0].Put(s.ctx, "put", nil)
	s.must(err)
	s.must(wait.Sleep(s.ctx, 500*time.Millisecond))
	renewed := time.Now()
	revision, err = buckets[0].Update(s.ctx, "renewed", []byte("value"), revision)
	s.must(err)
	lasts("once", created)
	lasts("put", putAt)
	_, err = buckets[1].Update(s.ctx, "once", nil, once)
	s.want("an update of what has expired", err, cluster.ErrConflict)
	s.want("a delete of what has expired", buckets[0].Delete(s.ctx, "once", once), cluster.ErrConflict)
	again := s.create(buckets[0], "once", "again")
	if again <= revision {
		s.t.Errorf("after revision %d came %d", revision, again)
	}
	lasts("renewed", renewed)
	s.await("what has expired is not found", func() bool {
		_, err := buckets[0].Get(s.ctx, "renewed")
		return errors.Is(err, cluster.ErrNotFound)
	})
}

func (s *suite) ownTTL() {
	buckets := s.buckets(cluster.BucketOptions{OwnTTL: true}, s.engines(2)...)
	watched := s.watch(buckets[1], "")
	create := func(key string, ttl time.Duration) uint64 {
		s.t.Helper()
		revision, err := buckets[0].Create(s.ctx, key, []byte(key), ttl)
		s.must(err)
		return revision
	}
	create("for.ever", 0)
	revision := create("updated", time.Second)
	_, err := buckets[1].Update(s.ctx, "updated", []byte("updated"), revision)
	s.must(err)
	created := time.Now()
	create("short", 1) // a second, too
	create("long", 2*time.Second)
	_, err = buckets[1].Create(s.ctx, "short", nil, time.Second)
	s.want("a create of what has not expired", err, cluster.ErrExists)
	if took := watched.awaitExpired(s.t, "short").Sub(created); took < time.Second-early {
		s.t.Errorf("a TTL of a second took %v", took)
	}
	create("short", time.Second)
	if took := watched.awaitExpired(s.t, "long").Sub(created); took < 2*time.Second-early {
		s.t.Errorf("a TTL of two seconds took %v", took)
	}
	watched.awaitValues(s.t, map[string]string{"for.ever": "for.ever", "updated": "updated"})
}

func (s *suite) bucketTTLFirst() {
	buckets := s.buckets(cluster.BucketOptions{TTL: time.Second, OwnTTL: true}, s.engines(1)...)
	watched := s.watch(buckets[0], "")
	for key, ttl := range map[string]time.Duration{"none": 0, "long": time.Hour} {
		created := time.Now()
		_, err := buckets[0].Create(s.ctx, key, nil, ttl)
		s.must(err)
		if took := watched.awaitExpired(s.t, key).Sub(created); took < time.Second-early {
			s.t.Errorf("a TTL of a second took %v", took)
		}
	}
}
