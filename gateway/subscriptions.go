package gateway

import (
	"maps"
	"slices"
	"sync"
)

// A subscriptions counts how many clients have subscribed to each resource of a server. Its zero value is ready.
type subscriptions struct {
	mu     sync.Mutex
	counts map[string]map[string]int // by server and URI
}

// add counts one more.
func (s *subscriptions) add(name, uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = make(map[string]map[string]int)
	}
	if s.counts[name] == nil {
		s.counts[name] = make(map[string]int)
	}
	s.counts[name][uri]++
}

// remove counts one less, and reports whether that was the last one.
func (s *subscriptions) remove(name, uri string) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uris := s.counts[name]
	switch uris[uri] {
	case 0: // another one was quicker
		return false
	case 1:
	default:
		uris[uri]--
		return false
	}
	if delete(uris, uri); len(uris) == 0 {
		delete(s.counts, name)
	}
	return true
}

// serverOf returns a server at which somebody has subscribed to a URI. The catalogue may name another one by now, so it is not asked.
func (s *subscriptions) serverOf(uri string) (name string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, uris := range s.counts {
		if uris[uri] > 0 {
			return name, true
		}
	}
	return "", false
}

// of returns the URIs to which somebody has subscribed at a server.
func (s *subscriptions) of(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.counts[name]))
}
