package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A runner runs one test binary against one mutant after the other, until a test
// fails. Most mutants of a function are killed by the same few tests, so those
// that have killed one of them are run first, and alone. They only save time:
// a mutant that survives them meets all tests.
type runner struct {
	binary string
	dir    string // of the package, with slashes
	rounds []round

	mu      sync.Mutex
	killers map[string][]killer // by function, the latest first
	alone   map[killer]bool     // whether the test passes alone, without a mutant
}

// A round is one way to run all tests.
type round struct {
	flags []string
	limit map[string]time.Duration // by test
}

// A killer is a test that failed on a mutant in one of the rounds.
type killer struct {
	round int
	test  string
}

const (
	patience      = 10              // times as long as without a mutant a test may take,
	leastPatience = 2 * time.Second // and the least that it is given
	startPatience = time.Minute     // given to the binary until its first test begins
	firstPatience = 10 * time.Minute
	mostKillers   = 4 // of a function, that are run first
)

func newRunner(binary, dir string, tests tests) *runner {
	c := &runner{binary: binary, dir: dir, killers: map[string][]killer{}, alone: map[killer]bool{}}
	if len(tests.quick) > 0 {
		c.rounds = append(c.rounds, round{flags: slices.Concat(tests.always, tests.quick)})
	}
	c.rounds = append(c.rounds, round{flags: tests.always})
	return c
}

// A finding is a verdict and, unless the mutant has lived, the test that ran
// when that was found.
type finding struct {
	verdict verdict
	by      string
}

func (f finding) String() string {
	if f.by == "" {
		return string(f.verdict)
	}
	return string(f.verdict) + " by " + f.by
}

// slow is what makes a test stay out of the quick round.
const slow = 50 * time.Millisecond

var passed = regexp.MustCompile(`(?m)^--- PASS: (\S+) \(([0-9.]+s)\)`)

// calibrate runs the tests without a mutant: they have to pass, and the time of
// each sets its limit. Every round but the last leaves out the slow ones.
func (c *runner) calibrate(ctx context.Context) error {
	for i := range c.rounds {
		r := &c.rounds[i]
		found, output, err := c.try(ctx, 0, *r)
		if err != nil {
			return err
		}
		if found.verdict != lived {
			return fmt.Errorf("without a mutant the tests do not pass:\n%s", output)
		}
		limit, skipped := map[string]time.Duration{}, []string{}
		for _, test := range passed.FindAllStringSubmatch(output, -1) {
			took, err := time.ParseDuration(test[2])
			if err != nil {
				return err
			}
			if limit[test[1]] = max(leastPatience, patience*took); took >= slow {
				skipped = append(skipped, test[1])
			}
		}
		if r.limit = limit; len(skipped) > 0 && i < len(c.rounds)-1 {
			r.flags = append(r.flags, "-test.skip=^("+strings.Join(skipped, "|")+")$")
		}
	}
	return nil
}

// reported is how many mutants are judged between two lines that say so.
const reported = 100

// atOnce is how many mutants are judged at a time for each processor: those that
// hang need none, and one in five hangs.
const atOnce = 3

// judgeAll judges all mutants, and says how far it is.
func (c *runner) judgeAll(ctx context.Context, out io.Writer, all []mutant) ([]finding, error) {
	if err := c.calibrate(ctx); err != nil {
		return nil, err
	}
	found, failures := make([]finding, len(all)), make([]error, len(all))
	next := make(chan int)
	var workers sync.WaitGroup
	for range atOnce * runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				found[i], failures[i] = c.judge(ctx, all[i])
			}
		})
	}
	for i := range all {
		if i%reported == 0 {
			fmt.Fprintf(out, "%s: at mutant %d of %d\n", c.dir, i+1, len(all))
		}
		next <- i
	}
	close(next)
	workers.Wait()
	return found, errors.Join(failures...)
}

