package asking

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/internal/testenv"
)

// The server remembers the latest 65,536 used states, and none that has expired.
//
// Guarantees: G-0031.4
func TestTheLatestUsedStatesAreRemembered(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		const most = 65_536
		rs := NewRounds(Limits{}, nil, nil)
		spend := func(n int, lives time.Duration) bool {
			id := make([]byte, 16)
			id[0], id[1], id[2] = byte(n), byte(n>>8), byte(n>>16)
			until := time.Now().Add(lives).Unix()
			first, err := rs.spend(context.Background(), &State{ID: id, Until: until, End: until})
			if err != nil {
				t.Fatal(err)
			}
			return first
		}
		for n := range most {
			if !spend(n, time.Hour) {
				t.Fatalf("state %d: it was used before", n)
			}
		}
		if spend(0, time.Hour) || spend(most-1, time.Hour) {
			t.Error("one of the latest 65,536 states can be used again")
		}
		if !spend(most, time.Hour) || spend(1, time.Hour) || len(rs.spent) != most || len(rs.order) != most {
			t.Errorf("after one more: %d and %d states are remembered, want %d", len(rs.spent), len(rs.order), most)
		}
		timer := time.NewTimer(time.Hour + 2*time.Second)
		<-timer.C
		if !spend(most+1, time.Hour) || len(rs.spent) != 1 || len(rs.order) != 1 {
			t.Errorf("after all have expired: %d and %d states are remembered, want 1", len(rs.spent), len(rs.order))
		}
		rs.end(nil)
	})
}

// broken is a store of used states that cannot be reached.
type broken struct{}

func (broken) Spend(context.Context, [16]byte, time.Time) (bool, error) {
	return true, errors.New("it cannot be reached")
}

// A state is refused if nobody can say whether it was used, and the refusal does not say that it was.
func TestStatesWithoutTheirStore(t *testing.T) {
	rs := NewRounds(Limits{}, nil, broken{})
	defer rs.end(nil)
	var refused *StateError
	if err := rs.MayGoOn(t.Context(), &State{ID: make([]byte, 16)}, false); !errors.As(err, &refused) || !strings.Contains(refused.StateRefused(), "it is not known") {
		t.Errorf("got %v", err)
	}
}
