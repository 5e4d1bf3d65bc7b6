package clustertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
)

func (s *suite) keepsSettings() {
	es := s.engines(2)
	o := cluster.BucketOptions{Name: s.name(), TTL: time.Hour, MaxBytes: 1 << 20, MaxValue: 1000, Memory: true}
	for _, e := range es {
		_, err := e.Bucket(s.ctx, o)
		s.must(err)
	}
	for what, change := range map[string]func(*cluster.BucketOptions){
		"TTL":      func(o *cluster.BucketOptions) { o.TTL++ },
		"OwnTTL":   func(o *cluster.BucketOptions) { o.OwnTTL = true },
		"MaxBytes": func(o *cluster.BucketOptions) { o.MaxBytes-- },
		"MaxValue": func(o *cluster.BucketOptions) { o.MaxValue++ },
		"Memory":   func(o *cluster.BucketOptions) { o.Memory = false },
	} {
		other := o
		change(&other)
		_, err := es[1].Bucket(s.ctx, other)
		var settings *cluster.SettingsError
		if !errors.As(err, &settings) || settings.Bucket != o.Name || settings.Detail == "" {
			s.t.Errorf("a bucket with another %s got %v, want a SettingsError", what, err)
		}
	}
}

// race runs a function at every Engine, several times at once.
func race(buckets []cluster.Bucket, f func(n int, b cluster.Bucket)) {
	var group sync.WaitGroup
	for n := range 16 {
		group.Go(func() { f(n, buckets[n%len(buckets)]) })
	}
	group.Wait()
}

func (s *suite) oneCreateWins() {
	buckets := s.buckets(cluster.BucketOptions{}, s.engines(3)...)
	for round := range 8 {
		var mu sync.Mutex
		var winners []string
		key := fmt.Sprintf("key.%d", round)
		race(buckets, func(n int, b cluster.Bucket) {
			value := strconv.Itoa(n)
			_, err := b.Create(s.ctx, key, []byte(value), 0)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				winners = append(winners, value)
			} else {
				s.want("a create among many", err, cluster.ErrExists)
			}
		})
		if len(winners) != 1 {
			s.t.Fatalf("%d of 16 creates have the key", len(winners))
		}
		s.awaitValue(buckets, key, winners[0])
	}
}

// awaitValue waits until every Engine shows a value.
func (s *suite) awaitValue(buckets []cluster.Bucket, key, want string) {
	s.t.Helper()
	for _, b := range buckets {
		s.await(fmt.Sprintf("%s has the value %q", key, want), func() bool {
			entry, err := b.Get(s.ctx, key)
			return err == nil && string(entry.Value) == want && entry.Key == key
		})
	}
}

func (s *suite) oneUpdateWins() {
	buckets := s.buckets(cluster.BucketOptions{}, s.engines(3)...)
	revision := s.create(buckets[0], "k", "")
	for range 8 {
		var mu sync.Mutex
		var winners []string
		next := uint64(0)
		race(buckets, func(n int, b cluster.Bucket) {
			value := strconv.Itoa(n)
			written, err := b.Update(s.ctx, "k", []byte(value), revision)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				winners, next = append(winners, value), written
			} else {
				s.want("an update among many", err, cluster.ErrConflict)
			}
		})
		if len(winners) != 1 || next <= revision {
			s.t.Fatalf("%d of 16 updates of revision %d have won, the last with revision %d", len(winners), revision, next)
		}
		revision = next
		s.awaitValue(buckets, "k", winners[0])
	}
}

func (s *suite) deletedKeyIsFree() {
	buckets := s.buckets(cluster.BucketOptions{}, s.engines(3)...)
	before := uint64(0)
	for n := range 30 {
		b, other := buckets[n%3], buckets[(n+1)%3]
		revision := s.create(b, "k", strconv.Itoa(n))
		if revision <= before {
			s.t.Fatalf("after revision %d came %d", before, revision)
		}
		before = revision
		_, err := other.Create(s.ctx, "k", nil, 0)
		s.want("a create of a key with a value", err, cluster.ErrExists)
		s.must(other.Delete(s.ctx, "k", revision))
	}
	for _, b := range buckets {
		s.await("the key is gone", func() bool {
			_, err := b.Get(s.ctx, "k")
			return errors.Is(err, cluster.ErrNotFound)
		})
	}
}

func (s *suite) otherRevisionsConflict() {
	buckets := s.buckets(cluster.BucketOptions{}, s.engines(2)...)
	a, b := buckets[0], buckets[1]
	conflicts := func(what string, revisions ...uint64) {
		s.t.Helper()
		for _, revision := range revisions {
			_, err := b.Update(s.ctx, "k", []byte("wrong"), revision)
			s.want(fmt.Sprintf("update of %s with revision %d", what, revision), err, cluster.ErrConflict)
			s.want(fmt.Sprintf("delete of %s with revision %d", what, revision), b.Delete(s.ctx, "k", revision), cluster.ErrConflict)
		}
	}
	conflicts("a key that never was", 0, 1)
	first := s.create(a, "k", "1")
	other := s.create(a, "other", "")
	conflicts("a value", 0, other, other+1)
	second, err := b.Update(s.ctx, "k", []byte("2"), first)
	s.must(err)
	conflicts("a value that was updated", first)
	third, err := a.Put(s.ctx, "k", []byte("3"))
	s.must(err)
	conflicts("a value that was put", second)
	s.must(b.Delete(s.ctx, "k", third))
	conflicts("a key that was deleted", 0, third)
	if !(first < other && other < second && second < third) {
		s.t.Errorf("the revisions are %v, and do not rise", []uint64{first, other, second, third})
	}
	fourth, err := a.Put(s.ctx, "k", []byte("4"))
	s.must(err)
	if fourth <= third {
		s.t.Errorf("after a deletion, revision %d became %d", third, fourth)
	}
	s.awaitValue(buckets, "k", "4")
}

