//bowline:pure

package clustertest

import (
	"bytes"
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/cluster"
)

// A store contains the values of one bucket.
type store struct {
	options cluster.BucketOptions
	last    uint64 // the highest revision there was
	values  map[string]value
	bytes   int64 // of keys and values
}

type value struct {
	data     []byte
	revision uint64
	expires  time.Time // zero: never
}

// size returns how much of BucketOptions.MaxBytes a value takes.
func size(key string, data []byte) int64 { return int64(len(key) + len(data)) }

func (s *store) create(now time.Time, key string, data []byte, ttl time.Duration) (uint64, error) {
	if _, exists := s.values[key]; exists {
		return 0, cluster.ErrExists
	}
	expires := s.expiry(now)
	if own := now.Add(ttl); ttl > 0 && (expires.IsZero() || own.Before(expires)) {
		expires = own
	}
	return s.write(key, data, expires)
}

func (s *store) update(now time.Time, key string, data []byte, revision uint64) (uint64, error) {
	if current, exists := s.values[key]; !exists || current.revision != revision {
		return 0, cluster.ErrConflict
	}
	return s.write(key, data, s.expiry(now))
}

func (s *store) put(now time.Time, key string, data []byte) (uint64, error) {
	return s.write(key, data, s.expiry(now))
}

// remove returns the revision of the deletion.
func (s *store) remove(key string, revision uint64) (uint64, error) {
	current, exists := s.values[key]
	if !exists || current.revision != revision {
		return 0, cluster.ErrConflict
	}
	s.drop(key, current)
	return s.last, nil
}

func (s *store) write(key string, data []byte, expires time.Time) (uint64, error) {
	after := s.bytes + size(key, data)
	if old, exists := s.values[key]; exists {
		after -= size(key, old.data)
	}
	if s.options.MaxBytes > 0 && after > s.options.MaxBytes {
		return 0, cluster.ErrFull
	}
	s.bytes = after
	s.last++
	s.values[key] = value{bytes.Clone(data), s.last, expires}
	return s.last, nil
}

func (s *store) drop(key string, old value) {
	s.bytes -= size(key, old.data)
	s.last++
	delete(s.values, key)
}

// expiry returns when a value that is written now expires; the zero time means never.
func (s *store) expiry(now time.Time) time.Time {
	if s.options.TTL == 0 {
		return time.Time{}
	}
	return now.Add(s.options.TTL)
}

// expire removes what has expired, in the order of expiry, and returns it as deleted.
func (s *store) expire(now time.Time) []cluster.Entry {
	var gone []string
	for key, v := range s.values {
		if !v.expires.IsZero() && !v.expires.After(now) {
			gone = append(gone, key)
		}
	}
	slices.SortFunc(gone, func(a, b string) int {
		return cmp.Or(s.values[a].expires.Compare(s.values[b].expires), cmp.Compare(s.values[a].revision, s.values[b].revision))
	})
	var deleted []cluster.Entry
	for _, key := range gone {
		s.drop(key, s.values[key])
		deleted = append(deleted, cluster.Entry{Key: key, Revision: s.last, Deleted: true})
	}
	return deleted
}

// nextExpiry returns when the next value expires, or the zero time.
func (s *store) nextExpiry() time.Time {
	var next time.Time
	for _, v := range s.values {
		if !v.expires.IsZero() && (next.IsZero() || v.expires.Before(next)) {
			next = v.expires
		}
	}
	return next
}

// clone copies a store; data is shared, because nobody changes it.
func (s *store) clone() *store {
	c := *s
	c.values = make(map[string]value, len(s.values))
	for key, v := range s.values {
		c.values[key] = v
	}
	return &c
}

// entries returns the values of the keys with a prefix, in order of revision.
func (s *store) entries(prefix string) []cluster.Entry {
	var all []cluster.Entry
	for key, v := range s.values {
		if strings.HasPrefix(key, prefix) {
			all = append(all, cluster.Entry{Key: key, Value: bytes.Clone(v.data), Revision: v.revision})
		}
	}
	slices.SortFunc(all, func(a, b cluster.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	return all
}
