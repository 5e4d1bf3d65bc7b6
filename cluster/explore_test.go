package cluster

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/explore"
)

var reach = flag.String("explore", "near", "how far TestExplore goes: near or full")

// nearbyLimit is how many states of each plan are visited by default.
const nearbyLimit = 2_000

// A plan is a small environment to be searched: processes, and what may happen to them.
type plan struct {
	name    string
	slow    [maxProcesses]bool // processes whose clock runs slow
	delayed [maxProcesses]bool // processes whose lease is written by messages that may be late
	lagging [maxProcesses]bool // processes to which the watch shows changes late
	claims  bool               // there are no leases, but a key that the processes claim
	session bool               // process 0 owns a session
	events  []choiceKind
	full    int // how many states the full search visits
	mistake mistake
}

// A mistake is made in the code around the pure machines, so that the search must find it.
type mistake uint8

const (
	noMistake       mistake = iota
	countsFromReply         // the time of a hold is counted from the answer
	clockTooSlow            // a clock loses more than 3 s in 17 s
	checksByTimer           // a hold is over only when the timer has said so
	takesByPut              // a session is taken by a write that replaces anything
	keepsTerm               // a lease that is made again has the same term
	believesReads           // a node calls others dead because one read does not find a lease
	confirmsAlways          // the view always counts as current
	doesNotWait             // a node calls others dead that it has never seen
	believesLists           // what a list does not show is taken for ended
	mistakes
)

func plans() []*plan {
	first, second, third := [maxProcesses]bool{true}, [maxProcesses]bool{false, true}, [maxProcesses]bool{true, false, true}
	messages := []choiceKind{ticks, completes, arrives, answers, losesAnswer, abandons}
	return []*plan{
		{name: "claims", claims: true, slow: first, full: 30_000,
			events: append(messages[:len(messages):len(messages)], pauses, resumes, cuts, heals, claimsKey, releasesKey, crashes)},
		{name: "claims and the watch", claims: true, slow: second, lagging: [maxProcesses]bool{true, true}, full: 30_000,
			events: []choiceKind{ticks, completes, shows, compacts, pauses, resumes, cuts, heals, claimsKey, releasesKey}},
		{name: "one name", delayed: third, slow: first, full: 30_000,
			events: append(messages[:len(messages):len(messages)], pauses, resumes, cuts, heals, crashes, starts)},
		{name: "sessions", session: true, slow: first, lagging: second, full: 30_000,
			events: []choiceKind{ticks, shows, compacts, completes, pauses, resumes, cuts, heals, saves, takes, takesStale, crashes, denies}},
		{name: "sessions after a restart", session: true, slow: second, lagging: second, full: 30_000,
			events: []choiceKind{ticks, shows, completes, saves, takes, takesStale, crashes, starts, denies, cuts, heals, joins}},
	}
}

// TestExplore visits the states that two nodes and an engine can reach, breadth first, and
// checks in each that nobody believes in a key that somebody else can have, that no session is
// taken from an owner that has its lease, and that once the faults end, every session has an
// owner again, every free key can be claimed, and every process has its lease.
// By default it visits nearbyLimit states of each plan. With -explore=full it continues until
// a plan has no new states, or up to the limit of the plan:
//
//	go test ./cluster -run TestExplore -explore=full -v
//
// Guarantees: G-0076.1, G-0076.2, G-0076.3, G-0076.4
func TestExplore(t *testing.T) {
	for _, p := range plans() {
		t.Run(p.name, func(t *testing.T) {
			s := &explore.Search[*environment, choice]{World: p.world(), Limit: nearbyLimit}
			if *reach == "full" {
				s.Limit = p.full
			}
			began := time.Now()
			s.Run()
			t.Logf("%d states, %d steps, depth %d, closed: %v, %v", s.States(), s.Steps, s.Depth, s.Closed, time.Since(began).Round(time.Millisecond))
			if s.Found != nil {
				t.Fatal(s.Found)
			}
		})
	}
}

// TestExploreFar goes random ways through the same plans, further than the search comes. By
// default it goes nearbyWays, and with -explore=full 50 times as many.
//
// Guarantees: G-0076.1, G-0076.2, G-0076.3, G-0076.4
func TestExploreFar(t *testing.T) {
	ways := uint64(nearbyWays)
	if *reach == "full" {
		ways *= 50
	}
	for _, p := range plans() {
		t.Run(p.name, func(t *testing.T) {
			for seed := range ways {
				if path, fault := p.walk(seed); fault != nil {
					t.Fatal(p.describe(path, fault))
				}
			}
		})
	}
}

// nearbyWays is how many random ways through each plan are gone by default.
const nearbyWays = 2_000

