package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// tests says how the test binary is run.
type tests struct {
	always []string
	quick  []string // added in a first run; if empty, there is no first run
}

type verdict string

const (
	killed   verdict = "killed"
	timedOut verdict = "timed out"
	lived    verdict = "lived"
)

// A tally counts the verdicts on the mutants of a package.
type tally struct {
	killed   map[string]string // the test that killed each, by the mutant's name
	unfit    int               // do not compile
	lived    []mutant
	timedOut []mutant
	took     time.Duration
}

// all is how many mutants compile.
func (t *tally) all() int { return len(t.killed) + len(t.timedOut) + len(t.lived) }

// efficacy is how many percent of the mutants that compile were killed. Of
// none, none was.
func (t *tally) efficacy() float64 {
	return 100 * float64(len(t.killed)+len(t.timedOut)) / float64(max(t.all(), 1))
}

func (t *tally) String() string {
	return fmt.Sprintf("%d mutants, %d killed, %d timed out, %d lived, and %d did not compile; efficacy %.1f %% in %v",
		t.all(), len(t.killed), len(t.timedOut), len(t.lived), t.unfit, t.efficacy(), t.took.Round(time.Second))
}

func (t *tally) count(m mutant, f finding) {
	switch f.verdict {
	case killed:
		t.killed[m.name] = f.by
	case timedOut:
		t.timedOut = append(t.timedOut, m)
	default:
		t.lived = append(t.lived, m)
	}
}

// judge runs the tests of a package against each of its mutants.
func judge(ctx context.Context, out io.Writer, p *pkg, o options) (t *tally, err error) {
	began := time.Now()
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	all := sample(p.mutants(), o.sample, o.part)
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
	found, err := newRunner(binary, p.dir, o.tests).judgeAll(ctx, out, all)
	if err != nil {
		return nil, err
	}
	t = &tally{unfit: len(unfit), killed: map[string]string{}}
	for i, m := range all {
		t.count(m, found[i])
		if o.verbose {
			fmt.Fprintf(out, "%s: %s: %s\n", m.at, found[i], m.name)
		}
	}
	t.took = time.Since(began)
	return t, nil
}
