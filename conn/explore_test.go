package conn

import (
	"flag"
	"fmt"
	"hash/maphash"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

var explore = flag.String("explore", "near", "how far TestExplore goes: near or full")

// TestExplore visits every state that a small world can come to, breadth
// first, and holds the invariants in each. In the ordinary run it goes a few
// steps; with -explore=full it goes on until a plan has no new states, or
// as many as the plan allows:
//
//	go test ./conn -run TestExplore -explore=full -v
//
// Guarantees: G-0001.1, G-0001.2, G-0001.6, G-0001.7, G-0001.10, G-0003.1, G-0003.2, G-0003.6, G-0003.10, G-0004.1, G-0009.2, G-0019.1, G-0019.4, G-0019.5
func TestExplore(t *testing.T) {
	for _, p := range plans() {
		t.Run(p.name, func(t *testing.T) {
			s := &search{plan: p, limit: nearby}
			if *explore == "full" {
				s.limit = p.full
			}
			began := time.Now()
			s.run()
			t.Logf("%d states, %d steps, depth %d, closed: %v, %v", len(s.nodes), s.steps, s.depth, s.closed, time.Since(began).Round(time.Millisecond))
			if s.found != nil {
				t.Fatal(s.found)
			}
		})
	}
}

// nearby is how many states of each plan the ordinary run visits.
const nearby = 1500

// A search goes through the states of a plan breadth first. It keeps no state,
// only how each was reached first, and gets it back by replaying that: so each
// state that is gone on from is reached twice, by a copy and by a replay, and
// both have to agree.
type search struct {
	plan   *plan
	limit  int
	nodes  []node
	seen   map[uint64]struct{}
	depth  int
	steps  int
	closed bool
	found  error
}

// A node is a state that was reached from its parent by a choice.
type node struct {
	hash   uint64
	digest uint64
	parent uint32
	choice choice
}

const block = 512 // states that are gone on from before the new ones are entered

func (s *search) run() {
	seed := maphash.MakeSeed()
	var f form
	root := newScene(s.plan)
	s.nodes = []node{{hash: maphash.Bytes(seed, f.write(root))}}
	s.seen = map[uint64]struct{}{s.nodes[0].hash: {}}
	if root.fault != nil {
		s.found = s.trace(nil, root.fault)
	}
	for from, layer := 0, 1; s.found == nil; s.depth++ {
		if s.closed = from == layer; s.closed {
			break
		}
		for ; from < layer && s.found == nil; from += block {
			if len(s.nodes) >= s.limit {
				return
			}
			s.enter(s.expand(seed, from, min(from+block, layer)))
		}
		from, layer = layer, len(s.nodes)
	}
}

// expand goes on from some states, on all processors.
func (s *search) expand(seed maphash.Seed, from, to int) []finding {
	workers := runtime.GOMAXPROCS(0)
	findings := make([]finding, workers)
	var all sync.WaitGroup
	for i := range workers {
		low, high := from+(to-from)*i/workers, from+(to-from)*(i+1)/workers
		all.Go(func() { s.work(&findings[i], seed, low, high) })
	}
	all.Wait()
	return findings
}

// A finding is what one worker has found.
type finding struct {
	nodes []node
	steps int
	path  []choice
	fault error
}

func (s *search) work(found *finding, seed maphash.Seed, from, to int) {
	var f form
	var next []choice
	mine := map[uint64]struct{}{}
	for at := from; at < to; at++ {
		w, path := s.replay(at)
		if got := maphash.Bytes(seed, f.write(w)); got != s.nodes[at].hash || at > 0 && w.digest != s.nodes[at].digest {
			found.path, found.fault = path, fmt.Errorf("a replay came to another state, or had other effects")
			return
		}
		next = w.choices(next[:0])
		for _, c := range next {
			twin := w.clone()
			twin.apply(c)
			found.steps++
			if twin.fault != nil {
				found.path, found.fault = append(path, c), twin.fault
				return
			}
			hash := maphash.Bytes(seed, f.write(twin))
			if _, known := s.seen[hash]; known {
				continue
			}
			if _, known := mine[hash]; !known {
				mine[hash] = struct{}{}
				found.nodes = append(found.nodes, node{hash, twin.digest, uint32(at), c})
			}
		}
	}
}

// enter takes over what the workers have found, in the order of the states
// they went on from.
func (s *search) enter(findings []finding) {
	for _, found := range findings {
		s.steps += found.steps
		for _, n := range found.nodes {
			if _, known := s.seen[n.hash]; !known {
				s.seen[n.hash] = struct{}{}
				s.nodes = append(s.nodes, n)
			}
		}
		if found.fault != nil && s.found == nil {
			s.found = s.trace(found.path, found.fault)
		}
	}
}

func (s *search) path(at int) []choice {
	var path []choice
	for ; at != 0; at = int(s.nodes[at].parent) {
		path = append(path, s.nodes[at].choice)
	}
	for i, j := 0, len(path)-1; i < j; i, j = i+1, j-1 {
		path[i], path[j] = path[j], path[i]
	}
	return path
}

func (s *search) replay(at int) (*scene, []choice) {
	w, path := newScene(s.plan), s.path(at)
	for _, c := range path {
		w.apply(c)
	}
	return w, path
}

// trace tells a history that breaks an invariant; there is no shorter one.
func (s *search) trace(path []choice, fault error) error {
	var text strings.Builder
	w := newScene(s.plan)
	w.talks = true
	for i, c := range path {
		w.said = w.said[:0]
		w.apply(c)
		fmt.Fprintf(&text, "%2d. %s\n", i+1, c)
		for _, line := range w.said {
			fmt.Fprintf(&text, "    %s\n", line)
		}
	}
	return fmt.Errorf("%w, after\n%s", fault, text.String())
}
