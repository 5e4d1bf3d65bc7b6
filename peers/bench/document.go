package bench

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// write writes the page, and beside it the results that it is made of.
func write(r *Results, page string) error {
	if err := os.MkdirAll(folderOf(page), 0o755); err != nil {
		return err
	}
	if err := r.save(filepath.Join(folderOf(page), "results.json")); err != nil {
		return err
	}
	for _, p := range plots() {
		picture := filepath.Join(folderOf(page), p.file)
		if drawn := p.svg(r); drawn != "" {
			if err := os.WriteFile(picture, []byte(drawn), 0o644); err != nil {
				return err
			}
		} else if err := os.Remove(picture); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return os.WriteFile(page, []byte(document(r, rows())), 0o644)
}

// document is the page.
func document(r *Results, rows []row) string {
	var page strings.Builder
	fmt.Fprintf(&page, preface, legacy)
	page.WriteString("\n## What was run\n\n" + r.facts())
	page.WriteString("\n## Targets\n\nThey are ratios within this run where they can be, so that they mean the same on another machine.\n\n" +
		markdown(targetLines(r, rows)))
	for _, w := range rows {
		lines, notes := w.table(r)
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n%s", w.title, w.about, markdown(lines))
		for _, note := range notes {
			page.WriteString("\n" + note + "\n")
		}
		for _, p := range plots() {
			if p.row == w.name && len(p.curves(r)) > 0 {
				fmt.Fprintf(&page, "\n![%s](benchmarks/%s)\n", p.title, p.file)
			}
		}
	}
	return page.String()
}

const dateFormat = "2006-01-02 15:04 MST"

const preface = `# Benchmarks

Bowline beside the other MCP implementations in Go, and beside a floor: the least that the same work costs. The tables
are generated. To measure again, on a machine that does nothing else:

    make bench

and to see only that it works, in less than a minute:

    cd peers && go run ./cmd/bench -quick

The page is made of [results.json](benchmarks/results.json), which has every round. To write it anew without
measuring:

    cd peers && go run ./cmd/bench -render -write ../docs/benchmarks.md

## How to read it

- **In turns.** In each round every contestant does the work once, one after the other, each in a fresh process. A value
  is the median of the rounds.
- **(1.3 f)** means 1.3 times the floor. It is the median of the ratios of the rounds: each compares two measurements of
  the same minute. For a time or a size less is better, for a rate more. A ratio says something on any machine; a time
  says something of the machine below, so no test asserts one.
- **floor** is what a program in Go would do without a library: a line of JSON for each message, encoding/json into one
  struct, one reader, a map of the calls under way. It has no limits, no checks, no timeouts, no cancellation, and serves
  one request after the other.
- **floor, frames handed over** is the same on a channel in place of a pipe in memory: Bowline's own wire in memory hands
  frames over, too.
- **floor, by hand** is the limit: it knows the one message that it writes and reads, cuts it apart by the length of its
  fixed parts, checks nothing, and writes together what several callers have to say. Nothing that reads JSON gets there.
- **Bowline** calls a tool made of a Go function, from a Go value to a Go value. The other libraries do the same.
- Each contestant is client and server of one implementation, as it comes, in %s unless it says otherwise. Where a
  default had to be changed, the row says so.
- **processor** is user and system time of client and server, per call, garbage collection included. It is known on Linux
  only.
- – stands where there is nothing to measure; a note says why.
`

func (r *Results) facts() string {
	var list strings.Builder
	fact := func(what, is string) {
		if is != "" {
			fmt.Fprintf(&list, "- %s: %s\n", what, is)
		}
	}
	fact("Taken", fmt.Sprintf("%s, in %s, with `%s`", r.Taken.Format(dateFormat), r.Took, r.Command))
	fact("The rows that `-rows` leaves out", r.Earlier)
	if r.Quick {
		fact("Quick", "with less of everything, to see that it works; **the figures mean little**")
	}
	fact("Bowline", "commit "+r.Commit)
	fact("go-sdk", "[modelcontextprotocol/go-sdk](https://github.com/modelcontextprotocol/go-sdk) "+r.Versions["go-sdk"])
	fact("mcp-go", "[mark3labs/mcp-go](https://github.com/mark3labs/mcp-go) "+r.Versions["mcp-go"])
	fact("Go", r.Machine.Go+" "+r.Machine.System)
	fact("Kernel", r.Machine.Kernel)
	fact("Processors", strings.TrimSuffix(fmt.Sprintf("%d, %s", r.Machine.Processors, r.Machine.Processor), ", "))
	return list.String()
}
