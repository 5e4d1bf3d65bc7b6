package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// heldFile says of each guarantee what its tests noticed when they were run alone on broken code.
// It is sorted. A line is the number of a guarantee, the folder of a package that has tests of it, how many breaks
// of this package of how many they noticed, one of these, and which test noticed it, with tabs between
// them. A package that has no line was not measured.
const heldFile = "internal/tools/guarantees/held.txt"

// held is one line of the file.
type held struct {
	noticed, broken int
	example         string // a break, as internal/tools/mutants names it without the folder; empty if none was noticed
	by              string // the test that noticed it; empty if the process ended before one could fail
}

// and adds what was found elsewhere.
func (h held) and(more held) held {
	if h.by == "" {
		h.example, h.by = more.example, more.by
	}
	h.noticed, h.broken = h.noticed+more.noticed, h.broken+more.broken
	return h
}

// measured is the whole file: lines by guarantee, then by the folder of the package.
type measured map[string]map[string]held

func (m measured) set(id, folder string, h held) {
	if m[id] == nil {
		m[id] = map[string]held{}
	}
	m[id][folder] = h
}

// readHeld reads the file. Without one nothing has been measured.
func readHeld(fsys fs.FS) (measured, error) {
	text, err := fs.ReadFile(fsys, heldFile)
	if errors.Is(err, fs.ErrNotExist) {
		return measured{}, nil
	}
	if err != nil {
		return nil, err
	}
	all := measured{}
	for line := range strings.Lines(string(text)) {
		if err := all.parse(strings.TrimSuffix(line, "\n")); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", heldFile, line, err)
		}
	}
	return all, nil
}

func (m measured) parse(line string) (err error) {
	parts := strings.Split(line, "\t")
	if len(parts) != 3 && len(parts) != 5 {
		return errors.New("a line has five parts with tabs between them, or three if nothing was noticed")
	}
	noticed, broken, _ := strings.Cut(parts[2], "/")
	var h held
	if len(parts) == 5 {
		h.example, h.by = parts[3], parts[4]
	}
	if h.noticed, err = strconv.Atoi(noticed); err != nil {
		return err
	}
	if h.broken, err = strconv.Atoi(broken); err != nil {
		return err
	}
	m.set(parts[0], parts[1], h)
	return nil
}

// String is the text of the file.
func (m measured) String() string {
	var text strings.Builder
	for _, id := range slices.Sorted(maps.Keys(m)) {
		for _, folder := range slices.Sorted(maps.Keys(m[id])) {
			h := m[id][folder]
			fmt.Fprintf(&text, "%s\t%s\t%d/%d", id, folder, h.noticed, h.broken)
			if h.by != "" {
				fmt.Fprintf(&text, "\t%s\t%s", h.example, h.by)
			}
			text.WriteByte('\n')
		}
	}
	return text.String()
}

// mostExample is how much of a break the page shows, in bytes.
const mostExample = 90

// heldCell is what the page says of a guarantee.
func (b *Catalog) heldCell(id string) string {
	var all held
	folders, known := b.folders(id), 0
	for _, folder := range folders {
		if h, ok := b.Held[id][folder]; ok {
			all = all.and(h)
			known++
		}
	}
	switch {
	case all.broken == 0:
		return "not measured"
	case known < len(folders):
		return fmt.Sprintf("%s; measured in %d of %d packages", all.cell(), known, len(folders))
	}
	return all.cell()
}

func (h held) cell() string {
	if h.noticed == 0 {
		return fmt.Sprintf("**none of %d**", h.broken)
	}
	change := h.example
	if len(change) > mostExample {
		change = strings.ToValidUTF8(change[:mostExample], "") + "…"
	}
	return fmt.Sprintf("%d of %d: `%s`", h.noticed, h.broken, cell(strings.ReplaceAll(change, "`", "'")))
}

// folders are those of the packages that have tests of a guarantee, sorted.
func (b *Catalog) folders(id string) (all []string) {
	for _, test := range b.Tests[id] { // which are sorted by their files
		if folder := path.Dir(test.File); !slices.Contains(all, folder) {
			all = append(all, folder)
		}
	}
	return all
}

// replaceHeld notes what was found in a package of these guarantees. It forgets what has no test any more.
func (b *Catalog) replaceHeld(folder string, ids []string, found map[string]held) {
	for _, id := range ids {
		delete(b.Held[id], folder)
		if h, broken := found[id]; broken {
			b.Held.set(id, folder, h)
		}
	}
	for id, folders := range b.Held {
		maps.DeleteFunc(folders, func(folder string, _ held) bool { return !slices.Contains(b.folders(id), folder) })
	}
}

// checkHeld finds lines whose guarantee, test or function is no longer there.
func (b *Catalog) checkHeld(s *source) {
	for _, id := range slices.Sorted(maps.Keys(b.Held)) {
		for _, folder := range slices.Sorted(maps.Keys(b.Held[id])) {
			h := b.Held[id][folder]
			function, _, _ := strings.Cut(h.example, ": ")
			switch {
			case !slices.Contains(b.folders(id), folder):
				b.problem("%s: there is no test of %s in %s", heldFile, id, folder)
			case h.noticed == 0:
			case !slices.ContainsFunc(b.Tests[id], func(t Test) bool { return t.Name == h.by && path.Dir(t.File) == folder }):
				b.problem("%s: %s is no test of %s in %s", heldFile, h.by, id, folder)
			case !s.functions[folder+" "+function]:
				b.problem("%s: %s: %s has no function %s", heldFile, id, folder, function)
			}
		}
	}
}
