package registry_test

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/supervisor/registry"
)

var (
	errExpired = errors.New("the lease has expired")
	errGap     = errors.New("the watch has fallen behind")
)

// A cluster is what processes share: names with a lease each, and a log of their changes. Messages to it are
// slow, answers may be lost, and watches may break off.
type cluster struct {
	mu      sync.Mutex
	leases  map[string]*lease
	log     []registry.Holding
	changed chan struct{} // closed by the next entry of the log
	random  *rand.Rand
}

// A lease is one claim. Its address identifies it.
type lease struct{ registry.Claim }

func newCluster(seed uint64) *cluster {
	return &cluster{leases: map[string]*lease{}, changed: make(chan struct{}), random: rand.New(rand.NewPCG(seed, 0))}
}

// member returns the Store of one process.
func (c *cluster) member() registry.Store { return member{c} }

// expire ends the lease of a name. Its holder gets Lost before the name is free.
func (c *cluster) expire(name string) {
	c.mu.Lock()
	l := c.leases[name]
	c.mu.Unlock()
	if l != nil {
		l.Lost(errExpired)
		c.give(l)
	}
}

// take gives the name to l if it is free, and returns the lease that has it then.
func (c *cluster) take(l *lease) *lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by := c.leases[l.Name]; by != nil {
		return by
	}
	c.leases[l.Name] = l
	c.note(l.Name, l.Holder)
	return l
}

// give frees the name of a lease, if it still has it.
func (c *cluster) give(l *lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.Name] == l {
		delete(c.leases, l.Name)
		c.note(l.Name, "")
	}
}

func (c *cluster) note(name, holder string) {
	c.log = append(c.log, registry.Holding{Name: name, Holder: holder})
	close(c.changed)
	c.changed = make(chan struct{})
}

// chance returns true with a probability of one in n.
func (c *cluster) chance(n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n) == 0
}

// travel waits as long as a message takes.
func (c *cluster) travel(ctx context.Context) error {
	c.mu.Lock()
	delay := time.Duration(c.random.IntN(100)) * time.Microsecond
	c.mu.Unlock()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}

type member struct{ cluster *cluster }

// Claim tries again until an answer arrives. The cluster gives the same answer each time.
func (m member) Claim(ctx context.Context, claim registry.Claim) (registry.Release, error) {
	l := &lease{claim}
	for {
		if err := m.cluster.travel(ctx); err != nil {
			m.cluster.give(l) // the lease would expire
			return nil, err
		}
		by := m.cluster.take(l)
		switch {
		case m.cluster.chance(4):
			continue // the answer was lost
		case by != l:
			return nil, &registry.TakenError{Name: claim.Name, Holder: by.Holder}
		}
		return m.release(l), nil
	}
}

func (m member) release(l *lease) registry.Release {
	return func(ctx context.Context) error {
		err := m.cluster.travel(ctx)
		m.cluster.give(l)
		return err
	}
}

func (m member) Watch(ctx context.Context) iter.Seq2[map[string]string, error] {
	return func(yield func(map[string]string, error) bool) {
		news, at, changed := m.all()
		for yield(news, nil) && m.await(ctx, changed) {
			if m.cluster.chance(8) {
				yield(nil, errGap)
				return
			}
			news, at, changed = m.since(at)
		}
	}
}

func (m member) await(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-changed:
		return m.cluster.travel(ctx) == nil
	case <-ctx.Done():
		return false
	}
}

func (m member) all() (all map[string]string, at int, changed <-chan struct{}) {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	all = map[string]string{}
	for name, l := range m.cluster.leases {
		all[name] = l.Holder
	}
	return all, len(m.cluster.log), m.cluster.changed
}

func (m member) since(at int) (news map[string]string, to int, changed <-chan struct{}) {
	m.cluster.mu.Lock()
	defer m.cluster.mu.Unlock()
	news = map[string]string{}
	for _, entry := range m.cluster.log[at:] {
		news[entry.Name] = entry.Holder
	}
	return news, len(m.cluster.log), m.cluster.changed
}
