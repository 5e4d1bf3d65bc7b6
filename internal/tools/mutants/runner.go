package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/tools/declaration"
)

// A runner runs one test binary against one mutant after the other, until a test
// fails. Only tests that reach a mutant are run. Most mutants of a function are killed by
// the same few tests, so those that have killed one of them are run first; then come
// the quick tests together, and the others by the time that they take.
type runner struct {
	program
	*machine
	reach    *reach
	patience float64 // multiplies the limit of a test

	mu      sync.Mutex
	killers map[string][]string // by function, the latest first
	trusted map[string]bool     // whether a test passes in this binary without a mutant
	verbose bool
}

const (
	patience      = 10              // times as long as without a mutant a test may take,
	leastPatience = 5 * time.Second // and the least that it is given
	racePatience  = 5               // multiplies both under the race detector
	firstPatience = 10 * time.Minute
	mostResting   = 16 // processes that only wait may run beside those that compute
	mostKillers   = 4  // of a function, that are run first
)

func newRunner(shared *machine, binary, dir string, flags []string, r *reach) *runner {
	return &runner{
		program: program{binary: binary, dir: dir, flags: flags}, machine: shared, reach: r, patience: 1,
		killers: map[string][]string{}, trusted: map[string]bool{},
	}
}

// reported is how many mutants are judged between two lines that say so.
const reported = 100

// judgeAll judges all mutants, and says how far it is.
func (c *runner) judgeAll(ctx context.Context, all []mutant) ([]finding, error) {
	if found, output, err := c.try(ctx, 0, []string{""}); err != nil || found.verdict != lived {
		return nil, errors.Join(fmt.Errorf("without a mutant and without tests the binary fails:\n%s", output), err)
	}
	found, failures := make([]finding, len(all)), make([]error, len(all))
	inParallel(cap(c.slots)+mostResting, len(all), func(i int) {
		if i%reported == 0 {
			fmt.Fprintf(c.out, "%s: at mutant %d of %d\n", c.dir, i+1, len(all))
		}
		found[i], failures[i] = c.judge(ctx, &all[i], c.reach.tests(&all[i]))
		c.tell(&all[i], found[i])
	})
	return found, errors.Join(failures...)
}

// inParallel calls a function with each number below n, at most so many at a time.
func inParallel(atATime, n int, call func(int)) {
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(atATime, n) {
		workers.Go(func() {
			for i := range next {
				call(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

// tell prints a verdict, if that is wanted.
func (c *runner) tell(m *mutant, f finding) {
	if c.verbose {
		fmt.Fprintf(c.out, "%s: %s: %s\n", m.at, f, m.name)
	}
}

// judge tries those of the tests that have killed others of the function first, then the others. One
// that runs out of time may leave it to one other to fail.
func (c *runner) judge(ctx context.Context, m *mutant, reaching []string) (finding, error) {
	if len(reaching) == 0 {
		return finding{verdict: unreached}, nil
	}
	function := declaration.Function(m.function)
	c.mu.Lock()
	rounds := c.reach.rounds(reaching, c.killers[function])
	c.mu.Unlock()
	verdict := finding{verdict: lived}
	for _, tests := range rounds {
		for len(tests) > 0 {
			found, _, err := c.try(ctx, m.number, tests)
			if err != nil {
				return found, err
			}
			if found.verdict == lived {
				break
			}
			passes, err := c.trusts(ctx, found.by)
			if err != nil {
				return found, err
			}
			stands := passes || !slices.Contains(tests, found.by)
			if stands && found.verdict == killed {
				c.remember(function, found.by)
				return found, nil
			}
			if stands && verdict.verdict == timedOut {
				return verdict, nil
			}
			if stands {
				verdict = found
			}
			tests = slices.DeleteFunc(slices.Clone(tests), func(test string) bool { return test == found.by })
		}
	}
	return verdict, nil
}

const (
	quick   = 50 * time.Millisecond // tests that take less are run together,
	atATime = time.Second           // the others as many as fit into this
)

// rounds orders tests, which stand in the order of their time: those that are first, then those that are quick, then the others.
func (r *reach) rounds(tests, first []string) [][]string {
	var killers, together []string
	for _, test := range first {
		if slices.Contains(tests, test) {
			killers = append(killers, test)
		}
	}
	rounds := [][]string{killers}
	var took time.Duration
	for _, test := range tests {
		if slices.Contains(killers, test) {
			continue
		}
		if t := r.took[test]; t >= quick && len(together) > 0 && (took == 0 || took+t > atATime) {
			rounds, together, took = append(rounds, together), nil, 0
		}
		if together = append(together, test); r.took[test] >= quick {
			took += r.took[test]
		}
	}
	return append(rounds, together)
}

// trusts says whether a test passes without a mutant, alone and in this binary. One that
// does not would kill every mutant.
func (c *runner) trusts(ctx context.Context, test string) (bool, error) {
	c.mu.Lock()
	passes, known := c.trusted[test]
	c.mu.Unlock()
	if test == "" { // the mutant ends the binary before its first test
		return true, nil
	}
	if known {
		return passes, nil
	}
	found, _, err := c.try(ctx, 0, []string{test})
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trusted[test] = found.verdict == lived; found.verdict != lived {
		fmt.Fprintf(c.out, "%s: among the mutants, and without one, %s does not pass: it kills none\n", c.dir, test)
	}
	return c.trusted[test], nil
}

// remember adds a killer of a function's mutants.
func (c *runner) remember(function, test string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept := c.killers[function]; test != "" && !slices.Contains(kept, test) {
		c.killers[function] = slices.Insert(kept, 0, test)[:min(len(kept)+1, mostKillers)]
	}
}

// try runs some tests against a mutant; 0 is none.
func (c *runner) try(ctx context.Context, number int, tests []string) (finding, string, error) {
	limit := func(test string) time.Duration {
		return time.Duration(c.patience * float64(max(leastPatience, patience*c.reach.took[test])))
	}
	c.slots <- struct{}{}
	var once sync.Once
	rest := func() { once.Do(func() { <-c.slots }) }
	defer rest()
	return c.run(ctx, tests, limit, rest, []string{fmt.Sprintf("%s=%d", selection, number)})
}
