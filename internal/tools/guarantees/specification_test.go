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

// sections are those of the documents that this project started from, which ask for something: the numbers of a specification, and the headings of a design.
var sections = map[string][]string{
	"SEED_003.md": strings.Fields(`1.1 1.2 1.3 2.1 2.2 2.3 2.4 2.5 3.1 3.2 3.3 3.4 3.5 3.6 3.7 4.1 4.2 4.3 4.4 4.5
	5.1 5.2 5.3 5.4 6.1 6.2 7.1 7.2 7.3 8.1 9.1 9.2 10.1 10.2 11.1 11.2 11.3 12.1 12.2 12.3 12.4 13 14 15.1 15.2 15.3 16`),
	"SEED_000.md": {"Package layout", "JSON-RPC and Transports", "stdio transports", "HTTP transports", "HTTP transports: own sessions", "Other transports",
		"Protocol types", "Clients and Servers", "Spec Methods", "Iterator Methods", "Middleware", "Errors", "Cancellation", "Progress handling", "Ping / KeepAlive",
		"Roots", "Sampling", "Tools", "Prompts", "Resources and resource templates", "Subscriptions", "ListChanged notifications", "Completion", "Logging", "Pagination"},
}

var (
	namedGuarantee = regexp.MustCompile(`G-\d{4}\.\d+`)
	namedTest      = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	verdict        = regexp.MustCompile(`^(Same|Different|Refused)\b`)
	namedFile      = regexp.MustCompile(`\]\(([^)#]+)\)`)
)

// TestEverySectionOfTheSpecificationIsMapped checks that the map of each document has a row for each of its sections, in order, and that the
// guarantees, tests and pages in it exist. Each row of a design says whether the same is here.
func TestEverySectionOfTheSpecificationIsMapped(t *testing.T) {
	root := os.DirFS("../../..")
	catalog, tests := repository(t), testsOf(t, root)
	for name, want := range sections {
		file := path.Join("docs/design", name)
		page, err := fs.ReadFile(root, file)
		if err != nil {
			t.Fatal(err)
		}
		var mapped []string
		for line := range strings.Lines(string(page)) {
			row := strings.Split(line, " | ")
			if len(row) != 5 || !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Section") || strings.HasPrefix(line, "| ---") {
				continue
			}
			section := strings.TrimPrefix(row[0], "| ")
			if name == "SEED_003.md" {
				section, _, _ = strings.Cut(section, " ") // its number
			} else if !verdict.MatchString(row[2]) {
				t.Errorf("%s: %s: is it the same, different or refused? %s", file, section, row[2])
			}
			mapped = append(mapped, section)
		}
		if !slices.Equal(mapped, want) {
			t.Errorf("%s maps %q, want %q", file, mapped, want)
		}
		for _, id := range namedGuarantee.FindAllString(string(page), -1) {
			if len(catalog.Tests[id]) == 0 {
				t.Errorf("%s: there is no %s", file, id)
			}
		}
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
