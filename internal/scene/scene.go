// Package scene writes down what a test sees of what it plays, for tests that compare all of it.
package scene

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// widest is how many bytes of a line a scene shows.
const widest = 400

var instant = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)

// A Scene is the text of all that a test sees of what it plays, step by step, in the virtual time of a bubble. Within a step each place, such as
// a link or a log, has its lines in their order, with the time since the step began; what happens at several places at once has no order that a
// test could hold. Its methods may be called from every goroutine, but for those that shape or show the text.
type Scene struct {
	masks []mask
	text  strings.Builder
	step  string
	steps int
	start time.Time // of the scene

	mu     sync.Mutex
	began  time.Time         // the step
	order  []string          // of places, as they were seen first
	places map[string][]line // what they have in this step
	mixed  map[string]bool   // places
	sorted bool              // this step
}

// A line is kept as it was noted until the step is over.
type line struct {
	after time.Duration // the step began
	text  string
}

// A mask gives numbers to what its pattern matches, each value the same one in the whole scene.
type mask struct {
	of    *regexp.Regexp
	as    string
	once  bool // it is shown where it is first
	known []string
}

// New begins a scene in a bubble.
func New(title string) *Scene {
	s := &Scene{start: time.Now(), began: time.Now(), places: make(map[string][]line), mixed: make(map[string]bool)}
	fmt.Fprintf(&s.text, "# %s\n", title)
	return s
}

// Mask shows what is random by a name and a number: the first that a pattern matches is as-1. Of a pattern with a group, the group is what is random.
func (s *Scene) Mask(pattern, as string) {
	s.masks = append(s.masks, mask{of: regexp.MustCompile(pattern), as: as})
}

// Once shows what a pattern matches where it is first, and by a name and a number then.
func (s *Scene) Once(pattern, as string) {
	s.masks = append(s.masks, mask{of: regexp.MustCompile(pattern), as: as, once: true})
}

// Places gives the order in which places are shown, before those that are seen later.
func (s *Scene) Places(names ...string) { s.order = append(s.order, names...) }

// Mixed says of a place that several write there at once: what has come at the same time is sorted.
func (s *Scene) Mixed(places ...string) {
	for _, place := range places {
		s.mixed[place] = true
	}
}

// Note adds a line to those of a place.
func (s *Scene) Note(place, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.order, place) {
		s.order = append(s.order, place)
	}
	s.places[place] = append(s.places[place], line{time.Since(s.began), text})
}

// Step waits until nothing happens any more, ends the step, and begins another.
func (s *Scene) Step(title string) {
	s.end()
	s.step = title
}

// Sort says of this step that several write at all places at once.
func (s *Scene) Sort() { s.sorted = true }

// Text ends the scene, and returns all of it.
func (s *Scene) Text() string {
	s.end()
	return s.text.String()
}

// Compare compares the scene with a file, or writes it. It shows where the first difference is: after an update, git shows all.
func (s *Scene) Compare(t testing.TB, path string, update bool) {
	t.Helper()
	text := s.Text()
	if !update {
		before, _ := os.ReadFile(path) // that there is none is said below
		is, was := strings.Split(text, "\n"), strings.Split(string(before), "\n")
		for i := range is {
			if i >= len(was) || is[i] != was[i] {
				t.Errorf("from line %d it was\n%s\nand is\n%s", i+1, few(was, i), few(is, i))
				break
			}
		}
	}
	testenv.Page(t, path, text, update)
}

// few returns some lines from this one.
func few(lines []string, i int) string {
	return strings.Join(lines[min(i, len(lines)):min(i+8, len(lines))], "\n")
}

func (s *Scene) end() {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.step != "" {
		s.steps++
		fmt.Fprintf(&s.text, "\n## %d. %s", s.steps, s.step)
		if at := s.began.Sub(s.start); at > 0 {
			fmt.Fprintf(&s.text, " (at %v)", at)
		}
		s.text.WriteString("\n\n")
	}
	s.writeLines()
	clear(s.places)
	s.sorted = false
	s.began = time.Now()
}

// writeLines writes what each place has in this step. What is random is masked only here: the order of places, and so that of first appearances, is known now.
func (s *Scene) writeLines() {
	for _, place := range s.order {
		all := s.places[place]
		switch {
		case s.sorted:
			slices.SortFunc(all, func(a, b line) int { return cmp.Compare(a.timed(), b.timed()) })
		case s.mixed[place]:
			slices.SortStableFunc(all, func(a, b line) int { return cmp.Or(cmp.Compare(a.after, b.after), cmp.Compare(a.text, b.text)) })
		}
		for _, one := range all {
			s.text.WriteString(place + " " + short(s.masked(one.timed())) + "\n")
		}
	}
}

// timed returns the text after its time, if that is not the begin of the step.
func (l *line) timed() string {
	if l.after > 0 {
		return fmt.Sprintf("+%v %s", l.after, l.text)
	}
	return l.text
}

func (s *Scene) masked(line string) string {
	line = instant.ReplaceAllStringFunc(line, func(text string) string {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return text
		}
		return fmt.Sprintf("T+%v", at.Sub(s.start))
	})
	for i := range s.masks {
		line = s.masks[i].in(line)
	}
	return line
}

func (m *mask) in(line string) string {
	return m.of.ReplaceAllStringFunc(line, func(found string) string {
		random := found
		if groups := m.of.FindStringSubmatch(found); len(groups) > 1 {
			random = groups[1]
		}
		i := slices.Index(m.known, random)
		if i < 0 {
			i = len(m.known)
			if m.known = append(m.known, random); m.once {
				return fmt.Sprintf("%s-%d=%s", m.as, i+1, found)
			}
		}
		return strings.Replace(found, random, fmt.Sprintf("%s-%d", m.as, i+1), 1)
	})
}

// short cuts a line, and says how long it was, and what its hash is: another one differs from it.
func short(line string) string {
	line = strings.ReplaceAll(line, "\n", `\n`)
	if len(line) <= widest {
		return line
	}
	return fmt.Sprintf("%s… (%d bytes, %.4x)", strings.ToValidUTF8(line[:widest], ""), len(line), sha256.Sum256([]byte(line)))
}
