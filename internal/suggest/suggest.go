// Package suggest proposes names for a mistyped one.
package suggest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// most is the maximum number of names in a message.
const most = 20

// Among lists names for a message, those most like name first.
func Among(name string, names []string) string {
	if len(names) == 0 {
		return "it has none"
	}
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(distance(name, a), distance(name, b))
	})
	listed := List(names)
	if isNear(name, names[0]) {
		return fmt.Sprintf("did you mean %s? It has: %s", names[0], listed)
	}
	return "it has: " + listed
}

// Nearest returns the name that is most like a mistyped one, if it is like it at all.
func Nearest(name string, names []string) (nearest string, ok bool) {
	for _, other := range names {
		if isNear(name, other) && (!ok || distance(name, other) < distance(name, nearest)) {
			nearest, ok = other, true
		}
	}
	return nearest, ok
}

func isNear(name, other string) bool { return distance(name, other) <= 1+len(name)/3 }

// List joins the first names, and counts the rest.
func List(names []string) string {
	listed := strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		listed += fmt.Sprintf(" and %d more", more)
	}
	return listed
}

// distance is the Levenshtein distance of the beginnings of two names, letter
// case aside.
func distance(a, b string) int {
	const longest = 64
	a, b = strings.ToLower(a[:min(len(a), longest)]), strings.ToLower(b[:min(len(b), longest)])
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substituted := diagonal
			if a[i] != b[j] {
				substituted++
			}
			diagonal = row[j+1]
			row[j+1] = min(substituted, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