func (s *suite) valuesAreCopied() {
	es := s.engines(2)
	buckets := s.buckets(cluster.BucketOptions{}, es...)
	value := bytes.Repeat([]byte("0123456789abcdef"), cluster.MaxMessage/16)
	whole := bytes.Clone(value)
	_, err := buckets[0].Create(s.ctx, "long", value, 0)
	s.must(err)
	clear(value)
	s.awaitValue(buckets, "long", string(whole))
	entry, err := buckets[1].Get(s.ctx, "long")
	s.must(err)
	clear(entry.Value)
	s.awaitValue(buckets, "long", string(whole))
	_, err = buckets[0].Put(s.ctx, "empty", nil)
	s.must(err)
	s.awaitValue(buckets, "empty", "")
}

func (s *suite) fullBucket() {
	buckets := s.buckets(cluster.BucketOptions{MaxBytes: 8 << 10}, s.engines(2)...)
	revisions := map[string]uint64{}
	fill := func(value []byte) {
		for n := 0; ; n++ {
			key := fmt.Sprintf("%d.%d", len(value), n)
			revision, err := buckets[n%2].Create(s.ctx, key, value, 0)
			if errors.Is(err, cluster.ErrFull) {
				return
			}
			s.must(err)
			if revisions[key] = revision; n > 1000 {
				s.t.Fatalf("a bucket of 8 KiB has accepted %d values of %d bytes", n, len(value))
			}
		}
	}
	fill(make([]byte, 1000))
	fill(nil)
	if len(revisions) < 4 {
		s.t.Errorf("a bucket of 8 KiB has accepted %d values", len(revisions))
	}
	for key, revision := range revisions {
		s.must(buckets[0].Delete(s.ctx, key, revision))
		_, err := buckets[1].Update(s.ctx, key, nil, revision)
		s.want("an update of what was deleted", err, cluster.ErrConflict)
	}
	s.create(buckets[1], "again", string(make([]byte, 1000)))
}

func (s *suite) keysByPrefix() {
	buckets := s.buckets(cluster.BucketOptions{}, s.engines(2)...)
	for _, key := range []string{"a", "a.b", "a.b.c", "ab.c", "b.x", "A.x", "a.=_-9"} {
		s.create(buckets[0], key, "value")
	}
	s.must(buckets[0].Delete(s.ctx, "b.a", s.create(buckets[0], "b.a", "value")))
	for prefix, want := range map[string][]string{
		"":     {"A.x", "a", "a.=_-9", "a.b", "a.b.c", "ab.c", "b.x"},
		"a.":   {"a.=_-9", "a.b", "a.b.c"},
		"a.b.": {"a.b.c"},
		"c.":   nil,
	} {
		for _, b := range buckets {
			s.await(fmt.Sprintf("the keys with prefix %q are %q", prefix, want), func() bool { return slices.Equal(s.keys(b, prefix), want) })
		}
	}
	for _, err := range buckets[1].Keys(s.ctx, "") {
		s.must(err)
		break
	}
}

func (s *suite) keys(b cluster.Bucket, prefix string) (all []string) {
	s.t.Helper()
	for key, err := range b.Keys(s.ctx, prefix) {
		s.must(err)
		all = append(all, key)
	}
	slices.Sort(all)
	return all
}

func (s *suite) endedContext() {
	e := s.engines(1)[0]
	b := s.buckets(cluster.BucketOptions{}, e)[0]
	revision := s.create(b, "k", "value")
	ended, cancel := context.WithCancel(s.ctx)
	cancel()
	for range 8 { // repeated, because a wrong Engine may pass by chance
		s.unavailable(ended, e, b, revision)
	}
	s.awaitValue([]cluster.Bucket{b}, "k", "value")
	s.await("the only key is k, after a context that had ended", func() bool { return slices.Equal(s.keys(b, ""), []string{"k"}) })
}

// unavailable checks that everything fails at the latest when ctx ends.
func (s *suite) unavailable(ctx context.Context, e cluster.Engine, b cluster.Bucket, revision uint64) {
	s.t.Helper()
	for what, do := range map[string]func() error{
		"Bucket":    func() error { _, err := e.Bucket(ctx, cluster.BucketOptions{Name: "never"}); return err },
		"Subscribe": func() error { _, err := e.Subscribe(ctx, "s", func(cluster.Message) {}); return err },
		"Answer": func() error {
			_, err := e.Answer(ctx, "s", func(context.Context, []byte) []byte { return nil })
			return err
		},
		"Request": func() error { _, err := e.Request(ctx, "s", nil); return err },
		"Create":  func() error { _, err := b.Create(ctx, "never", nil, 0); return err },
		"Update":  func() error { _, err := b.Update(ctx, "k", []byte("late"), revision); return err },
		"Put":     func() error { _, err := b.Put(ctx, "never", nil); return err },
		"Delete":  func() error { return b.Delete(ctx, "k", revision) },
		"Get":     func() error { _, err := b.Get(ctx, "k"); return err },
		"Keys":    func() error { return last(b.Keys(ctx, "")) },
	} {
		s.want(what, do(), cluster.ErrUnavailable)
	}
}
