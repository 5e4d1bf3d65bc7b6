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

// update forgets, of the packages that were judged, who has not lived, and
// adds who has.
func (s *survivors) update(judged []string, all []mutant) {
	reasons := map[string]string{}
	for _, m := range all {
		reasons[m.name] = s.reasons[m.name]
	}
	for name, reason := range s.reasons {
		if !slices.Contains(judged, folder(name)) {
			reasons[name] = reason
		}
	}
	s.reasons = reasons
}

// explained are those of the mutants that the file explains.
func (s *survivors) explained(of []mutant) (explained []mutant) {
	for _, m := range of {
		if s.reasons[m.name] != "" {
			explained = append(explained, m)
		}
	}
	return explained
}

// check lists what keeps the file from explaining exactly who has lived, of the part
// that was judged. Killed has the test that killed a mutant, by the mutant's name.
func (s *survivors) check(judged []string, all []mutant, killed map[string]string, part int) []string {
	var problems []string
	has := map[string]bool{}
	for _, m := range all {
		has[m.name] = true
		if s.reasons[m.name] == "" {
			problems = append(problems, fmt.Sprintf("%s: a mutant has lived; kill it, or explain it with this line:\n%s%s", m.at, m.name, because))
		}
	}
	for _, name := range s.names() {
		if slices.Contains(judged, folder(name)) && inPart(name, part) && !has[name] {
			problem := "no such mutant has lived: " + name
			if test := killed[name]; test != "" {
				problem += "\nit was killed by " + test
			}
			problems = append(problems, problem)
		}
	}
	return problems
}

// folder is the package that the mutant of this name is of.
func folder(name string) string {
	dir, _, _ := strings.Cut(name, " ")
	return dir
}
