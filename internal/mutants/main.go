// Mutants changes a package in one small way at a time, and prints the changes
// that its tests do not notice.
//
//	go run ./internal/mutants [flags] package...
//
// Each change is a mutant: a comparison moved or negated, a condition or a
// statement left out, a sum turned into a difference. A mutant is killed when a
// test fails or hangs; otherwise it has lived. If a package declares files pure
// (//bowline:pure), or -also names files of it, only those are changed. Of the files
// that -also names one mutant in -sample is judged, and of all mutants one in -part,
// always the same ones.
//
// All mutants are compiled into one test binary, each as a copy of the body of
// its function, and an environment variable selects one. So a mutant costs one
// run of the tests, and no build (ADR-0026).
//
// The program fails when fewer than -efficacy percent of a package's mutants
// were killed, when the file -survivors does not explain a mutant that has
// lived, and when that file explains one that was killed. With -update it first
// rewrites the lines of the file; add the missing reasons by hand.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
)

type options struct {
	survivors string
	efficacy  float64
	update    bool
	verbose   bool
	only      *regexp.Regexp
	also      []string // files, from the working directory, with slashes
	sample    int
	part      int
	tests     tests
	packages  []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, parse(os.Args[1:]))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func parse(args []string) options {
	var o options
	flags := flag.NewFlagSet("mutants", flag.ExitOnError)
	flags.StringVar(&o.survivors, "survivors", "internal/mutants/survivors.txt", "the `file` that explains who lived")
	flags.Float64Var(&o.efficacy, "efficacy", 90, "how many `percent` of a package's mutants must be killed")
	flags.BoolVar(&o.update, "update", false, "rewrite the file of survivors, keeping its reasons")
	flags.BoolVar(&o.verbose, "v", false, "print the verdict on every mutant")
	flags.IntVar(&o.sample, "sample", 1, "judge one in so many of the mutants of the files that -also names")
	flags.IntVar(&o.part, "part", 1, "judge one in so many of all mutants")
	flags.Func("also", "change these `files` beside the pure ones, with commas between them", func(text string) error {
		o.also = strings.Split(text, ",")
		return nil
	})
	flags.Func("only", "judge the mutants whose names match `regexp`, print the verdicts, and check nothing", func(text string) (err error) {
		o.verbose = true
		o.only, err = regexp.Compile(text)
		return err
	})
	flags.Func("test", "`flags` of the test binary", func(text string) error {
		o.tests.always = strings.Fields(text)
		return nil
	})
	flags.Func("quick", "further `flags` of a first run of the tests that are not slow, before the run of all that decides", func(text string) error {
		o.tests.quick = strings.Fields(text)
		return nil
	})
	_ = flags.Parse(args) // it exits on an error
	o.packages = flags.Args()
	return o
}

// run judges the mutants of every package, and then the file of survivors.
func run(ctx context.Context, out io.Writer, o options) error {
	if o.update && o.part > 1 {
		return errors.New("-update needs a verdict on every mutant, and -part leaves some out")
	}
	var failures []error
	var lived, timedOut []mutant
	killed := map[string]string{}
	var judged []string
	absent := slices.Clone(o.also)
	for _, pattern := range o.packages {
		p, err := load(ctx, pattern, o.also)
		if err != nil {
			return err
		}
		absent = slices.DeleteFunc(absent, func(name string) bool {
			return slices.ContainsFunc(p.files, func(f *file) bool { return f.name == name })
		})
		tally, err := judge(ctx, out, p, o)
		if err != nil {
			return fmt.Errorf("%s: %w", p.dir, err)
		}
		fmt.Fprintf(out, "%s: %s\n", p.dir, tally)
		if tally.efficacy() < o.efficacy {
			failures = append(failures, fmt.Errorf("%s: efficacy is under %g %%", p.dir, o.efficacy))
		}
		judged = append(judged, p.dir)
		lived, timedOut = append(lived, tally.lived...), append(timedOut, tally.timedOut...)
		maps.Copy(killed, tally.killed)
	}
	if o.only != nil {
		return nil
	}
	if len(absent) > 0 {
		failures = append(failures, fmt.Errorf("no package has the files %s", strings.Join(absent, ", ")))
	}
	return errors.Join(append(failures, checkSurvivors(out, o, judged, lived, timedOut, killed))...)
}

// checkSurvivors compares who lived with who was expected to. One that was
// expected to and ran out of time shows that the machine was held up, and no more.
func checkSurvivors(out io.Writer, o options, judged []string, lived, timedOut []mutant, killed map[string]string) error {
	text, err := os.ReadFile(o.survivors)
	if err != nil && !(o.update && errors.Is(err, os.ErrNotExist)) {
		return err
	}
	s, err := parseSurvivors(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", o.survivors, err)
	}
	lived = append(lived, s.explained(timedOut)...)
	if o.update {
		s.update(judged, lived)
		if err := os.WriteFile(o.survivors, []byte(s.String()), 0o644); err != nil {
			return err
		}
	}
	problems := s.check(judged, lived, killed, o.part)
	for _, problem := range problems {
		fmt.Fprintln(out, problem)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s is wrong in %d lines", o.survivors, len(problems))
	}
	return nil
}
