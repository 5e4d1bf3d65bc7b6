package main

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each fuzz target of the tree is listed, whatever its module is, and no two programs have one name. The lines that look like targets are counted in
// another way than the list is made; those of internal/tools are texts of other programs.
func TestEveryFuzzTargetIsListed(t *testing.T) {
	root := os.DirFS("../../..")
	listed, err := targets(root)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, one := range listed {
		if names[one.name()] {
			t.Errorf("two targets are called %s", one.name())
		}
		names[one.name()] = true
	}
	line, found := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`), 0
	err = fs.WalkDir(root, ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules" || file == "internal/tools"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(file, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return err
		}
		for _, match := range line.FindAllStringSubmatch(string(text), -1) {
			found++
			if one := (target{path.Dir(file), match[1]}); !names[one.name()] {
				t.Errorf("%s of %s is not listed", match[1], file)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found != len(listed) || found == 0 {
		t.Errorf("%d targets are listed, and the tree has %d", len(listed), found)
	}
}

// What only looks like a target is not listed.
func TestOnlyTargetsAreListed(t *testing.T) {
	got, err := targets(fstest.MapFS{
		"a_test.go":              {Data: []byte("package a\nfunc FuzzA() {}\nfunc (x X) FuzzMethod() {}\nvar s = `\nfunc FuzzText(f *testing.F) {}\n`\nfunc TestFuzz() {}")},
		"b/c/c_test.go":          {Data: []byte("package c_test\nfunc FuzzC() {}")},
		"b/c/c.go":               {Data: []byte("package c\nfunc FuzzNoTest() {}")},
		"b/testdata/d_test.go":   {Data: []byte("package d\nfunc FuzzD() {}")},
		"node_modules/x_test.go": {Data: []byte("package x\nfunc FuzzX() {}")},
	})
	if err != nil || len(got) != 2 || got[0].name() != "FuzzA" || got[1].name() != "b_c_FuzzC" {
		t.Errorf("got %v, %v, want FuzzA and b_c_FuzzC", got, err)
	}
}
