package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// limits are what the rooms may be, by name. A name stands without its spaces in the file.
type limits map[string]room

func readLimits(path string) (limits, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	l := make(limits)
	for scanner, number := bufio.NewScanner(file), 1; scanner.Scan(); number++ {
		if line := scanner.Text(); line != "" && !strings.HasPrefix(line, "#") {
			r, err := parseLimit(line)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, number, err)
			}
			l[r.name] = r
		}
	}
	return l, nil
}

func parseLimit(line string) (r room, err error) {
	var perLine float64
	if _, err := fmt.Sscan(line, &r.name, &r.cycle, &r.p90, &r.most, &perLine, &r.code, &r.exported); err != nil {
		return r, err
	}
	r.name = strings.Replace(r.name, "(", " (", 1)
	r.comments = int(perLine*float64(r.code) + 0.5)
	return r, nil
}

// check returns what is beyond the limits, and prints where lines and exported names have changed.
func (l limits) check(rooms []room, out io.Writer) (broken []string) {
	for _, r := range rooms {
		limit, ok := l[r.name]
		if !ok {
			broken = append(broken, r.name+": it has no limits: rooms -update writes them")
			continue
		}
		for _, of := range []struct {
			what        string
			is, allowed int
		}{
			{"the files of the largest cycle", r.cycle, limit.cycle},
			{"p90 of the lines of a function", r.p90, limit.p90},
			{"lines of the longest function", r.most, limit.most},
		} {
			if of.is > of.allowed {
				broken = append(broken, fmt.Sprintf("%s: %s: %d, and %d are allowed", r.name, of.what, of.is, of.allowed))
			}
		}
		if round(r.perLine()) < round(limit.perLine()) {
			broken = append(broken, fmt.Sprintf("%s: lines of comments for each line of code: %.2f, and %.2f are needed", r.name, r.perLine(), limit.perLine()))
		}
		if r.code != limit.code || r.exported != limit.exported {
			fmt.Fprintf(out, "%s: %+d lines of code, %+d exported names\n", r.name, r.code-limit.code, r.exported-limit.exported)
		}
	}
	return broken
}

// round rounds to what limits.txt shows.
func round(perLine float64) int { return int(perLine*100 + 0.5) }

const limitsHead = `# What go run ./internal/tools/rooms -check allows: room, files of the largest cycle, p90 and maximum of the lines of a function (these may
# only fall), lines of comments for each line of code (may only rise), lines of code, exported names (a rise of these needs a line in an ADR).
`

// write writes the limits. A limit stays where it is better than what was measured. If all rooms were measured, those that are no more go.
func (l limits) write(path string, rooms []room, all bool) error {
	written := make(limits)
	if !all {
		maps.Copy(written, l)
	}
	for _, r := range rooms {
		if old, ok := l[r.name]; ok {
			r.cycle, r.p90, r.most = min(r.cycle, old.cycle), min(r.p90, old.p90), min(r.most, old.most)
			if round(r.perLine()) < round(old.perLine()) {
				r.comments = int(old.perLine()*float64(r.code) + 0.5)
			}
		}
		written[r.name] = r
	}
	var text strings.Builder
	text.WriteString(limitsHead)
	for _, name := range slices.Sorted(maps.Keys(written)) {
		r := written[name]
		fmt.Fprintf(&text, "%s %d %d %d %.2f %d %d\n", strings.Replace(name, " (", "(", 1), r.cycle, r.p90, r.most, r.perLine(), r.code, r.exported)
	}
	return os.WriteFile(path, []byte(text.String()), 0o644)
}
