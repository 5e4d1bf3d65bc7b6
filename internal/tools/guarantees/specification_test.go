package main

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// sections are the numbered sections of the specification this project started
// from.
var sections = strings.Fields(`1.1 1.2 1.3 2.1 2.2 2.3 2.4 2.5 3.1 3.2 3.3 3.4 3.5 3.6 3.7 4.1 4.2 4.3 4.4 4.5
	5.1 5.2 5.3 5.4 6.1 6.2 7.1 7.2 7.3 8.1 9.1 9.2 10.1 10.2 11.1 11.2 11.3 12.1 12.2 12.3 12.4 13 14 15.1 15.2 15.3 16`)

var (
	namedGuarantee = regexp.MustCompile(`G-\d{4}\.\d+`)
	namedTest      = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	namedFile      = regexp.MustCompile(`\]\(([^)#]+)\)`)
)

// TestEverySectionOfTheSpecificationIsMapped checks that the map of the
// specification has a row for each of its sections, in order, and that the
// guarantees, tests and pages in it exist.
func TestEverySectionOfTheSpecificationIsMapped(t *testing.T) {
	const file = "docs/design/SEED_003.md"
	root := os.DirFS("../../..")
	page, err := fs.ReadFile(root, file)
	if err != nil {
		t.Fatal(err)
	}
	catalog := repository(t)
	var mapped []string
	for line := range strings.Lines(string(page)) {
		row := strings.Split(line, " | ")
		if len(row) != 5 || !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Section") || strings.HasPrefix(line, "| ---") {
			continue
		}
		mapped = append(mapped, strings.Fields(row[0])[1])
	}
	if !slices.Equal(mapped, sections) {
		t.Errorf("the page maps %v, want %v", mapped, sections)
	}
	for _, id := range namedGuarantee.FindAllString(string(page), -1) {
		if len(catalog.Tests[id]) == 0 {
			t.Errorf("%s: there is no %s", file, id)
		}
	}
	tests := testsOf(t, root)
	for _, named := range namedTest.FindAllStringSubmatch(string(page), -1) {
		if !slices.Contains(tests, named[1]) {
			t.Errorf("%s: there is no %s", file, named[1])
		}
	}
	for _, named := range namedFile.FindAllStringSubmatch(string(page), -1) {
		if _, err := fs.Stat(root, path.Join(path.Dir(file), named[1])); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// testsOf lists the tests of the tree.
func testsOf(t *testing.T, root fs.FS) (names []string) {
	declared := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(root, name)
		for _, found := range declared.FindAllStringSubmatch(string(source), -1) {
			names = append(names, found[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
