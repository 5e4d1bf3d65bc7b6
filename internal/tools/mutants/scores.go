package main

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// A standard is what is asked of a package: the score that it has to reach, and the files
// whose survivors need a reason: patterns of names, or "pure" for those that are marked so.
type standard struct {
	score     float64
	explained []string
}

// parseScores reads a file with one package on a line. Lines that begin with # are for readers.
func parseScores(text string) (map[string]standard, error) {
	standards := map[string]standard{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) < 2 {
			return nil, fmt.Errorf("no score for %s", words[0])
		}
		score, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			return nil, fmt.Errorf("the score of %s: %w", words[0], err)
		}
		standards[words[0]] = standard{score: score, explained: words[2:]}
	}
	return standards, nil
}

// explains says whether a survivor needs a reason.
func (s standard) explains(m *mutant) bool {
	f := m.file
	for _, pattern := range s.explained {
		if ok, _ := path.Match(pattern, path.Base(f.name)); ok || pattern == "pure" && f.pure {
			return !m.moved
		}
	}
	return false
}
