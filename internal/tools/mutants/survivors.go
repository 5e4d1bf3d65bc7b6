package main

import (
	"fmt"
	"slices"
	"strings"
)

// survivors says of mutants that live why they may. A line of the file is the
// name of a mutant, two slashes, and the reason; lines that begin with # are
// for readers.
type survivors struct {
	remarks []string
	reasons map[string]string
}

const because = " // "

func parseSurvivors(text string) (*survivors, error) {
	s := &survivors{reasons: map[string]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			s.remarks = append(s.remarks, line)
			continue
		}
		name, reason := line, ""
		if cut := strings.LastIndex(line+" ", because); cut >= 0 {
			name, reason = line[:cut], strings.TrimSpace(line[min(cut+len(because), len(line)):])
		}
		if _, twice := s.reasons[name]; twice {
			return nil, fmt.Errorf("two lines for %s", name)
		}
		s.reasons[name] = reason
	}
	return s, nil
}

func (s *survivors) String() string {
	var out strings.Builder
	for _, remark := range s.remarks {
		out.WriteString(remark + "\n")
	}
	for _, name := range s.names() {
		out.WriteString(strings.TrimSpace(name+because+s.reasons[name]) + "\n")
	}
	return out.String()
}

func (s *survivors) names() []string {
	names := make([]string, 0, len(s.reasons))
	for name := range s.reasons {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// update forgets, of a package that was judged, who has not lived, and adds who has and
// needs a reason.
func (s *survivors) update(t *tally, explained func(*mutant) bool) {
	reasons := map[string]string{}
	for name, reason := range s.reasons {
		if folder(name) != t.dir {
			reasons[name] = reason
		}
	}
	for _, m := range t.lived {
		if reason := s.reasons[m.name]; reason != "" || explained(&m) {
			reasons[m.name] = reason
		}
	}
	for _, m := range t.timedOut {
		if reason := s.reasons[m.name]; reason != "" {
			reasons[m.name] = reason
		}
	}
	s.reasons = reasons
}

// check lists what keeps the file from explaining exactly who has lived. Of the living, some need
// no reason; a line of a mutant that was left out may stay. Killed has the
// test that killed a mutant, by the mutant's name.
func (s *survivors) check(t *tally, explained func(*mutant) bool) []string {
	var problems []string
	has := map[string]bool{}
	for _, m := range t.left {
		has[m.name] = true
	}
	for _, m := range t.timedOut {
		has[m.name] = true // it shows that the machine was held up, or that the tests wait for ever
	}
	for _, m := range t.lived {
		has[m.name] = true
		if s.reasons[m.name] == "" && explained(&m) {
			problems = append(problems, fmt.Sprintf("%s: a mutant has lived; kill it, or explain it with this line:\n%s%s", m.at, m.name, because))
		}
	}
	for _, name := range s.names() {
		if folder(name) == t.dir && !has[name] {
			problem := "no such mutant has lived: " + name
			if test := t.killed[name]; test != "" {
				problem += "\nit was killed by " + test
			}
			problems = append(problems, problem)
		}
	}
	return problems
}

// folder returns the package of the named mutant.
func folder(name string) string {
	dir, _, _ := strings.Cut(name, " ")
	return dir
}
