package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
)

// A group is some tests of a package that are judged without the others, as those that hold one guarantee.
type group struct {
	name  string
	tests []string
}

// parseGroups reads one group from a line: its name, a tab, and tests with white space between them.
func parseGroups(in io.Reader) (all []group, err error) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		name, tests, found := strings.Cut(lines.Text(), "\t")
		if !found || name == "" {
			return nil, fmt.Errorf("%q is no group: it has no name with a tab behind it", lines.Text())
		}
		all = append(all, group{name, strings.Fields(tests)})
	}
	return all, lines.Err()
}

// judgeGroups runs the tests of each group alone against mutants that they reach: up to most of
// those that the fewest tests of the package reach, which tell these tests from others.
// It prints a line for each: the group, "noticed" or "unnoticed", the test that noticed it, and the
// mutant's name, with tabs between them.
func judgeGroups(ctx context.Context, out io.Writer, p *pkg, groups []group, o *options) (err error) {
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	flags := p.flags(o)
	r, err := measure(ctx, os.Stderr, p, o.maps, flags)
	if err != nil {
		return err
	}
	all := p.mutants()
	chosen, needed := make([][]int, len(groups)), map[int]bool{} // numbers of mutants
	reaching := make([][]string, len(all))
	for i := range all {
		reaching[i] = r.tests(&all[i])
	}
	for i, g := range groups {
		chosen[i] = nearest(reaching, all, g.tests, 2*o.most) // some do not compile
		for _, at := range chosen[i] {
			needed[at] = true
		}
	}
	binary, unfit, err := build(ctx, p, slices.DeleteFunc(slices.Clone(all), func(m mutant) bool { return !needed[m.number-1] }), folder)
	if err != nil {
		return err
	}
	c := newRunner(newMachine(os.Stderr), binary, p.dir, flags, r)
	for i, g := range groups {
		numbers := slices.DeleteFunc(chosen[i], func(at int) bool { return unfit[all[at].number] })
		numbers = numbers[:min(len(numbers), o.most)]
		found, failures := make([]finding, len(numbers)), make([]error, len(numbers))
		inParallel(runtime.GOMAXPROCS(0), len(numbers), func(n int) {
			m := &all[numbers[n]]
			by := slices.DeleteFunc(slices.Clone(reaching[numbers[n]]), func(test string) bool { return !slices.Contains(g.tests, test) })
			found[n], failures[n] = c.judge(ctx, m, by)
		})
		if err := errors.Join(failures...); err != nil {
			return err
		}
		for n, f := range found {
			verdict := "noticed"
			if f.verdict == lived {
				verdict = "unnoticed"
			}
			fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", g.name, verdict, f.by, all[numbers[n]].name)
		}
	}
	return nil
}

// nearest lists the mutants that some tests reach, those that the fewest tests reach first. Of mutants that are
// equal in that the names decide, as if by chance.
func nearest(reaching [][]string, all []mutant, tests []string, most int) (numbers []int) {
	for i, by := range reaching {
		if slices.ContainsFunc(by, func(test string) bool { return slices.Contains(tests, test) }) {
			numbers = append(numbers, i)
		}
	}
	slices.SortFunc(numbers, func(a, b int) int {
		return cmp.Or(cmp.Compare(len(reaching[a]), len(reaching[b])), cmp.Compare(number(all[a].name), number(all[b].name)))
	})
	return numbers[:min(most, len(numbers))]
}
