package gateway

import (
	"maps"
	"slices"
	"sync"
)

// A subscriptions counts how many clients have subscribed to each resource of a server, over each connection. Its zero value is ready.
type subscriptions struct {
	mu     sync.Mutex
	counts map[string]map[string]int // by the name of the session and URI
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

// remove counts one less, unless another one was quicker, and reports whether that was the last one.
func (s *subscriptions) remove(name, uri string) (counted, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uris := s.counts[name]
	if uris[uri] == 0 {
		return false, false
	}
	if uris[uri]--; uris[uri] > 0 {
		return true, false
	}
	if delete(uris, uri); len(uris) == 0 {
		delete(s.counts, name)
	}
	return true, true
}

// at returns over which connections somebody has subscribed to a URI.
func (s *subscriptions) at(uri string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, uris := range s.counts {
		if uris[uri] > 0 {
			names = append(names, name)
		}
	}
	return names
}

// forget forgets all subscriptions over a connection that nobody will have again.
func (s *subscriptions) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.counts, name)
}

// of returns the URIs to which somebody has subscribed over a connection.
func (s *subscriptions) of(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.counts[name]))
}
