package client_test

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

// A scene is the text of all that a test sees of what it plays, step by step, in the virtual time of a bubble. Within a step each place, such as
// a link or a log, has its lines in their order, with the time since the step began; what happens at several places at once has no order that a
// test could hold. Its methods may be called from every goroutine, but for those that shape or show the text.
type scene struct {
	masks []mask
	text  strings.Builder
	step  string
	steps int
	start time.Time // of the scene

	mu     sync.Mutex
	began  time.Time         // the step
	order  []string          // of places, as they were seen first
	places map[string][]line // what they have in this step
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
	known []string
}

// newScene begins a scene in a bubble.
func newScene(title string) *scene {
	s := &scene{start: time.Now(), began: time.Now(), places: make(map[string][]line)}
	fmt.Fprintf(&s.text, "# %s\n", title)
	return s
}

// Mask shows what is random by a name and a number: the first that a pattern matches is as-1. Of a pattern with a group, the group is what is random.
func (s *scene) Mask(pattern, as string) {
	s.masks = append(s.masks, mask{of: regexp.MustCompile(pattern), as: as})
}

// Places gives the order in which places are shown, before those that are seen later.
func (s *scene) Places(names ...string) { s.order = append(s.order, names...) }

// Note adds a line to those of a place.
func (s *scene) Note(place, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.order, place) {
		s.order = append(s.order, place)
	}
	s.places[place] = append(s.places[place], line{time.Since(s.began), text})
}

// Step waits until nothing happens any more, ends the step, and begins another.
func (s *scene) Step(title string) {
	s.end()
	s.step = title
}

// Sort says of this step that several write at all places at once.
func (s *scene) Sort() { s.sorted = true }

// Text ends the scene, and returns all of it.
func (s *scene) Text() string {
	s.end()
	return s.text.String()
}

// Compare compares the scene with a file, or writes it. It shows where the first difference is: after an update, git shows all.
func (s *scene) Compare(t testing.TB, path string, update bool) {
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

func (s *scene) end() {
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
func (s *scene) writeLines() {
	for _, place := range s.order {
		all := s.places[place]
		if s.sorted {
			slices.SortFunc(all, func(a, b line) int { return cmp.Compare(a.timed(), b.timed()) })
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

func (s *scene) masked(line string) string {
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
			m.known = append(m.known, random)
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

// Each place has its lines in their order, with times from the beginning of the step. What is random has a name, and a long line keeps a hash.
func TestScene(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		play := func(end string) string {
			s := newScene("Two places")
			s.Places("b")
			s.Mask(`id=(\w+)`, "id")
			s.Step("First")
			s.Note("a", "id=x id=y")
			s.Note("b", "second")
			s.Note("b", "id=y [1,2] [3]")
			<-time.NewTimer(time.Second).C
			s.Note("a", "id=x [1,2] "+time.Now().Format(time.RFC3339))
			s.Step("Second")
			s.Sort()
			s.Note("b", "2")
			s.Note("b", "1")
			s.Note("a", strings.Repeat("é", 300)+end)
			return s.Text()
		}
		want := "# Two places\n\n## 1. First\n\nb second\nb id=id-1 [1,2] [3]\na id=id-2 id=id-1\na +1s id=id-2 [1,2] T+1s\n" +
			"\n## 2. Second (at 1s)\n\nb 1\nb 2\na " + strings.Repeat("é", 200) + "… (601 bytes, "
		one, other := play("1"), play("2")
		if !strings.HasPrefix(one, want) || one == other {
			t.Errorf("got\n%s\nwant\n%s", one, want)
		}
	})
}
