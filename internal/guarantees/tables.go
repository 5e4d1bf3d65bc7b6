package main

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

const tablePreamble = `# Guarantees

This page lists what Bowline promises, by decision record, with the tests that check each promise. To run one, from the root
of the repository: ` + "`go test -run '^NAME$' ./FOLDER`" + `.

"Breaks noticed" says what these tests are worth: the code that they reach was broken in so many small ways, one at a time,
and they alone failed on so many of them; one of those is shown. ` + "`go run ./internal/guarantees -held`" + ` finds that out anew,
for all packages or for some. "Not measured" means that nobody has looked yet.

This page is generated: ` + "`make docs`" + ` rewrites it, and a test fails if it is outdated.
`

// Table is docs/guarantees.md.
func (b *Catalog) Table() string {
	var page strings.Builder
	page.WriteString(tablePreamble)
	for _, record := range b.Records {
		if len(record.Guarantees) == 0 {
			continue
		}
		fmt.Fprintf(&page, "\n## [%s. %s](adr/%s)\n\n", record.Number, record.Title, path.Base(record.File))
		page.WriteString("| Guarantee | What is promised | Tested by | Breaks noticed |\n| --- | --- | --- | --- |\n")
		for _, guarantee := range record.Guarantees {
			b.writeRow(&page, guarantee)
		}
	}
	return page.String()
}

func (b *Catalog) writeRow(page *strings.Builder, guarantee Guarantee) {
	var names []string
	for _, test := range b.Tests[guarantee.ID] {
		names = append(names, fmt.Sprintf("[%s](../%s)", test.Name, test.File))
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