// TestExploreFindsMistakes makes mistakes, and checks that a few random ways find each of them.
func TestExploreFindsMistakes(t *testing.T) {
	for m := noMistake + 1; m < mistakes; m++ {
		t.Run(mistakeNames[m], func(t *testing.T) {
			for seed := range uint64(nearbyWays) {
				for _, p := range plans() {
					p.mistake = m
					if path, fault := p.walk(seed); fault != nil {
						t.Logf("way %d of plan %q: %v", seed, p.name, p.describe(path, fault))
						return
					}
				}
			}
			t.Error("not found")
		})
	}
}

// walk goes a random way. If that breaks an invariant, it returns the choices that it has made.
func (p *plan) walk(seed uint64) ([]choice, error) {
	random := rand.New(rand.NewPCG(seed, 0))
	env := newEnvironment(p)
	var path, all []choice
	for range 10 + random.IntN(80) {
		all = env.choices(all[:0])
		path = append(path, all[random.IntN(len(all))])
		env.apply(path[len(path)-1])
		if fault := env.consistent(); fault != nil {
			return path, fault
		}
	}
	return path, env.settle()
}

// describe leaves out choices that the fault does not need, and describes the others.
func (p *plan) describe(path []choice, fault error) string {
	for shorter := true; shorter; {
		shorter = false
		for i := len(path) - 1; i >= 0; i-- {
			without := slices.Delete(slices.Clone(path), i, i+1)
			if found := p.replay(without, nil); found != nil {
				path, fault, shorter = without, found, true
			}
		}
	}
	text := fmt.Sprintf("%v, after\n", fault)
	_ = p.replay(path, func(c choice, said []string) {
		text += fmt.Sprintf("    %v\n        %s\n", c, strings.Join(said, "\n        "))
	})
	return text
}

// replay makes choices as far as they are possible, and returns which invariant is broken.
func (p *plan) replay(path []choice, tell func(choice, []string)) error {
	env := newEnvironment(p)
	env.tracing = tell != nil
	for _, c := range path {
		if !slices.Contains(env.choices(nil), c) {
			continue
		}
		env.apply(c)
		if tell != nil {
			tell(c, env.trace)
			env.trace = nil
		}
		if fault := env.consistent(); fault != nil {
			return fault
		}
	}
	return env.settle()
}

var mistakeNames = [mistakes]string{
	countsFromReply: "counts from the answer", clockTooSlow: "a clock that is too slow", checksByTimer: "checks by timer alone",
	takesByPut: "takes by put", keepsTerm: "keeps the term", believesReads: "believes reads", confirmsAlways: "never asks if the view is current",
	doesNotWait: "does not wait", believesLists: "believes lists",
}

// world returns what the search needs to know about the plan's environment.
func (p *plan) world() explore.World[*environment, choice] {
	return explore.World[*environment, choice]{
		New:     func() *environment { return newEnvironment(p) },
		Choices: (*environment).choices,
		Apply:   (*environment).apply,
		Clone:   (*environment).clone,
		Form:    func() func(*environment) []byte { return new(encoder).encode },
		Digest:  func(env *environment) uint64 { return env.digest },
		Fault:   (*environment).check,
		Talk:    func(env *environment) { env.tracing = true },
		Said: func(env *environment) []string {
			said := env.trace
			env.trace = nil
			return said
		},
	}
}

// A choice is one event that may happen next: to a process, or to a message on its way.
type choice struct {
	kind choiceKind
	at   uint8
}

func (c choice) String() string { return fmt.Sprintf("%s %d", c.kind, c.at) }

type choiceKind string

const (
	ticks       choiceKind = "a renewal interval passes"
	arrives     choiceKind = "the engine gets message"
	answers     choiceKind = "the sender gets the answer to message"
	completes   choiceKind = "the engine gets, and the sender gets the answer to, message"
	losesAnswer choiceKind = "an answer is lost, to message"
	abandons    choiceKind = "the sender gives up message" // the engine may get it later
	shows       choiceKind = "the watch shows the next change, to process"
	compacts    choiceKind = "the watch leaves out a change that was replaced, to process"
	pauses      choiceKind = "pause of process"
	resumes     choiceKind = "end of the pause of process"
	claimsKey   choiceKind = "the key is claimed by process"
	releasesKey choiceKind = "the key is released by process"
	saves       choiceKind = "the session is saved by process"
	takes       choiceKind = "the session is taken, if it may be, by process"
	takesStale  choiceKind = "the session is taken, with its record as it was before, by process"
	denies      choiceKind = "the door of its owner is refused, and nobody answers, to process"
	crashes     choiceKind = "crash of process"
	starts      choiceKind = "start of process"
	cuts        choiceKind = "connection cut, of process"
	heals       choiceKind = "connection restored, of process"
	joins       choiceKind = "a watch begins anew, of process"
)
