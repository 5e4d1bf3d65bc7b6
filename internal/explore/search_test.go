package explore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/internal/explore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The states are those of two jars of water. The rule of the test forbids four units in one
// of them.
type jars struct {
	held    [2]int
	effects []string
}

var (
	sizes   = [2]int{3, 5}
	errFour = errors.New("four")
)

type move struct {
	kind string
	jar  int
}

func (m move) String() string { return fmt.Sprintf("%s jar %d", m.kind, sizes[m.jar]) }

func (j *jars) apply(m move) {
	other := 1 - m.jar
	switch m.kind {
	case "fill":
		j.held[m.jar] = sizes[m.jar]
	case "empty":
		j.held[m.jar] = 0
	case "pour":
		poured := min(j.held[m.jar], sizes[other]-j.held[other])
		j.held[m.jar] -= poured
		j.held[other] += poured
	}
	j.effects = append(j.effects, fmt.Sprint(j.held))
}

// world returns the world of the jars. If it is stable, it gives equal effects every time.
func world(rule func(*jars) error) explore.World[*jars, move] {
	return explore.World[*jars, move]{
		New: func() *jars { return new(jars) },
		Choices: func(_ *jars, to []move) []move {
			for jar := range sizes {
				to = append(to, move{"fill", jar}, move{"empty", jar}, move{"pour", jar})
			}
			return to
		},
		Apply: (*jars).apply,
		Clone: func(j *jars) *jars { return &jars{held: j.held} },
		Form: func() func(*jars) []byte {
			return func(j *jars) []byte { return []byte{byte(j.held[0]), byte(j.held[1])} }
		},
		Digest: func(*jars) uint64 { return 0 },
		Fault:  rule,
		Talk:   func(*jars) {},
		Said:   func(j *jars) []string { effects := slices.Clone(j.effects); j.effects = nil; return effects },
	}
}

// TestSearchFindsAShortestHistory solves the puzzle of jars with three and five units.
func TestSearchFindsAShortestHistory(t *testing.T) {
	s := explore.Search[*jars, move]{Limit: 1000, World: world(func(j *jars) error {
		if j.held[1] == 4 {
			return errFour
		}
		return nil
	})}
	s.Run()
	if !errors.Is(s.Found, errFour) || strings.Count(s.Found.Error(), "\n") != 13 || !strings.Contains(s.Found.Error(), " 6. pour jar 3\n    [0 4]\n") && !strings.Contains(s.Found.Error(), " 6. pour jar 5\n    [3 4]\n") {
		t.Errorf("found %v", s.Found)
	}
}

// TestSearchClosesAWorld checks that all sixteen states of the jars are found.
func TestSearchClosesAWorld(t *testing.T) {
	s := explore.Search[*jars, move]{Limit: 1000, World: world(func(*jars) error { return nil })}
	s.Run()
	if !s.Closed || s.Found != nil || s.States() != 16 || s.Steps != 16*6 {
		t.Errorf("closed %v with %d states after %d steps: %v", s.Closed, s.States(), s.Steps, s.Found)
	}
}

// TestSearchKeepsItsLimit.
func TestSearchKeepsItsLimit(t *testing.T) {
	s := explore.Search[*jars, move]{Limit: 2, World: world(func(*jars) error { return nil })}
	if s.Run(); s.Closed || s.States() >= 16 || s.Found != nil {
		t.Errorf("closed %v with %d states: %v", s.Closed, s.States(), s.Found)
	}
}

// TestSearchSeesWhatIsNotDeterministic checks that a search reports effects that differ between
// two runs, and a Clone that shares its state.
func TestSearchSeesWhatIsNotDeterministic(t *testing.T) {
	var effects atomic.Uint64
	for name, broken := range map[string]func(*explore.World[*jars, move]){
		"effects": func(w *explore.World[*jars, move]) {
			w.Digest = func(*jars) uint64 { return effects.Add(1) }
		},
		"copy": func(w *explore.World[*jars, move]) {
			w.Clone = func(j *jars) *jars { return &jars{held: [2]int{j.held[0], (j.held[1] + 1) % 5}} }
		},
	} {
		w := world(func(*jars) error { return nil })
		broken(&w)
		s := explore.Search[*jars, move]{Limit: 1000, World: w}
		if s.Run(); s.Found == nil || !strings.Contains(s.Found.Error(), "a replay came to another state") {
			t.Errorf("%s: found %v", name, s.Found)
		}
	}
}
