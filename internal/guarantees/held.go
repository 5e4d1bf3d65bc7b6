package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// heldFile says of each guarantee what its tests noticed when they were run alone on broken code.
// It is sorted by guarantee. A line is the number of a guarantee, how many breaks of how many its
// tests noticed, one of these, and which test noticed it, with tabs between them.
const heldFile = "internal/guarantees/held.txt"

// held is a line of the file.
type held struct {
	noticed, broken int
	example         string // the name of a mutant: "conn core.close: remove return"; empty if none was noticed
	by              string // the test that noticed it
}

// and adds what was found in another package.
func (h held) and(more held) held {
	if h.noticed == 0 {
		h.example, h.by = more.example, more.by
	}
	h.noticed, h.broken = h.noticed+more.noticed, h.broken+more.broken
	return h
}

// readHeld reads the file. Without one nothing has been measured.
func readHeld(fsys fs.FS) (map[string]held, error) {
	text, err := fs.ReadFile(fsys, heldFile)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]held{}, nil
	}
	if err != nil {
		return nil, err
	}
	all := map[string]held{}
	for line := range strings.Lines(string(text)) {
		id, h, err := parseHeld(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", heldFile, err)
		}
		all[id] = h
	}
	return all, nil
}

func parseHeld(line string) (id string, h held, err error) {
	parts := strings.Split(line, "\t")
	if len(parts) != 4 {
		return "", held{}, fmt.Errorf("%q has not four parts with tabs between them", line)
	}
	noticed, broken, _ := strings.Cut(parts[1], "/")
	h = held{example: parts[2], by: parts[3]}
	if h.noticed, err = strconv.Atoi(noticed); err != nil {
		return "", held{}, fmt.Errorf("%q: %w", line, err)
	}
	if h.broken, err = strconv.Atoi(broken); err != nil {
		return "", held{}, fmt.Errorf("%q: %w", line, err)
	}
	return parts[0], h, nil
}

// formatHeld writes the file.
func formatHeld(all map[string]held) string {
	var text strings.Builder
	for _, id := range slices.Sorted(maps.Keys(all)) {
		h := all[id]
		fmt.Fprintf(&text, "%s\t%d/%d\t%s\t%s\n", id, h.noticed, h.broken, h.example, h.by)
	}
	return text.String()
}

// mostExample is how much of a break the page shows, in bytes.
const mostExample = 90

// cell is what the page says.
func (h held) cell() string {
	switch {
	case h.broken == 0:
		return ""
	case h.noticed == 0:
		return fmt.Sprintf("**none of %d**", h.broken)
	}
	_, change, _ := strings.Cut(h.example, " ")
	if len(change) > mostExample {
		change = strings.ToValidUTF8(change[:mostExample], "") + "…"
	}
	return fmt.Sprintf("%d of %d: `%s`", h.noticed, h.broken, cell(strings.ReplaceAll(change, "`", "'")))
}

// function is the folder and the name of the function that the example is in.
func (h held) function() (folder, name string) {
	before, _, _ := strings.Cut(h.example, ": ")
	folder, name, _ = strings.Cut(before, " ")
	return folder, name
}

// replaceHeld returns what the file is to say after some guarantees have been measured. It says nothing of those that
// are gone.
func (b *Catalog) replaceHeld(found map[string]held) map[string]held {
	all := map[string]held{}
	for id := range b.Tests {
		if h, measured := found[id]; measured {
			all[id] = h
		} else if h, known := b.Held[id]; known {
			all[id] = h
		}
	}
	return all
}

// checkHeld finds lines whose guarantee, test or function is no longer there.
func (b *Catalog) checkHeld(s *source) {
	for _, id := range slices.Sorted(maps.Keys(b.Held)) {
		h := b.Held[id]
		folder, function := h.function()
		switch {
		case len(b.Tests[id]) == 0:
			b.problem("%s: there is no %s, or no test of it", heldFile, id)
		case h.noticed == 0:
		case !slices.ContainsFunc(b.Tests[id], func(t Test) bool { return t.Name == h.by }):
			b.problem("%s: %s is no test of %s", heldFile, h.by, id)
		case !s.functions[folder+" "+function]:
			b.problem("%s: %s: %s has no function %s", heldFile, id, folder, function)
		}
	}
}