// judge tries the function's killers first, then each round.
func (c *runner) judge(ctx context.Context, m mutant) (found finding, err error) {
	function := m.functionName()
	for i, r := range c.rounds {
		if tests := c.killersOf(function, i); len(tests) > 0 {
			if found, _, err = c.try(ctx, m.number, r, tests...); err != nil || found.verdict != lived {
				return found, err
			}
		}
	}
	for i, r := range c.rounds {
		if found, _, err = c.try(ctx, m.number, r); err != nil {
			return found, err
		}
		if found.verdict != lived {
			return found, c.remember(ctx, function, killer{i, found.by})
		}
	}
	return found, nil
}

// killersOf lists the tests that have killed a mutant of a function in a round.
func (c *runner) killersOf(function string, round int) (tests []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.killers[function] {
		if k.round == round {
			tests = append(tests, k.test)
		}
	}
	return tests
}

// remember adds a killer of a function's mutants, if the test passes alone when
// there is no mutant.
func (c *runner) remember(ctx context.Context, function string, k killer) error {
	if k.test == "" {
		return nil
	}
	c.mu.Lock()
	passes, known := c.alone[k]
	c.mu.Unlock()
	if !known {
		found, _, err := c.try(ctx, 0, c.rounds[k.round], k.test)
		if err != nil {
			return err
		}
		passes = found.verdict == lived
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.alone[k] = passes
	if kept := c.killers[function]; passes && !slices.Contains(kept, k) {
		c.killers[function] = slices.Insert(kept, 0, k)[:min(len(kept)+1, mostKillers)]
	}
	return nil
}

// seldomCollects saves a third of the processor's time: the garbage of tests is
// little, and collecting it was not.
const seldomCollects = "GOGC=400"

// try runs the tests of a round once: all of them, or those given.
func (c *runner) try(ctx context.Context, number int, r round, tests ...string) (finding, string, error) {
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	flags := append([]string{"-test.failfast", "-test.v"}, r.flags...)
	if len(tests) > 0 {
		flags = append(flags, "-test.run=^("+strings.Join(tests, "|")+")$")
	}
	command := exec.CommandContext(running, c.binary, flags...)
	command.Dir = filepath.FromSlash(c.dir)
	command.Env = append(os.Environ(), seldomCollects, fmt.Sprintf("%s=%d", selection, number))
	watch := newWatch(r.limit, cancel)
	command.Stdout, command.Stderr = watch, watch
	err := command.Run()
	watch.timer.Stop()
	output := watch.output.String()
	var failed *exec.ExitError
	switch {
	case err == nil:
		return finding{verdict: lived}, output, nil
	case ctx.Err() != nil:
		return finding{}, "", ctx.Err()
	case running.Err() != nil:
		return finding{timedOut, watch.test}, output, nil
	case !errors.As(err, &failed):
		return finding{}, "", err
	}
	return finding{killed, watch.test}, output, nil
}

// A watch reads what a test binary prints, and ends the binary when a test takes
// longer than its limit.
type watch struct {
	limit  map[string]time.Duration // nil until the tests are calibrated
	timer  *time.Timer
	output bytes.Buffer
	line   []byte // the last one, which has no end yet
	test   string // the one that runs, or ran last
}

func newWatch(limit map[string]time.Duration, end func()) *watch {
	return &watch{limit: limit, timer: time.AfterFunc(startPatience, end)}
}

const running = "=== RUN   "

// Write implements io.Writer. A command writes both its outputs from one
// goroutine if they are one writer.
func (w *watch) Write(text []byte) (int, error) {
	w.output.Write(text)
	for line := range bytes.Lines(text) {
		w.line = append(w.line, line...)
		if !bytes.HasSuffix(w.line, []byte("\n")) {
			break
		}
		test, begins := strings.CutPrefix(strings.TrimSpace(string(w.line)), running)
		if w.line = w.line[:0]; begins && !strings.Contains(test, "/") {
			w.test = test
			w.timer.Reset(w.patience(test))
		}
	}
	return len(text), nil
}

func (w *watch) patience(test string) time.Duration {
	switch limit, known := w.limit[test]; {
	case w.limit == nil:
		return firstPatience
	case known:
		return limit
	default: // it was skipped, or failed, when the others were timed
		return slices.Max(append(slices.Collect(maps.Values(w.limit)), leastPatience))
	}
}
