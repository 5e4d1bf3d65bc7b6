package main

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

const pagePreamble = `# Guarantees

Bowline promises %d things. Each is a numbered sentence in a [decision record](adr/README.md), and each is held by tests that name
it. This page counts them by the package whose tests hold them; a promise that is tested in two packages counts in both.

To see the sentences and their tests, from the root of the repository:

` + "```" + `
go run ./internal/tools/guarantees -table                   # all of them
go run ./internal/tools/guarantees -table -only '^G-0023'   # those of one record
go run ./internal/tools/guarantees -table conn auth/...     # those that some packages test
` + "```" + `

"Breaks noticed" says what the tests are worth: the code that the tests of a guarantee reach was broken in so many small ways,
one at a time, and these tests alone failed on so many of them. ` + "`go run ./internal/tools/guarantees -held conn`" + ` measures a package anew.

This page is generated: ` + "`make docs`" + ` rewrites it, and a test fails if it is outdated.

| Package | Guarantees | Of the records | Measured | Breaks noticed |
| --- | --- | --- | --- | --- |
`

// Page is docs/guarantees.md.
func (b *Catalog) Page() string {
	type row struct {
		guarantees, measured int
		all                  held
		records              []string // the cells, in order
	}
	rows, total := map[string]*row{}, 0
	for _, record := range b.Records {
		inRecord := map[string]int{}
		for _, guarantee := range record.Guarantees {
			total++
			for _, folder := range b.folders(guarantee.ID) {
				if rows[folder] == nil {
					rows[folder] = new(row)
				}
				inRecord[folder]++
				rows[folder].guarantees++
				if h, known := b.Held[guarantee.ID][folder]; known {
					rows[folder].measured++
					rows[folder].all = rows[folder].all.and(h)
				}
			}
		}
		for folder, n := range inRecord {
			cell := fmt.Sprintf("[%s](adr/%s)&nbsp;%d", record.Number, path.Base(record.File), n)
			rows[folder].records = append(rows[folder].records, cell)
		}
	}
	var page strings.Builder
	fmt.Fprintf(&page, pagePreamble, total)
	for _, folder := range slices.Sorted(maps.Keys(rows)) {
		r := rows[folder]
		noticed := "not measured"
		if r.measured > 0 {
			noticed = fmt.Sprintf("%d of %d", r.all.noticed, r.all.broken)
		}
		fmt.Fprintf(&page, "| [%s](../%s) | %d | %s | %d | %s |\n", folder, folder, r.guarantees, strings.Join(r.records, ", "), r.measured, noticed)
	}
	return page.String()
}

// Table lists guarantees by record: the sentence, its tests, and what they noticed.
func (b *Catalog) Table(listed func(id string) bool) string {
	var table strings.Builder
	for _, record := range b.Records {
		guarantees := slices.DeleteFunc(slices.Clone(record.Guarantees), func(g Guarantee) bool { return !listed(g.ID) })
		if len(guarantees) == 0 {
			continue
		}
		fmt.Fprintf(&table, "\n## [%s. %s](%s)\n\n", record.Number, record.Title, record.File)
		table.WriteString("| Guarantee | What is promised | Tested by | Breaks noticed |\n| --- | --- | --- | --- |\n")
		for _, guarantee := range guarantees {
			b.writeRow(&table, guarantee)
		}
	}
	return table.String()
}

func (b *Catalog) writeRow(page *strings.Builder, guarantee Guarantee) {
	var names []string
	for _, test := range b.Tests[guarantee.ID] {
		names = append(names, fmt.Sprintf("[%s](%s)", test.Name, test.File))
	}
	fmt.Fprintf(page, "| %s | %s | %s | %s |\n", guarantee.ID, cell(guarantee.Sentence), strings.Join(names, "<br>"), b.heldCell(guarantee.ID))
}

// cell keeps a text from ending the table cell it stands in.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

const (
	indexBegin = "<!-- The index is generated: make docs rewrites it. -->\n"
	indexEnd   = "<!-- End of the index. -->\n"
)

// Index is docs/adr/README.md with its index replaced; page is the file as it
// is. It fails when the page does not say where the index belongs.
func (b *Catalog) Index(page string) (string, error) {
	before, rest, begins := strings.Cut(page, indexBegin)
	_, after, ends := strings.Cut(rest, indexEnd)
	if !begins || !ends {
		return "", errors.New("writing the index of docs/adr/README.md: its two marker comments are missing")
	}
	var index strings.Builder
	index.WriteString("\n| Record | Decision | Status | Guarantees |\n| --- | --- | --- | --- |\n")
	for _, record := range b.Records {
		fmt.Fprintf(&index, "| [%s](%s) | %s | %s | %d |\n", record.Number, path.Base(record.File),
			cell(record.Title), cell(record.Status), len(record.Guarantees))
	}
	index.WriteString("\n")
	return before + indexBegin + index.String() + indexEnd + after, nil
}
