package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"
)

// tests says how the test binary is run.
type tests struct {
	always []string
	quick  []string // added in a first run; without it there is none
}

// patience is how many times as long as without a mutant the tests may take,
// and the least they are given.
const (
	patience      = 10
	leastPatience = 5 * time.Second
)

type verdict string

const (
	killed   verdict = "killed"
	timedOut verdict = "timed out"
	lived    verdict = "lived"
)

// A tally counts the verdicts on the mutants of a package.
type tally struct {
	killed   int
	unfit    int // do not compile
	lived    []mutant
	timedOut []mutant
	took     time.Duration
}

// all is how many mutants compile.
func (t *tally) all() int { return t.killed + len(t.timedOut) + len(t.lived) }

// efficacy is how many percent of the mutants that compile were killed. Of
// none, none was.
func (t *tally) efficacy() float64 {
	return 100 * float64(t.killed+len(t.timedOut)) / float64(max(t.all(), 1))
}

func (t *tally) String() string {
	return fmt.Sprintf("%d mutants, %d killed, %d timed out, %d lived, and %d did not compile; efficacy %.1f %% in %v",
		t.all(), t.killed, len(t.timedOut), len(t.lived), t.unfit, t.efficacy(), t.took.Round(time.Second))
}

// judge runs the tests of a package against each of its mutants.
func judge(ctx context.Context, out io.Writer, p *pkg, o options) (t *tally, err error) {
	began := time.Now()
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	all := p.mutants()
	binary, unfit, err := build(ctx, p, all, folder)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(m mutant) bool {
		if unfit[m.number] && o.verbose {
			fmt.Fprintf(out, "%s: does not compile: %s\n", m.at, m.name)
		}
		return unfit[m.number] || o.only != nil && !o.only.MatchString(m.name)
	})
	c := newCourt(binary, p.dir, o.tests)
	found, err := c.judgeAll(ctx, out, all)
	if err != nil {
		return nil, err
	}
	t = &tally{unfit: len(unfit)}
	for i, m := range all {
		t.count(m, found[i].verdict)
		if o.verbose {
			fmt.Fprintf(out, "%s: %s: %s\n", m.at, found[i], m.name)
		}
	}
	t.took = time.Since(began)
	return t, nil
}

func (t *tally) count(m mutant, v verdict) {
	switch v {
	case killed:
		t.killed++
	case timedOut:
		t.timedOut = append(t.timedOut, m)
	default:
		t.lived = append(t.lived, m)
	}
}

// A court runs one test binary, in one round after the other.
type court struct {
	binary string
	dir    string // of the package, with slashes
	rounds []round
}

// A round is one way to run the tests, and how long that may take.
type round struct {
	flags []string
	limit time.Duration
}

func newCourt(binary, dir string, tests tests) court {
	c := court{binary: binary, dir: dir}
	if len(tests.quick) > 0 {
		c.rounds = append(c.rounds, round{flags: slices.Concat(tests.always, tests.quick)})
	}
	c.rounds = append(c.rounds, round{flags: tests.always})
	return c
}

// A finding is a verdict and, if it was killed, by which test.
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

// calibrate runs the tests without a mutant: they have to pass, and the time of
// each round sets its limit.
func (c *court) calibrate(ctx context.Context) error {
	for i := range c.rounds {
		r := &c.rounds[i]
		r.limit = 10 * time.Minute
		began := time.Now()
		found, output, err := c.try(ctx, 0, *r)
		if err != nil {
			return err
		}
		if found.verdict != lived {
			return fmt.Errorf("without a mutant the tests do not pass:\n%s", output)
		}
		r.limit = max(leastPatience, patience*time.Since(began))
	}
	return nil
}

// reported is how many mutants are judged between two lines that say so.
const reported = 100

// judgeAll judges as many mutants at a time as there are processors, and says
// how far it is.
func (c *court) judgeAll(ctx context.Context, out io.Writer, all []mutant) ([]finding, error) {
	if err := c.calibrate(ctx); err != nil {
		return nil, err
	}
	found, failures := make([]finding, len(all)), make([]error, len(all))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				found[i], failures[i] = c.judge(ctx, all[i].number)
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

// judge tries the quick tests first; who lives through them meets them all.
func (c *court) judge(ctx context.Context, number int) (found finding, err error) {
	for _, r := range c.rounds {
		if found, _, err = c.try(ctx, number, r); err != nil || found.verdict != lived {
			break
		}
	}
	return found, err
}

var firstFailure = regexp.MustCompile(`--- FAIL: (\S+)`)

// try runs the tests once.
func (c *court) try(ctx context.Context, number int, r round) (finding, string, error) {
	limited, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	command := exec.CommandContext(limited, c.binary, append([]string{"-test.failfast"}, r.flags...)...)
	command.Dir = filepath.FromSlash(c.dir)
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", selection, number))
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	var failed *exec.ExitError
	switch {
	case err == nil:
		return finding{verdict: lived}, output.String(), nil
	case ctx.Err() != nil:
		return finding{}, "", ctx.Err()
	case limited.Err() != nil:
		return finding{verdict: timedOut}, output.String(), nil
	case !errors.As(err, &failed):
		return finding{}, "", err
	}
	found := finding{verdict: killed, by: "a crash"}
	if test := firstFailure.FindStringSubmatch(output.String()); test != nil {
		found.by = test[1]
	}
	return found, output.String(), nil
}
