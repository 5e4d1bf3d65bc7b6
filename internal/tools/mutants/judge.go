package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"
)

type verdict string

const (
	killed    verdict = "killed"
	timedOut  verdict = "timed out"
	lived     verdict = "lived"
	unreached verdict = "lived: no test reaches it"
)

// A tally counts the verdicts on the mutants of a package.
type tally struct {
	dir       string            // of the package, with slashes
	killed    map[string]string // the test that killed each, by the mutant's name
	timedOut  []mutant
	lived     []mutant // also those that no test reaches,
	unreached int      // which are so many
	unfit     int      // do not compile
	left      []mutant // were not judged
	took      time.Duration
}

// all is how many mutants were judged.
func (t *tally) all() int { return len(t.killed) + len(t.timedOut) + len(t.lived) }

// score is how many percent of the mutants that compile were killed. Of none, none was.
func (t *tally) score() float64 {
	return 100 * float64(len(t.killed)+len(t.timedOut)) / float64(max(t.all(), 1))
}

// mostTimeouts is how many percent of the mutants may be killed by running out of time: a test
// that waits for ever does not say what it has missed.
const mostTimeouts = 5

// check says what is not as it should be, of a package that is to reach a score. Of a sample
// that is what chance does not explain.
func (t *tally) check(score float64) error {
	var failures []error
	if n := len(t.killed) + len(t.timedOut); float64(n) < t.share(score)-t.chance(score) {
		failures = append(failures, fmt.Errorf("%s: the score %.1f %% is under %g %%", t.dir, t.score(), score))
	}
	if n := len(t.timedOut); n > 1 && float64(n) > t.share(mostTimeouts)+t.chance(mostTimeouts) {
		failures = append(failures, fmt.Errorf("%s: %d of %d mutants ran out of time; more than %d %% may not", t.dir, n, t.all(), mostTimeouts))
	}
	return errors.Join(failures...)
}

func (t *tally) share(percent float64) float64 { return float64(t.all()) * percent / 100 }

// chance is two standard deviations of the number of mutants of a sample that have a verdict which
// so many percent have, at least two mutants, and nothing if none was left out.
func (t *tally) chance(percent float64) float64 {
	if len(t.left) == 0 {
		return 0
	}
	return max(2, 2*math.Sqrt(t.share(percent)*(100-percent)/100))
}

// heading names the columns of a table of tallies.
const heading = "package                          mutants  killed  by timeout  lived  not reached   score"

// String is a line of the table.
func (t *tally) String() string {
	return fmt.Sprintf("%-32s %7d %7d %11d %6d %12d %6.1f%%", t.dir, t.all(), len(t.killed), len(t.timedOut),
		len(t.lived)-t.unreached, t.unreached, t.score())
}

func (t *tally) count(m mutant, f finding) {
	switch f.verdict {
	case killed:
		t.killed[m.name] = f.by
	case timedOut:
		t.timedOut = append(t.timedOut, m)
	case unreached:
		t.unreached++
		fallthrough
	default:
		t.lived = append(t.lived, m)
	}
}

// flags returns the flags of every run of the tests. Seeds are fixed, so that the same mutants live every time.
func (p *pkg) flags(o *options) []string {
	if p.properties {
		return append([]string{"-rapid.seed=1", "-rapid.nofailfile", "-rapid.shrinktime=0s"}, o.flags...)
	}
	return o.flags
}

// atOnce is how many mutants are compiled into one binary: more would take the compiler more memory
// than a small machine has.
const atOnce = 800

// A machine is what packages share that are judged side by side.
type machine struct {
	slots    chan struct{} // one for each process that computes
	building sync.Mutex    // held while a package is built, and while it is measured
	out      io.Writer     // takes one line at a time
}

// A lines is a writer that several goroutines write lines to.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(text)
}

func newMachine(out io.Writer) *machine {
	return &machine{slots: make(chan struct{}, runtime.GOMAXPROCS(0)), out: &lines{to: out}}
}

// packagesAtOnce are judged side by side: a mutant that hangs is waited for up to two minutes, in which others compute.
const packagesAtOnce = 3

// judgePackages judges packages side by side. Nothing but the options decides which of their mutants.
func judgePackages(ctx context.Context, out io.Writer, patterns []string, o *options) ([]*tally, error) {
	type work struct {
		of     *pkg
		chosen []mutant
		tally  *tally
		failed error
	}
	var all []*work
	var tallies []*tally
	for _, pattern := range patterns {
		p, err := load(ctx, pattern)
		if err != nil {
			return nil, err
		}
		chosen, left := sample(p.mutants(), o)
		t := &tally{dir: p.dir, killed: map[string]string{}, left: left}
		all, tallies = append(all, &work{of: p, chosen: chosen, tally: t}), append(tallies, t)
	}
	// The largest comes first, so that none is alone at the end.
	slices.SortStableFunc(all, func(a, b *work) int { return cmp.Compare(len(b.chosen), len(a.chosen)) })
	shared := newMachine(out)
	inParallel(packagesAtOnce, len(all), func(i int) {
		w, t := all[i], all[i].tally
		if err := judge(ctx, shared, w.of, w.chosen, o, t); err != nil {
			w.failed = fmt.Errorf("%s: %w", t.dir, err)
			return
		}
		fmt.Fprintf(shared.out, "%s: %d mutants in %v; %d more did not compile\n", t.dir, t.all(), t.took.Round(time.Second), t.unfit)
	})
	var failures []error
	for _, w := range all {
		failures = append(failures, w.failed)
	}
	return tallies, errors.Join(failures...)
}

// judge runs the tests of a package against some of its mutants.
func judge(ctx context.Context, shared *machine, p *pkg, all []mutant, o *options, t *tally) (err error) {
	if len(all) == 0 { // of a small package, which nobody has touched
		return nil
	}
	began := time.Now()
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	flags := p.flags(o)
	shared.building.Lock()
	r, err := measure(ctx, shared.out, p, o.maps, flags)
	shared.building.Unlock()
	if err != nil {
		return err
	}
	locks := func(m mutant) bool { return m.locks }
	others := func(m mutant) bool { return !m.locks }
	plain, raced := slices.DeleteFunc(slices.Clone(all), locks), slices.DeleteFunc(slices.Clone(all), others)
	c := newRunner(shared, "", p.dir, flags, r)
	for some := range slices.Chunk(plain, atOnce) {
		if err := c.judgeSome(ctx, p, some, o, t, folder); err != nil {
			return err
		}
	}
	if len(raced) > 0 {
		c = newRunner(shared, "", p.dir, flags, r)
		c.patience = racePatience
		if err := c.judgeSome(ctx, p, raced, o, t, folder, "-race"); err != nil {
			return err
		}
	}
	t.took = time.Since(began)
	return nil
}

// judgeSome builds a binary with some mutants and judges them.
func (c *runner) judgeSome(ctx context.Context, p *pkg, some []mutant, o *options, t *tally, folder string, flags ...string) error {
	c.building.Lock()
	binary, unfit, err := build(ctx, p, some, folder, flags...)
	c.building.Unlock()
	if err != nil {
		return err
	}
	some = slices.DeleteFunc(some, func(m mutant) bool {
		if unfit[m.number] && o.verbose {
			fmt.Fprintf(c.out, "%s: does not compile: %s\n", m.at, m.name)
		}
		return unfit[m.number]
	})
	t.unfit += len(unfit)
	c.binary, c.verbose = binary, o.verbose
	found, err := c.judgeAll(ctx, some)
	if err != nil {
		return err
	}
	for i, m := range some {
		t.count(m, found[i])
	}
	return nil
}
