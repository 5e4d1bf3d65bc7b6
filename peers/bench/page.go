package bench

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

const missing = "–"

// cell is the median of the rounds, and beside it the median of their ratios to
// the floor's.
func (c column) cell(r *Results, contestant string) string {
	values := c.value(r, contestant)
	if len(values) == 0 {
		return missing
	}
	text := c.unit(middle(values))
	if ratios := c.value.toFloor()(r, contestant); c.ratio && len(ratios) > 0 && contestant != theFloor {
		text += " (" + digits(middle(ratios)) + " f)"
	}
	return text
}

// table has a line for each contestant of the row, and notes why some have no
// figures.
func (w row) table(r *Results) (lines [][]string, notes []string) {
	head := []string{""}
	for _, c := range w.columns {
		head = append(head, c.title)
	}
	lines = append(lines, head)
	lacks := slices.Clone(w.lacks)
	for _, name := range w.contestants {
		line := []string{name}
		for _, c := range w.columns {
			line = append(line, c.cell(r, name))
		}
		lines = append(lines, line)
		if why, failed := r.failure(w.name, name); failed {
			lacks = append(lacks, lack{name, why})
		}
	}
	for i, l := range lacks {
		at := slices.IndexFunc(lines, func(line []string) bool { return line[0] == l.contestant })
		if at < 0 {
			at = len(lines)
			lines = append(lines, append([]string{l.contestant}, slices.Repeat([]string{missing}, len(w.columns))...))
		}
		lines[at][0] += fmt.Sprintf(" [%d]", i+1)
		notes = append(notes, fmt.Sprintf("[%d] %s: %s.", i+1, l.contestant, l.why))
	}
	return lines, notes
}

// targetLines say of each target what was measured, and whether it is met.
func targetLines(r *Results, rows []row) [][]string {
	lines := [][]string{{"Work", "Target", "", "Before", "Measured", ""}}
	for _, w := range rows {
		for _, t := range w.targets {
			bound, before, measured, met := "≥ "+t.unit(t.bound), missing, missing, "not measured"
			if t.atMost {
				bound = "≤ " + t.unit(t.bound)
			}
			if t.before != 0 {
				before = t.unit(t.before)
			}
			if values := t.value(r, t.contestant); len(values) > 0 {
				measured, met = t.unit(middle(values)), "**not met**"
				if t.met(middle(values)) {
					met = "met"
				}
			}
			lines = append(lines, []string{w.title, t.what, bound, before, measured, met})
		}
	}
	return lines
}

// obstacles say what stands in the way of the targets that are not met.
func obstacles(r *Results, rows []row) string {
	var text strings.Builder
	for _, w := range rows {
		missed := make(map[string][]string) // the targets, by what stands in their way
		var reasons []string
		for _, t := range w.targets {
			values := t.value(r, t.contestant)
			if t.obstacle == "" || len(values) == 0 || t.met(middle(values)) {
				continue
			}
			if missed[t.obstacle] == nil {
				reasons = append(reasons, t.obstacle)
			}
			missed[t.obstacle] = append(missed[t.obstacle], t.what)
		}
		for _, why := range reasons {
			fmt.Fprintf(&text, "- **%s**, %s: %s\n", w.title, strings.Join(missed[why], "; "), why)
		}
	}
	return text.String()
}

// markdown aligns the columns, so that the table can be read as it is, too.
func markdown(lines [][]string) string {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], 3, utf8.RuneCountInString(cell))
		}
	}
	var text strings.Builder
	for n, line := range lines {
		for i, cell := range line {
			text.WriteString("| " + cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+1))
		}
		text.WriteString("|\n")
		if n == 0 {
			for _, width := range widths {
				text.WriteString("| " + strings.Repeat("-", width) + " ")
			}
			text.WriteString("|\n")
		}
	}
	return text.String()
}

// tables are the whole outcome, for a terminal.
func tables(r *Results, rows []row) string {
	var text strings.Builder
	for _, w := range rows {
		lines, notes := w.table(r)
		fmt.Fprintf(&text, "%s\n\n%s", w.title, markdown(lines))
		for _, note := range notes {
			fmt.Fprintln(&text, note)
		}
		fmt.Fprintln(&text)
	}
	text.WriteString("Targets\n\n" + markdown(targetLines(r, rows)))
	return text.String()
}
