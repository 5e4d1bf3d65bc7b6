// Package explore visits every state that a small model can reach: a pure core and
// the state of its environment. In every state it tries every possible choice,
// breadth first, so a history that breaks an invariant is a shortest one.
package explore

import (
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// A World says how to explore scenes S by choices C.
type World[S, C any] struct {
	New     func() S
	Choices func(s S, to []C) []C // appends the choices that are possible in a state
	Apply   func(s S, c C)
	Clone   func(S) S // returns a copy that is independent of the original

	// Form returns a function that writes the canonical form of a scene. Scenes with
	// equal forms behave equally from then on. The form is valid until the next call.
	Form func() func(S) []byte

	Digest func(S) uint64 // a digest of the effects of the last choice
	Fault  func(S) error  // returns which invariant is broken; nil if none is

	// Talk makes a scene describe its following effects. Said returns the
	// descriptions since the last call of Said.
	Talk func(S)
	Said func(S) []string
}

// A Search goes through the states of a world. It stores no state, only how each
// was reached first, and replays that to get the state again. So each state with
// successors is reached twice, by a copy and by a replay. If the two differ, the core is
// not deterministic, or Clone is wrong.
type Search[S, C any] struct {
	World World[S, C]
	Limit int // the maximum number of states

	Steps  int
	Depth  int
	Closed bool  // all states were found
	Found  error // an error that describes a history which breaks an invariant

	nodes []node[C]
	seen  map[uint64]struct{}
	seed  maphash.Seed
}

// A node is a state that was reached from its parent by a choice.
type node[C any] struct {
	hash   uint64
	digest uint64
	parent uint32
	choice C
}

// States is how many were visited.
func (s *Search[S, C]) States() int { return len(s.nodes) }

const block = 512 // how many states are expanded before the new states are stored

// Run explores until there are no other states, or as many as the limit says,
// or one breaks an invariant.
func (s *Search[S, C]) Run() {
	s.seed = maphash.MakeSeed()
	root := s.World.New()
	s.nodes = []node[C]{{hash: maphash.Bytes(s.seed, s.World.Form()(root))}}
	s.seen = map[uint64]struct{}{s.nodes[0].hash: {}}
	if fault := s.World.Fault(root); fault != nil {
		s.Found = s.trace(nil, fault)
	}
	for from, layer := 0, 1; s.Found == nil; s.Depth++ {
		if s.Closed = from == layer; s.Closed {
			break
		}
		for ; from < layer && s.Found == nil; from += block {
			if len(s.nodes) >= s.Limit {
				return
			}
			s.enter(s.expand(from, min(from+block, layer)))
		}
		from, layer = layer, len(s.nodes)
	}
}

// expand finds the successors of some states, on all processors.
func (s *Search[S, C]) expand(from, to int) []finding[C] {
	workers := runtime.GOMAXPROCS(0)
	findings := make([]finding[C], workers)
	var all sync.WaitGroup
	for i := range workers {
		low, high := from+(to-from)*i/workers, from+(to-from)*(i+1)/workers
		all.Go(func() { s.work(&findings[i], low, high) })
	}
	all.Wait()
	return findings
}

// A finding is what one worker has found.
type finding[C any] struct {
	nodes []node[C]
	steps int
	path  []C
	fault error
}

func (s *Search[S, C]) work(found *finding[C], from, to int) {
	form := s.World.Form()
	var next []C
	mine := map[uint64]struct{}{}
	for at := from; at < to; at++ {
		scene, path := s.replay(at)
		if got := maphash.Bytes(s.seed, form(scene)); got != s.nodes[at].hash || at > 0 && s.World.Digest(scene) != s.nodes[at].digest {
			found.path, found.fault = path, fmt.Errorf("a replay came to another state, or had other effects")
			return
		}
		next = s.World.Choices(scene, next[:0])
		for _, c := range next {
			twin := s.World.Clone(scene)
			s.World.Apply(twin, c)
			found.steps++
			if fault := s.World.Fault(twin); fault != nil {
				found.path, found.fault = append(path, c), fault
				return
			}
			hash := maphash.Bytes(s.seed, form(twin))
			if _, known := s.seen[hash]; known {
				continue
			}
			if _, known := mine[hash]; !known {
				mine[hash] = struct{}{}
				found.nodes = append(found.nodes, node[C]{hash, s.World.Digest(twin), uint32(at), c})
			}
		}
	}
}

// enter stores what the workers have found, in the order of the states from
// which they started.
func (s *Search[S, C]) enter(findings []finding[C]) {
	for _, found := range findings {
		s.Steps += found.steps
		for _, n := range found.nodes {
			if _, known := s.seen[n.hash]; !known {
				s.seen[n.hash] = struct{}{}
				s.nodes = append(s.nodes, n)
			}
		}
		if found.fault != nil && s.Found == nil {
			s.Found = s.trace(found.path, found.fault)
		}
	}
}

func (s *Search[S, C]) path(at int) []C {
	var path []C
	for ; at != 0; at = int(s.nodes[at].parent) {
		path = append(path, s.nodes[at].choice)
	}
	slices.Reverse(path)
	return path
}

func (s *Search[S, C]) replay(at int) (S, []C) {
	scene, path := s.World.New(), s.path(at)
	for _, c := range path {
		s.World.Apply(scene, c)
	}
	return scene, path
}

// trace returns an error that describes a history which breaks an invariant.
func (s *Search[S, C]) trace(path []C, fault error) error {
	var text strings.Builder
	scene := s.World.New()
	s.World.Talk(scene)
	for i, c := range path {
		s.World.Said(scene)
		s.World.Apply(scene, c)
		fmt.Fprintf(&text, "%2d. %v\n", i+1, c)
		for _, line := range s.World.Said(scene) {
			fmt.Fprintf(&text, "    %s\n", line)
		}
	}
	return fmt.Errorf("%w, after\n%s", fault, text.String())
}
