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
type broken struct{ until *time.Time }

func (b broken) Spend(_ context.Context, _ [16]byte, until time.Time) (bool, error) {
	*b.until = until
	return true, errors.New("it cannot be reached")
}

// A state is refused if nobody can say whether it was used, and the refusal does not say that it was. The store has to remember it until the question
// or the call has expired, whichever comes first.
func TestStatesWithoutTheirStore(t *testing.T) {
	var until time.Time
	rs := NewRounds(Limits{}, nil, broken{&until})
	defer rs.end(nil)
	var refused *StateError
	for _, st := range []State{{Until: 7, End: 9}, {Until: 9, End: 7}} {
		st.ID = make([]byte, 16)
		if err := rs.MayGoOn(t.Context(), &st, false); !errors.As(err, &refused) || !strings.Contains(refused.StateRefused(), "it is not known") || until.Unix() != 7 {
			t.Errorf("got %v, kept until %v, want it kept until second 7", err, until)
		}
	}
}

// A state of a call that waits is for the process where it waits. One of a call that runs again is so, too, if it says that, and is good once.
func TestWhereAStateGoesOn(t *testing.T) {
	const once, over = "the requestState was used", "the call waits on another node, or is over"
	for name, test := range map[string]struct {
		process, node string
		again, waits  bool
		first, second string // what is refused; "" if the call goes on
	}{
		"anywhere":      {"", "", false, false, "", once},
		"it waits here": {"here", "", false, true, "", ""}, // the ticket is good once, as Resume sees
		"it waited here, and its tool does not wait now": {"here", "", false, false, over, over},
		"it waits elsewhere":                             {"there", "", false, true, over, over},
		"it waited on a node that is over":               {"there", "n", false, true, "its node has ended", "its node has ended"},
		"it runs here again":                             {"here", "", true, false, "", once},
		"it runs here again, and may wait":               {"here", "", true, true, "", once},
		"it runs elsewhere again":                        {"there", "", true, false, over, over},
	} {
		rs := NewRounds(Limits{}, nil, nil)
		st := &State{ID: make([]byte, 16), Until: time.Now().Unix() + 60, End: time.Now().Unix() + 60, Process: test.process, Node: test.node, Again: test.again}
		if test.process == "here" {
			st.Process = rs.process
		}
		for i, want := range []string{test.first, test.second} {
			err := rs.MayGoOn(t.Context(), st, test.waits)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s, %d: got %v, want %q", name, i, err, want)
			}
		}
		rs.end(nil)
	}
}
