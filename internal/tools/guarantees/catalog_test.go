package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const soundRecord = `# 0005. Tombstones

Date: 2026-11-21

Status: accepted

## Guarantees

- **G-0005.1** A late reply is counted.
- **G-0005.2** A late reply is never delivered,
  whatever | it carries.

` + "```" + `
- **G-9999.9** Not a guarantee, but an example.
` + "```" + `
`

const soundTest = `package conn

// TestLate sends a reply late.
//
// Guarantees: G-0005.1,
// G-0005.2
func TestLate(t *testing.T) {}

// FuzzLate does it again.
// Guarantees: G-0005.2.
func FuzzLate(f *testing.F) {}
`

// TestProblems makes one mistake of each kind in a small repository that is otherwise
// correct.
func TestProblems(t *testing.T) {
	for _, fixture := range []struct {
		name  string
		files map[string]string // in place of, or beside, the sound ones
		want  []string
	}{
		{name: "a sound repository"},
		{
			name:  "a record without guarantees",
			files: map[string]string{"docs/adr/0010-scope.md": "# 0010. Scope\nStatus: accepted\n"},
		},
		{
			name:  "no test",
			files: map[string]string{"conn/late_test.go": "package conn\n// Guarantees: G-0005.1\nfunc TestLate() {}"},
			want:  []string{"docs/adr/0005-tombstones.md: no test holds G-0005.2"},
		},
		{
			name:  "no such guarantee",
			files: map[string]string{"conn/more_test.go": "package conn\n\n// Guarantees: G-0005.3\nfunc TestMore() {}"},
			want:  []string{"conn/more_test.go:3: TestMore claims G-0005.3, which no record states"},
		},
		{
			name:  "no number",
			files: map[string]string{"conn/more_test.go": "package conn\n\n// Guarantees: G-5.2, G-0005.1\nfunc TestMore() {}"},
			want:  []string{`conn/more_test.go:3: "G-5.2" in the claim of TestMore is not the number of a guarantee`},
		},
		{
			name:  "an empty claim",
			files: map[string]string{"conn/more_test.go": "package conn\n\n// Guarantees:\nfunc TestMore() {}"},
			want:  []string{`conn/more_test.go:3: "" in the claim of TestMore is not the number of a guarantee`},
		},
		{
			name: "claims that nobody can hold",
			files: map[string]string{
				"conn/more_test.go": "package conn\n\n// Guarantees: G-0005.1\nfunc check() {}\n\n// Guarantees: G-0005.1\nfunc Testing() {}\n\n// Guarantees: G-0005.1\n\nfunc TestMore() {}",
				"proptest/late.go":  "package proptest\n\n// Guarantees: G-0005.1\nfunc late() {}",
			},
			want: []string{
				"conn/more_test.go:3: this claim is not in the comment of a Test, Fuzz or Example function or of an exported function of proptest",
				"conn/more_test.go:6: this claim is not in the comment of a Test, Fuzz or Example function or of an exported function of proptest",
				"conn/more_test.go:9: this claim is not in the comment of a Test, Fuzz or Example function or of an exported function of proptest",
				"proptest/late.go:3: this claim is not in the comment of a Test, Fuzz or Example function or of an exported function of proptest",
			},
		},
		{
			name:  "a suite that no test runs",
			files: map[string]string{"proptest/late.go": "package proptest\n\n// Guarantees: G-0005.1\nfunc Late() {}"},
			want:  []string{"proptest/late.go:3: proptest.Late claims guarantees, but no Test function calls it"},
		},
		{
			name: "numbers with a gap, twice, and of another record",
			files: map[string]string{
				"docs/adr/0006-gap.md":   "# 0006. Gap\nStatus: accepted\n- **G-0006.2** Late.\n",
				"docs/adr/0007-twice.md": "# 0007. Twice\nStatus: accepted\n- **G-0007.1** One.\n- **G-0007.1** Again.\n",
				"docs/adr/0008-other.md": "# 0008. Other\nStatus: accepted\n- **G-0005.1** Stolen.\n",
				"conn/more_test.go":      "package conn\n// Guarantees: G-0006.2, G-0007.1\nfunc TestMore() {}",
			},
			want: []string{
				"docs/adr/0008-other.md:3: G-0005.1 does not belong to record 0008",
				"docs/adr/0006-gap.md: G-0006.2 stands where G-0006.1 belongs",
				"docs/adr/0007-twice.md: G-0007.1 stands where G-0007.2 belongs",
			},
		},
		{
			name:  "two records of one number",
			files: map[string]string{"docs/adr/0005-again.md": "# 0005. Again\nStatus: accepted\n"},
			want:  []string{"docs/adr/0005-again.md and docs/adr/0005-tombstones.md have one number"},
		},
		{
			name: "records in no form",
			files: map[string]string{
				"docs/adr/6-short.md":   "# 6. Short\n",
				"docs/adr/0006-form.md": "# 0007. Form\n\n- G-0006.1: almost.\n* **G-0006.1** Almost.\n- **G-0006.1** no sentence\n",
				"conn/more_test.go":     "package conn\n// Guarantees: G-0006.1\nfunc TestMore() {}",
			},
			want: []string{
				`docs/adr/0006-form.md:1: the first line is not "# 0006. Title"`,
				`docs/adr/0006-form.md:3: a guarantee is written "- **G-0006.n** Sentence."`,
				`docs/adr/0006-form.md:4: a guarantee is written "- **G-0006.n** Sentence."`,
				`docs/adr/0006-form.md:5: G-0006.1 is not a sentence: it does not end with a full stop`,
				`docs/adr/0006-form.md:1: there is no line "Status: accepted"`,
				`docs/adr/6-short.md is not named NNNN-title.md`,
			},
		},
		{
			name: "folders that are not the module's",
			files: map[string]string{
				"conn/testdata/x_test.go": "package x\n// Guarantees: G-1\nfunc TestX() {}",
				"bench/go.mod":            "module bench",
				"bench/x_test.go":         "package x\n// Guarantees: G-1\nfunc TestX() {}",
			},
		},
		{
			name: "modules that go.work joins",
			files: map[string]string{
				"go.work":          "go 1.25.5\n\nuse (\n\t.\n\t./cmd/x\n)\n\nuse ./deep/y\n",
				"cmd/x/go.mod":     "module x",
				"cmd/x/x_test.go":  "package x\n// Guarantees: G-1\nfunc TestX() {}",
				"deep/y/go.mod":    "module y",
				"deep/y/y_test.go": "package y\n// Guarantees: G-2\nfunc TestY() {}",
				"cmd/z/go.mod":     "module z",
				"cmd/z/z_test.go":  "package z\n// Guarantees: G-3\nfunc TestZ() {}",
			},
			want: []string{
				`cmd/x/x_test.go:2: "G-1" in the claim of TestX is not the number of a guarantee`,
				`deep/y/y_test.go:2: "G-2" in the claim of TestY is not the number of a guarantee`,
			},
		},
		{
			name: "what was noticed long ago",
			files: map[string]string{
				"conn/core.go": "package conn\nfunc (c *core) late() {}",
				heldFile: "G-0005.1\tconn\t2/7\tcore.early: return true => return false\tTestLate\n" +
					"G-0005.2\tconn\t1/7\tcore.late: return true => return false\tTestGone\nG-0005.3\tconn\t0/7\t\t\n",
			},
			want: []string{
				heldFile + ": G-0005.1: conn has no function core.early",
				heldFile + ": TestGone is no test of G-0005.2 in conn",
				heldFile + ": there is no test of G-0005.3 in conn",
			},
		},
	} {
		t.Run(fixture.name, func(t *testing.T) {
			if diff := cmp.Diff(fixture.want, read(t, fixture.files).Problems); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTable checks that the claim of a suite counts for each test that calls it, and that
// each test is listed once.
func TestTable(t *testing.T) {
	catalog := read(t, map[string]string{
		"proptest/late.go":      "package proptest\n// Guarantees: G-0005.1\nfunc Late() {}\n// Guarantees: G-0005.1\nfunc Later() {}",
		"proptest/late_test.go": "package proptest\nfunc TestOwn(t *testing.T) { t.Run(\"x\", func(t *testing.T) { Late(t) }) }",
		"transport/a_test.go":   "package transport_test\nfunc TestOurs(t *testing.T) { proptest.Late(t); proptest.Later(t); proptest.Late(t) }",
		"docs/adr/0010-none.md": "# 0010. None\nStatus: accepted\n",
		"conn/core.go":          "package conn\nfunc (c *core[T]) late() {}",
		"proptest/own.go":       "package proptest\nfunc own() {}",
		heldFile: "G-0005.1\tproptest\t2/4\town: a < b => a <= `b`\tTestOwn\nG-0005.1\tconn\t0/2\t\t\n" +
			"G-0005.1\ttransport\t0/1\t\t\nG-0005.2\tconn\t0/7\t\t\n",
	})
	if len(catalog.Problems) > 0 {
		t.Error(catalog.Problems)
	}
	want := `
## [0005. Tombstones](docs/adr/0005-tombstones.md)

| Guarantee | What is promised | Tested by | Breaks noticed |
| --- | --- | --- | --- |
| G-0005.1 | A late reply is counted. | [TestLate](conn/late_test.go)<br>[TestOwn](proptest/late_test.go)<br>[TestOurs](transport/a_test.go) | 2 of 7: ` + "`own: a < b => a <= 'b'`" + ` |
| G-0005.2 | A late reply is never delivered, whatever \| it carries. | [FuzzLate](conn/late_test.go)<br>[TestLate](conn/late_test.go) | **none of 7** |
`
	if diff := cmp.Diff(want, catalog.Table(func(string) bool { return true })); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	if one := catalog.Table(func(id string) bool { return id == "G-0005.2" }); strings.Contains(one, "G-0005.1") || !strings.Contains(one, "G-0005.2") {
		t.Errorf("the table of G-0005.2 is %s", one)
	}
	page := fmt.Sprintf(pagePreamble, 2) + `| [conn](../conn) | 2 | [0005](adr/0005-tombstones.md)&nbsp;2 | 2 | 0 of 9 |
| [proptest](../proptest) | 1 | [0005](adr/0005-tombstones.md)&nbsp;1 | 1 | 2 of 4 |
| [transport](../transport) | 1 | [0005](adr/0005-tombstones.md)&nbsp;1 | 1 | 0 of 1 |
`
	if diff := cmp.Diff(page, catalog.Page()); diff != "" {
		t.Errorf("page (-want +got):\n%s", diff)
	}
}

// TestIndex checks that each record is listed, that the text around the index is kept, and
// that writing the index again changes nothing.
func TestIndex(t *testing.T) {
	catalog := read(t, map[string]string{"docs/adr/0010-none.md": "# 0010. None\nStatus: superseded by 0011\n"})
	page := "# Records\n\n" + indexBegin + "| old |\n" + indexEnd + "\nMore.\n"
	want := "# Records\n\n" + indexBegin + `
| Record | Decision | Status | Guarantees |
| --- | --- | --- | --- |
| [0005](0005-tombstones.md) | Tombstones | accepted | 2 |
| [0010](0010-none.md) | None | superseded by 0011 | 0 |

` + indexEnd + "\nMore.\n"
	for range 2 {
		got, err := catalog.Index(page)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("index (-want +got):\n%s", diff)
		}
		page = got
	}
	for _, unmarked := range []string{"", indexBegin, indexEnd, indexEnd + indexBegin} {
		if _, err := catalog.Index(unmarked); err == nil {
			t.Errorf("Index(%q) found a place for the index", unmarked)
		}
	}
}

// TestReadReportsWhatItCannotRead checks that a repository that cannot be read is an error.
func TestReadReportsWhatItCannotRead(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"no records":  {"conn/x_test.go": {Data: []byte("package conn")}},
		"broken test": {"docs/adr/README.md": {}, "conn/x_test.go": {Data: []byte("package")}},
		"no parts":    {"docs/adr/README.md": {}, heldFile: {Data: []byte("G-0005.1 2/7")}},
		"no counts":   {"docs/adr/README.md": {}, heldFile: {Data: []byte("G-0005.1\tconn\t2\t\t")}},
	} {
		if _, err := Read(files); err == nil {
			t.Errorf("%s: Read reported nothing", name)
		}
	}
}

// read reads the correct repository with some files replaced or added.
func read(t *testing.T, files map[string]string) *Catalog {
	t.Helper()
	fsys := fstest.MapFS{
		"docs/adr/README.md":          {Data: []byte("# Records\n")},
		"docs/adr/0005-tombstones.md": {Data: []byte(soundRecord)},
		"conn/late_test.go":           {Data: []byte(soundTest)},
	}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	catalog, err := Read(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return catalog
}
