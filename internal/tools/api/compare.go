//bowline:pure

package main

import (
	"regexp"
	"slices"
	"strings"
)

// unmentioned returns the lines of an earlier page that are gone, and whose name the text does not mention: a function, Type.Method, or
// Type.Field. If all of a type or of a package is gone, its own name is enough.
func unmentioned(earlier, now []string, text string) (lines []string) {
	for _, line := range earlier {
		if _, still := slices.BinarySearch(now, line); line != "" && !still && !mentioned(line, now, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

func mentioned(line string, now []string, text string) bool {
	pkg, outer, member := split(line)
	switch {
	case !slices.ContainsFunc(now, func(l string) bool { p, _, _ := split(l); return p == pkg }):
		return names(text, pkg)
	case member == "":
		return names(text, outer)
	case !slices.ContainsFunc(now, func(l string) bool { p, o, _ := split(l); return p == pkg && o == outer }):
		return names(text, outer)
	default:
		return names(text, outer+"."+member)
	}
}

// names reports whether a text has a name, and not only a longer one that contains it.
func names(text, name string) bool {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(text)
}

var (
	declared = regexp.MustCompile(`^pkg (\S+), (?:const|var|func|type) (\w+)(?:[^,(]* (?:struct|interface), (?:embeds )?([\w./]+))?`)
	method   = regexp.MustCompile(`^pkg (\S+), method \(\*?(\w+)\) (\w+)`)
)

// split returns the package of a line, the name that it declares, and the field or method of it, if any.
func split(line string) (pkg, outer, member string) {
	for _, shape := range []*regexp.Regexp{method, declared} {
		found := shape.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		if len(found) > 3 {
			member = found[3]
		}
		return found[1], found[2], member
	}
	return "", "", ""
}

// changed returns what a changelog says under Changed since a version, or at all if version is "".
func changed(changelog, version string) string {
	var text strings.Builder
	within := false
	for line := range strings.Lines(changelog) {
		switch {
		case version != "" && strings.HasPrefix(line, "## ["+version+"]"):
			return text.String()
		case strings.HasPrefix(line, "#"):
			within = strings.TrimSpace(line) == "### Changed"
		case within:
			text.WriteString(line)
		}
	}
	return text.String()
}
