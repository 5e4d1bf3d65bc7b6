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
	page.WriteString("\n## Targets\n\nMost targets are ratios within this run, which mean the same on another machine. " +
		"*Before* is what Bowline measured when the target was set.\n\n" +
		markdown(targetLines(r, rows)))
	if missed := obstacles(r, rows); missed != "" {
		page.WriteString("\n## What stands in the way of the targets that are not met\n\n" + missed)
	}
	for _, w := range rows {
		lines, notes := w.table(r)
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n%s", w.title, w.about, markdown(lines))
		for _, note := range notes {
			page.WriteString("\n" + note + "\n")
		}
		for _, p := range plots() {
			if p.row == w.name && w.measure != nil && len(p.curves(r)) > 0 {
				fmt.Fprintf(&page, "\n![%s](benchmarks/%s)\n", p.title, p.file)
			}
		}
	}
	return page.String()
}

const dateFormat = "2006-01-02 15:04 MST"

const preface = `# Benchmarks

This page compares Bowline with the other MCP libraries for Go, and with a *floor*: a minimal hand-written program that does
the same work. The tables are generated. To measure again, on a machine that does nothing else:

    make bench

To check only that the benchmarks work, in less than a minute:

    cd peers && go run ./cmd/bench -quick

The page is generated from [results.json](benchmarks/results.json), which contains every round. To rewrite the page without
measuring:

    cd peers && go run ./cmd/bench -render -write ../docs/benchmarks.md

## How to read it

- **Rounds.** In each round every contestant does the work once, one after the other, each in a new process. Each value in
  a table is the median of the rounds.
- **(1.3 f)** means 1.3 times the floor. It is the median of the ratios of the rounds, so each ratio compares two
  measurements of the same minute. For times and sizes less is better, for rates more. Ratios mean something on any
  machine. Times depend on the machine below, so no test checks them.
- **floor** is a Go program without a library: one line of JSON for each message, encoding/json into one struct, one
  reader, and a map of the calls in flight. It has no limits, checks, timeouts or cancellation, and serves one request at
  a time.
- **floor, frames handed over** is the same with a channel instead of a pipe in memory. Bowline's in-memory transport does
  not copy frames either.
- **floor, by hand** shows the limit of what is possible. It knows the one message that it writes and reads, cuts it by the
  length of its fixed parts, checks nothing, and writes the messages of several callers together. No program that parses
  JSON is as fast.
- **Bowline** calls a tool that is a Go function, with Go values as arguments and result. The other libraries do the same.
- Each contestant is the client and the server of one library with its defaults, in %s unless it says otherwise. If
  a default had to be changed, the row says so.
- **processor** is the user and system time of client and server for each call, including garbage collection. It is
  measured only on Linux.
- **–** means that there is nothing to measure; a note says why.
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
