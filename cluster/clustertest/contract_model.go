package clustertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/cluster"
)

// A model is what a bucket has to contain after random writes of several nodes. Writes are
// predicted exactly. Reads may show an older state, and have to show the present one in the end.
type model struct {
	s       *suite
	buckets []cluster.Bucket
	views   []*view
	prefix  string // of the keys of this case
	values  map[string]string
	latest  map[string]uint64   // the revisions of values
	former  map[string][]uint64 // revisions that were replaced or deleted
	all     map[string]map[uint64]string
	highest uint64
}

func newModel(s *suite) *model {
	m := &model{s: s, buckets: s.buckets(cluster.BucketOptions{}, s.engines(3)...)}
	for _, b := range m.buckets {
		m.views = append(m.views, s.watch(b, ""))
	}
	return m
}

func (m *model) check(rt *rapid.T) {
	m.prefix = m.s.name() + "."
	m.values, m.latest = map[string]string{}, map[string]uint64{}
	m.former, m.all = map[string][]uint64{}, map[string]map[uint64]string{}
	rt.Repeat(map[string]func(*rapid.T){
		"create": m.create,
		"update": m.update,
		"put":    m.put,
		"delete": m.remove,
		"get":    m.get,
		"settle": m.settle,
	})
	m.settle(rt)
}

func (m *model) draw(rt *rapid.T) (cluster.Bucket, string) {
	b := m.buckets[rapid.IntRange(0, len(m.buckets)-1).Draw(rt, "node")]
	return b, m.prefix + rapid.SampledFrom([]string{"k", "l", "m.n"}).Draw(rt, "key")
}

func (m *model) succeeds(rt *rapid.T, err error) {
	if err != nil {
		rt.Fatalf("want success, got %v", err)
	}
}

func (m *model) fails(rt *rapid.T, err, sentinel error) {
	if !errors.Is(err, sentinel) {
		rt.Fatalf("got %v, want %v", err, sentinel)
	}
}

func drawValue(rt *rapid.T) string { return strconv.Itoa(rapid.IntRange(0, 9).Draw(rt, "value")) }

// wrote records a value.
func (m *model) wrote(rt *rapid.T, key, value string, revision uint64) {
	if revision <= m.highest {
		rt.Fatalf("after revision %d came %d", m.highest, revision)
	}
	m.highest = revision
	m.replaced(key)
	m.values[key], m.latest[key] = value, revision
	if m.all[key] == nil {
		m.all[key] = map[uint64]string{}
	}
	m.all[key][revision] = value
}

func (m *model) replaced(key string) {
	if old, exists := m.latest[key]; exists {
		m.former[key] = append(m.former[key], old)
	}
	delete(m.values, key)
	delete(m.latest, key)
}

func (m *model) create(rt *rapid.T) {
	b, key := m.draw(rt)
	v := drawValue(rt)
	revision, err := b.Create(m.s.ctx, key, []byte(v), 0)
	if _, exists := m.values[key]; exists {
		m.fails(rt, err, cluster.ErrExists)
		return
	}
	m.succeeds(rt, err)
	m.wrote(rt, key, v, revision)
}

// revision draws the revision that a key has, or one that it had, or one that it never had.
func (m *model) revision(rt *rapid.T, key string) (revision uint64, latest bool) {
	revision, latest = m.latest[key], m.latest[key] > 0
	if former := m.former[key]; len(former) > 0 && rapid.Bool().Draw(rt, "former") {
		return rapid.SampledFrom(former).Draw(rt, "revision"), false
	}
	return revision, latest
}

func (m *model) update(rt *rapid.T) {
	b, key := m.draw(rt)
	v := drawValue(rt)
	revision, latest := m.revision(rt, key)
	revision, err := b.Update(m.s.ctx, key, []byte(v), revision)
	if !latest {
		m.fails(rt, err, cluster.ErrConflict)
		return
	}
	m.succeeds(rt, err)
	m.wrote(rt, key, v, revision)
}

func (m *model) put(rt *rapid.T) {
	b, key := m.draw(rt)
	v := drawValue(rt)
	revision, err := b.Put(m.s.ctx, key, []byte(v))
	m.succeeds(rt, err)
	m.wrote(rt, key, v, revision)
}

func (m *model) remove(rt *rapid.T) {
	b, key := m.draw(rt)
	revision, latest := m.revision(rt, key)
	err := b.Delete(m.s.ctx, key, revision)
	if !latest {
		m.fails(rt, err, cluster.ErrConflict)
		return
	}
	m.succeeds(rt, err)
	m.replaced(key)
}

// get checks that a read shows a value that there is or was.
func (m *model) get(rt *rapid.T) {
	b, key := m.draw(rt)
	entry, err := b.Get(m.s.ctx, key)
	if errors.Is(err, cluster.ErrNotFound) {
		return
	}
	m.succeeds(rt, err)
	if written, was := m.all[key][entry.Revision]; !was || written != string(entry.Value) || entry.Key != key {
		rt.Fatalf("get %s returned %+v, want one of %v", key, entry, m.all[key])
	}
}

// settle waits until every read shows the present state.
func (m *model) settle(rt *rapid.T) {
	for n, v := range m.views {
		v.await(rt, fmt.Sprintf("the watch of node %d has yielded %v", n, m.values), func() bool { return maps.Equal(m.ours(v.values), m.values) })
		v.inOrder(rt)
		v.mu.Lock()
		v.entries = v.entries[len(v.entries):]
		v.mu.Unlock()
	}
	want := slices.Sorted(maps.Keys(m.values))
	for n, b := range m.buckets {
		m.await(rt, fmt.Sprintf("node %d lists %q", n, want), func() bool {
			var keys []string
			for key, err := range b.Keys(m.s.ctx, m.prefix) {
				m.succeeds(rt, err)
				keys = append(keys, key)
			}
			slices.Sort(keys)
			return slices.Equal(keys, want)
		})
		for _, key := range []string{"k", "l", "m.n"} {
			m.await(rt, fmt.Sprintf("node %d has %v", n, m.values), func() bool { return m.shows(b, m.prefix+key) })
		}
	}
}

// ours returns the values of this case: one that failed before leaves its own behind.
func (m *model) ours(all map[string]string) map[string]string {
	ours := map[string]string{}
	for key, value := range all {
		if strings.HasPrefix(key, m.prefix) {
			ours[key] = value
		}
	}
	return ours
}

func (m *model) shows(b cluster.Bucket, key string) bool {
	entry, err := b.Get(m.s.ctx, key)
	want, exists := m.values[key]
	if !exists {
		return errors.Is(err, cluster.ErrNotFound)
	}
	return err == nil && string(entry.Value) == want && entry.Revision == m.latest[key] && strings.HasPrefix(entry.Key, m.prefix)
}

func (m *model) await(rt *rapid.T, what string, check func() bool) {
	for !check() {
		if m.s.ctx.Err() != nil {
			rt.Fatalf("still not: %s (%v)", what, context.Cause(m.s.ctx))
		}
	}
}
