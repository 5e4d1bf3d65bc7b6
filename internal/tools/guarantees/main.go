// Guarantees ties what the project promises to the tests that hold it. It reads the numbered
// guarantees of docs/adr and the tests that name them; its own tests say where the two
// disagree, and write the tables people read: docs/guarantees.md and the index of docs/adr/README.md.
//
//	go run ./internal/tools/guarantees -table [package...] # print them, with their tests; -only takes those of some numbers
//	go run ./internal/tools/guarantees -audit 25          # draw some guarantees, and break what their tests reach
//	go run ./internal/tools/guarantees -places 20 -seed x # draw places to break by hand
//	go run ./internal/tools/guarantees -held [package...] # measure all of them, or those of some packages, for held.txt and the page
//
// Internal/mutants breaks the code, in the package of the test: of the mutants that a test reaches those
// that the fewest other tests reach, which says most about this one. A guarantee of whose
// breaks its tests notice none is only named by them.
//
// To measure all of them takes hours. So -held writes the file after each package, takes packages by
// their folders ("conn", or "transport/..." with what is below), and keeps what the file says of the others.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"regexp"
	"slices"
	"strings"
)

type options struct {
	audit, places, most int
	held, table         bool
	seed                string
	only                *regexp.Regexp
	packages            []string // whose tests are measured or listed; if none, all
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var o options
	flag.IntVar(&o.audit, "audit", 0, "draw so many guarantees, and print what was broken and what noticed")
	flag.IntVar(&o.places, "places", 0, "draw so many statements of the library, to break them by hand")
	flag.BoolVar(&o.held, "held", false, "measure the tests of every package, or of those that the arguments name, and write "+heldFile)
	flag.BoolVar(&o.table, "table", false, "print the guarantees, or those that the packages of the arguments test, with their tests")
	flag.IntVar(&o.most, "most", 20, "break the code in at most so many ways for each package that has tests of a guarantee")
	flag.StringVar(&o.seed, "seed", "", "draw with this `text`; the default is the last commit")
	flag.Func("only", "measure the guarantees whose numbers match `regexp`, and print what was broken; with -held or -table, take only these", func(text string) (err error) {
		o.only, err = regexp.Compile(text)
		return err
	})
	flag.Parse()
	o.packages = flag.Args()
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "guarantees:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, o options) error {
	root := os.DirFS(".")
	catalog, err := Read(root)
	if err != nil {
		return err
	}
	if o.table {
		_, err := io.WriteString(out, catalog.Table(func(id string) bool {
			return (o.only == nil || o.only.MatchString(id)) && slices.ContainsFunc(catalog.folders(id), o.names)
		}))
		return err
	}
	if o.seed == "" {
		hash, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
		if err != nil {
			return fmt.Errorf("the last commit, for want of -seed: %w", err)
		}
		o.seed = strings.TrimSpace(string(hash))
	}
	ids := slices.Sorted(maps.Keys(catalog.Tests))
	switch {
	case o.places > 0:
		return printPlaces(out, root, o)
	case o.audit > 0:
		fmt.Fprintf(out, "drawn with seed %s\n", o.seed)
		ids = draw(ids, o.audit, o.seed)
		o.held = false
		return measure(ctx, out, catalog, ids, o)
	case o.held || o.only != nil:
		if o.only != nil {
			ids = slices.DeleteFunc(ids, func(id string) bool { return !o.only.MatchString(id) })
		}
		return measure(ctx, out, catalog, ids, o)
	}
	flag.Usage()
	return nil
}

func printPlaces(out io.Writer, root fs.FS, o options) error {
	all, err := places(root)
	if err != nil {
		return err
	}
	byName, names := map[string]place{}, []string{}
	for _, p := range all {
		byName[p.name] = p
		names = append(names, p.name)
	}
	fmt.Fprintf(out, "of %d statements, drawn with seed %s:\n", len(all), o.seed)
	for _, name := range draw(names, o.places, o.seed) {
		p := byName[name]
		file, function, _ := strings.Cut(p.name, " ")
		fmt.Fprintf(out, "%s:%d: %s: %s\n", file, p.line, function, p.text)
	}
	return nil
}

// measure breaks the code and runs the tests of guarantees alone, package by package. It writes the file of what is
// held, or prints what was broken.
func measure(ctx context.Context, out io.Writer, catalog *Catalog, ids []string, o options) error {
	groups := map[string]map[string][]string{} // tests by guarantee by package
	for _, id := range ids {
		for _, test := range catalog.Tests[id] {
			folder := path.Dir(test.File)
			if !o.names(folder) {
				continue
			}
			if groups[folder] == nil {
				groups[folder] = map[string][]string{}
			}
			groups[folder][id] = append(groups[folder][id], test.Name)
		}
	}
	all, report := map[string]held{}, map[string]string{}
	for _, folder := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(out, "%s: %d guarantees\n", folder, len(groups[folder]))
		found, said, err := judge(ctx, folder, groups[folder], o.most)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			fmt.Fprintf(out, "%s: nothing is known of it: %v\n", folder, err)
			continue
		}
		for id, h := range found {
			all[id] = all[id].and(h)
			report[id] += said[id]
		}
		if !o.held {
			continue
		}
		catalog.replaceHeld(folder, slices.Sorted(maps.Keys(groups[folder])), found)
		if err := os.WriteFile(heldFile, []byte(catalog.Held.String()), 0o644); err != nil {
			return err
		}
	}
	sentences := map[string]string{}
	for _, record := range catalog.Records {
		for _, guarantee := range record.Guarantees {
			sentences[guarantee.ID] = guarantee.Sentence
		}
	}
	for _, id := range ids {
		h := all[id]
		if !o.held || h.broken > 0 && h.noticed == 0 {
			fmt.Fprintf(out, "\n%s %s\n%d of %d breaks were noticed\n%s", id, sentences[id], h.noticed, h.broken, report[id])
		}
	}
	return nil
}

// names says whether the arguments name the folder of a package.
func (o *options) names(folder string) bool {
	return len(o.packages) == 0 || slices.ContainsFunc(o.packages, func(pattern string) bool {
		above, below := strings.CutSuffix(path.Clean(pattern), "/...")
		return folder == above || below && strings.HasPrefix(folder, above+"/")
	})
}

// judge runs internal/tools/mutants on one package, and reads what it says.
func judge(ctx context.Context, folder string, groups map[string][]string, most int) (found map[string]held, said map[string]string, err error) {
	var input strings.Builder
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&input, "%s\t%s\n", id, strings.Join(groups[id], " "))
	}
	command := exec.CommandContext(ctx, "go", "run", "./internal/tools/mutants", "-groups", "-", "-most", fmt.Sprint(most), "./"+folder)
	command.Stdin = strings.NewReader(input.String())
	var complaints strings.Builder
	command.Stderr = &complaints
	output, err := command.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s", err, complaints.String())
	}
	found, said = map[string]held{}, map[string]string{}
	for line := range strings.Lines(string(output)) {
		// id, verdict, test, mutant
		parts := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(parts) != 4 {
			continue // it says how far it is
		}
		h := held{broken: 1}
		if parts[1] == "noticed" {
			h = held{broken: 1, noticed: 1, example: strings.TrimPrefix(parts[3], folder+" "), by: parts[2]}
		}
		found[parts[0]] = found[parts[0]].and(h)
		said[parts[0]] += fmt.Sprintf("  %s: %s %s\n", parts[3], parts[1], parts[2])
	}
	return found, said, nil
}
