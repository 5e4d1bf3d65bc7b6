// Mutants changes a package in one small way at a time, and prints the changes
// that its tests do not notice.
//
//	go run ./internal/tools/mutants [flags] [package...]
//
// Without packages it takes all that -scores names.
//
// Each change is a mutant: a comparison moved or negated, a condition, a statement or a deferred
// call left out, two statements exchanged, also into or out of a lock, a sum turned into a
// difference, a time or a size made larger or smaller, an error of another kind, a map left
// nil, a context replaced by its parent. A mutant is killed when a
// test fails or hangs; otherwise it has lived. The score of a package is how many of its
// mutants that compile were killed, in percent.
//
// To write the tests that are missing, look at what lives in one file or function, write a
// test, and look again:
//
//	go run ./internal/tools/mutants -part 20 ./auth/guard       # one in twenty: is there much to do?
//	go run ./internal/tools/mutants -only 'Guard\.' ./auth/guard # what lives in the methods of Guard?
//	go run ./internal/tools/mutants -only 'Guard.Do: remove' ./auth/guard
//
// A mutant's name is its package, its function and its change, as -v prints it; -only prints the
// verdicts on those that match. The first run on a package takes as long as its tests: each is run
// alone, to see what it reaches. This map is kept in the user's cache; after an edit of one
// test file only its tests are run again.
//
// All mutants are compiled into one test binary, each as a copy of the body of
// its function, and an environment variable selects one. So a mutant costs one
// run of the tests that reach it, and no build (ADR-0026).
//
// The program fails when the score of a package is lower than -scores demands or than
// -efficacy, when more than 5 % of the mutants ran out of time, when the file -survivors does not
// explain a mutant that has lived in a file that -scores names, and when it explains one that was
// killed. With -update it first rewrites the lines of that file; add the missing reasons by hand.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

type options struct {
	survivors string
	scores    string
	maps      string
	efficacy  float64 // unless it is negative, instead of what the file of scores says
	update    bool
	verbose   bool
	only      *regexp.Regexp
	touched   []string // files, from the working directory, with slashes
	most      int      // of the mutants of these may still be judged
	part      int
	flags     []string // of the test binaries
	groups    []group  // if there are any, only they judge
	packages  []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, parse(os.Args[1:]))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func parse(args []string) *options {
	o := new(options)
	cached, err := os.UserCacheDir()
	if err != nil {
		cached = os.TempDir()
	}
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	flags.StringVar(&o.survivors, "survivors", "internal/tools/mutants/survivors.txt", "the `file` that explains who lived")
	flags.StringVar(&o.scores, "scores", "internal/tools/mutants/scores.txt", "the `file` that says which score a package has to reach")
	flags.StringVar(&o.maps, "maps", filepath.Join(cached, "bowline-mutants"), "the `folder` that keeps what each test reaches")
	flags.Float64Var(&o.efficacy, "efficacy", -1, "how many `percent` of a package's mutants must be killed, whatever -scores says")
	flags.BoolVar(&o.update, "update", false, "rewrite the file of survivors, keeping its reasons")
	flags.BoolVar(&o.verbose, "v", false, "print the verdict on every mutant")
	flags.IntVar(&o.part, "part", 1, "judge one in so many of all mutants, always the same ones")
	flags.IntVar(&o.most, "most", 200, "of the mutants of all touched files, or for each group, judge so many")
	flags.Func("touched", "judge all mutants of these `files`, up to -most; with white space between them", func(text string) error {
		o.touched = strings.Fields(text)
		return nil
	})
	flags.Func("only", "judge the mutants whose names match `regexp`, print the verdicts, and check nothing", func(text string) (err error) {
		o.verbose = true
		o.only, err = regexp.Compile(text)
		return err
	})
	flags.Func("groups", "judge groups of tests alone, which this `file` lists, a name, a tab and tests on each line; - is the standard input; each judges up to -most mutants", func(name string) (err error) {
		in := os.Stdin
		if name != "-" {
			if in, err = os.Open(name); err != nil {
				return err
			}
			defer in.Close()
		}
		o.groups, err = parseGroups(in)
		return err
	})
	flags.Func("test", "`flags` of the test binary", func(text string) error {
		o.flags = strings.Fields(text)
		return nil
	})
	_ = flags.Parse(args) // it exits on an error
	o.packages = flags.Args()
	return o
}

// run judges the mutants of every package, and prints the table.
func run(ctx context.Context, out io.Writer, o *options) error {
	if o.update && o.part > 1 {
		return errors.New("-update needs a verdict on every mutant, and -part leaves some out")
	}
	text, err := os.ReadFile(o.scores)
	if err != nil {
		return err
	}
	standards, err := parseScores(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", o.scores, err)
	}
	packages := o.packages
	if len(packages) == 0 {
		for dir := range standards {
			packages = append(packages, "./"+dir)
		}
		slices.Sort(packages)
	}
	if len(o.groups) > 0 {
		for _, pattern := range packages {
			p, err := load(ctx, pattern)
			if err != nil {
				return err
			}
			if err := judgeGroups(ctx, out, p, o.groups, o); err != nil {
				return fmt.Errorf("%s: %w", p.dir, err)
			}
		}
		return nil
	}
	tallies, err := judgePackages(ctx, out, packages, o)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, heading)
	var failures []error
	for _, t := range tallies {
		fmt.Fprintln(out, t)
		if o.only != nil {
			continue
		}
		s := standards[t.dir]
		if o.efficacy >= 0 {
			s.score = o.efficacy
		}
		failures = append(failures, t.check(s.score), checkSurvivors(out, o, t, s))
	}
	return errors.Join(failures...)
}

// checkSurvivors compares who lived with who was expected to.
func checkSurvivors(out io.Writer, o *options, t *tally, s standard) error {
	text, err := os.ReadFile(o.survivors)
	if err != nil && !(o.update && errors.Is(err, os.ErrNotExist)) {
		return err
	}
	known, err := parseSurvivors(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", o.survivors, err)
	}
	if o.update {
		known.update(t, s.explains)
		if err := os.WriteFile(o.survivors, []byte(known.String()), 0o644); err != nil {
			return err
		}
	}
	problems := known.check(t, s.explains)
	for _, problem := range problems {
		fmt.Fprintln(out, problem)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s is wrong in %d lines of %s", o.survivors, len(problems), t.dir)
	}
	return nil
}
