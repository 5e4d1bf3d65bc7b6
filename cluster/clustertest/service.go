package clustertest

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
)

// Options configure a Service.
type Options struct {
	// Silence is how long an Engine that was cut off takes to notice it. Until then what it
	// sends is lost without a word, as on a connection that is half open. 0: it notices at
	// once.
	Silence time.Duration

	// Queue is how many messages wait for a function given to Subscribe. Default: 1,024.
	Queue int
}

// A Service is what the Engines of several nodes share, in memory. Its methods are safe for
// concurrent use.
type Service struct {
	options Options

	mu      sync.Mutex
	engines []*Engine
	buckets map[string]*store
	full    bool
	expiry  *time.Timer // for the next value that expires
}

// New returns a Service without buckets.
func New(o Options) *Service {
	o.Queue = cmp.Or(o.Queue, 1024)
	return &Service{options: o, buckets: map[string]*store{}}
}

// Engine connects one more node. The caller closes the Engine.
func (s *Service) Engine() *Engine {
	e := newEngine(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engines = append(s.engines, e)
	return e
}

// Full makes every write fail with ErrFull, as if the disk were full, or ends that.
func (s *Service) Full(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.full = full
}

// Values yields the key and the value of everything that is stored, of all buckets: what somebody
// can read who can read the storage. A key begins with the name of its bucket and "/".
func (s *Service) Values() iter.Seq2[string, []byte] {
	all := map[string][]byte{}
	s.mu.Lock()
	for name, b := range s.buckets {
		for key, v := range b.values {
			all[name+"/"+key] = v.data
		}
	}
	s.mu.Unlock()
	return maps.All(all)
}

// Restart interrupts all connections for a moment, and loses the buckets with Memory.
func (s *Service) Restart() { s.restart(func(b *store) bool { return b.options.Memory }) }

// Wipe interrupts all connections for a moment, and loses all buckets: revisions begin anew.
func (s *Service) Wipe() { s.restart(func(*store) bool { return true }) }

func (s *Service) restart(loses func(*store) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, b := range s.buckets {
		if loses(b) {
			delete(s.buckets, name)
		}
	}
	for _, e := range s.engines {
		if !e.cut {
			e.interrupt()
			e.notice()
			e.resume()
		}
	}
}

// bucket returns a bucket, and creates it if it does not exist.
func (s *Service) bucket(o cluster.BucketOptions) (*store, error) {
	b, exists := s.buckets[o.Name]
	if !exists {
		b = &store{options: o, values: map[string]value{}}
		s.buckets[o.Name] = b
	}
	if b.options != o {
		return nil, &cluster.SettingsError{Bucket: o.Name, Detail: fmt.Sprintf("it has %+v, and not %+v", b.options, o)}
	}
	return b, nil
}

// write changes a bucket, and tells who watches it.
func (s *Service) write(o cluster.BucketOptions, change func(b *store, now time.Time) (cluster.Entry, error)) (uint64, error) {
	s.expire()
	b, err := s.bucket(o)
	if err != nil {
		return 0, err
	}
	if s.full {
		return 0, cluster.ErrFull
	}
	changed, err := change(b, time.Now())
	if err != nil {
		return 0, err
	}
	s.changed(o.Name, changed)
	s.schedule()
	return changed.Revision, nil
}

func (s *Service) changed(bucket string, entry cluster.Entry) {
	for _, e := range s.engines {
		e.changed(bucket, entry)
	}
}

// expire removes what has expired by now.
func (s *Service) expire() {
	for _, name := range slices.Sorted(maps.Keys(s.buckets)) {
		for _, gone := range s.buckets[name].expire(time.Now()) {
			s.changed(name, gone)
		}
	}
}

// schedule sets the timer for the next value that expires.
func (s *Service) schedule() {
	var next time.Time
	for _, b := range s.buckets {
		if at := b.nextExpiry(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if s.expiry != nil {
		s.expiry.Stop()
	}
	s.expiry = nil
	if !next.IsZero() {
		s.expiry = time.AfterFunc(time.Until(next), s.expireNow)
	}
}

func (s *Service) expireNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	s.schedule()
}

// remove forgets an Engine that is closed. Without Engines, no timer runs.
func (s *Service) remove(e *Engine) {
	s.engines = slices.DeleteFunc(s.engines, func(other *Engine) bool { return other == e })
	if len(s.engines) == 0 && s.expiry != nil {
		s.expiry.Stop()
		s.expiry = nil
	}
}
