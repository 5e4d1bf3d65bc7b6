package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
)

// A Catalog contains all records, and the tests of their guarantees.
type Catalog struct {
	Records  []Record
	Tests    map[string][]Test // by the guarantee's number, in order of file and name
	Held     measured          // what the tests of a guarantee noticed
	Problems []string          // where records, tests and what they noticed disagree
}

// Read reads the records and the tests of the repository at the root of fsys.
// The error says what could not be read; what was read and is wrong is in
// Problems.
func Read(fsys fs.FS) (*Catalog, error) {
	records, problems, err := readRecords(fsys)
	if err != nil {
		return nil, err
	}
	source, err := readSource(fsys)
	if err != nil {
		return nil, err
	}
	measured, err := readHeld(fsys)
	if err != nil {
		return nil, fmt.Errorf("reading what tests notice: %w", err)
	}
	catalog := &Catalog{
		Held:     measured,
		Records:  records,
		Tests:    map[string][]Test{},
		Problems: append(problems, source.problems...),
	}
	catalog.matchTests(source)
	catalog.findUntested()
	catalog.checkHeld(source)
	return catalog, nil
}

// matchTests gives each guarantee the tests that claim it. A suite claims on behalf
// of the tests that run it.
func (b *Catalog) matchTests(source *source) {
	stated := map[string]bool{}
	for _, record := range b.Records {
		for _, guarantee := range record.Guarantees {
			stated[guarantee.ID] = true
		}
	}
	for _, c := range source.claims {
		tests := []Test{{c.function, c.file}}
		if c.suite {
			tests = source.runs[c.function]
		}
		if len(tests) == 0 {
			b.problem("%s:%d: proptest.%s claims guarantees, but no Test function calls it", c.file, c.line, c.function)
		}
		for _, id := range c.ids {
			if !stated[id] {
				b.problem("%s:%d: %s claims %s, which no record states", c.file, c.line, c.function, id)
			}
			b.add(id, tests)
		}
	}
	for _, tests := range b.Tests {
		slices.SortFunc(tests, func(a, b Test) int {
			return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Name, b.Name))
		})
	}
}

func (c *Catalog) add(id string, tests []Test) {
	for _, test := range tests {
		if !slices.Contains(c.Tests[id], test) {
			c.Tests[id] = append(c.Tests[id], test)
		}
	}
}

func (c *Catalog) findUntested() {
	for _, record := range c.Records {
		for _, guarantee := range record.Guarantees {
			if len(c.Tests[guarantee.ID]) == 0 {
				c.problem("%s: no test holds %s", record.File, guarantee.ID)
			}
		}
	}
}

func (c *Catalog) problem(format string, args ...any) {
	c.Problems = append(c.Problems, fmt.Sprintf(format, args...))
}
