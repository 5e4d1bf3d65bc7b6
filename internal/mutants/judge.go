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
	leastPatience = 10 * time.Second
)

type verdict string

const (
	killed   verdict = "killed"
	timedOut verdict = "timed out"
	lived    verdict = "lived"
)

// A tally counts the verdicts on the mutants of a package.
type tally struct {
	killed, timedOut int
	unfit            int // do not compile
	lived            []mutant
	took             time.Duration
}

// all is how many mutants compile.
func (t *tally) all() int { return t.killed + t.timedOut + len(t.lived) }

// efficacy is how many percent of the mutants that compile were killed. Of
// none, none was.
func (t *tally) efficacy() float64 {
	return 100 * float64(t.killed+t.timedOut) / float64(max(t.all(), 1))
}

func (t *tally) String() string {
	return fmt.Sprintf("%d mutants, %d killed, %d timed out, %d lived, and %d did not compile; efficacy %.1f %% in %v",
		t.all(), t.killed, t.timedOut, len(t.lived), t.unfit, t.efficacy(), t.took.Round(time.Second))
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
	c := court{binary: binary, dir: filepath.FromSlash(p.dir), tests: o.tests}
	found, err := c.judgeAll(ctx, all)
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
		t.timedOut++
	default:
		t.lived = append(t.lived, m)
	}
}

// A court runs one test binary.
type court struct {
	binary string
	dir    string
	tests  tests
	limit  time.Duration
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

// calibrate runs the tests without a mutant: they have to pass, and their time
// sets the limit.
func (c *court) calibrate(ctx context.Context) error {
	c.limit = 10 * time.Minute
	began := time.Now()
	for _, flags := range [][]string{c.quick(), c.tests.always} {
		found, output, err := c.try(ctx, 0, flags)
		if err != nil {
			return err
		}
		if found.verdict != lived {
			return fmt.Errorf("without a mutant the tests do not pass:\n%s", output)
		}
	}
	c.limit = max(leastPatience, patience*time.Since(began))
	return nil
}

// quick is the flags of the first run.
func (c *court) quick() []string { return slices.Concat(c.tests.always, c.tests.quick) }

// judgeAll judges as many mutants at a time as there are processors.
func (c *court) judgeAll(ctx context.Context, all []mutant) ([]finding, error) {
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
		next <- i
	}
	close(next)
	workers.Wait()
	return found, errors.Join(failures...)
}

// judge tries the quick tests first; who lives through them meets them all.
func (c *court) judge(ctx context.Context, number int) (finding, error) {
	found, _, err := c.try(ctx, number, c.quick())
	if err == nil && found.verdict == lived && len(c.tests.quick) > 0 {
		found, _, err = c.try(ctx, number, c.tests.always)
	}
	return found, err
}

var firstFailure = regexp.MustCompile(`--- FAIL: (\S+)`)

// try runs the tests once.
func (c *court) try(ctx context.Context, number int, flags []string) (finding, string, error) {
	limited, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	command := exec.CommandContext(limited, c.binary, append([]string{"-test.failfast"}, flags...)...)
	command.Dir = c.dir
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
