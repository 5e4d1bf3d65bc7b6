package streamable

import (
	"fmt"
	"testing"
)

func everyState(do func(exchangeState)) {
	for g := range stage(stages) {
		for i := noIDs; i <= initialID; i++ {
			for facts := range 4 {
				do(exchangeState{stage: g, ids: i, known: facts&1 != 0, over: facts&2 != 0})
			}
		}
	}
}

// isSound reports whether a response may be in a state.
func (s exchangeState) isSound() bool {
	switch {
	case s.known && (s.ids == noIDs || s.stage == waiting || s.stage == asJSON):
		return false // a client knows the id of an event only after a stream of events began
	case s.stage == detached:
		return s.known && !s.over // its client can come back, and for something
	case s.stage == asJSON:
		return s.over // a message is the whole response
	}
	return true
}

// isMadeIn says which turns are made by the code in which states: a frame that is the last one is written after it was queued.
func (t turning) isMadeIn(s exchangeState) bool {
	switch t {
	case answered:
		return s.over
	case cut:
		return !s.over
	default:
		return true
	}
}

// Whatever happens to the response to a request, it is in a state that makes sense: it begins once, as a message or as events; what it
// has become it stays; it waits for its client only if that can come back; and when it is over, it is so forever.
//
// Guarantees: G-0033.1
func TestAResponseIsAlwaysInASoundState(t *testing.T) {
	everyState(func(s exchangeState) {
		if !s.isSound() {
			return
		}
		for turn := range turning(turnings) {
			next, ok := s.after(turn)
			what := fmt.Sprintf("%+v after turn %d: %+v", s, turn, next)
			switch {
			case !ok && next != s:
				t.Errorf("%s: it has changed without a turn", what)
			case !ok || !turn.isMadeIn(s):
				continue
			case !next.isSound():
				t.Errorf("%s: it makes no sense", what)
			case next.ids != s.ids, s.known && !next.known, s.over && !next.over:
				t.Errorf("%s: it has forgotten something", what)
			case s.stage == closed:
				t.Errorf("%s: it was over", what)
			case s.stage != waiting && next.stage == waiting, s.stage == asJSON && next.stage != closed, next.stage == asJSON && s.stage != waiting:
				t.Errorf("%s: it has begun twice", what)
			case next.stage == detached && turn != lost && turn != polled:
				t.Errorf("%s: its client was not away", what)
			case (turn == finished || turn == cut) && next.stage != closed:
				t.Errorf("%s: it goes on", what)
			}
		}
	})
}

// The turns that decide what a client gets lead where the page on resumable streams says.
//
// Guarantees: G-0033.1
func TestTurnsOfAResponse(t *testing.T) {
	for name, test := range map[string]struct {
		ids   ids
		turns []turning
		want  exchangeState
	}{
		"one message":                           {initialID, []turning{ended, answered}, exchangeState{asJSON, initialID, false, true}},
		"one message, lost":                     {initialID, []turning{ended, answered, lost}, exchangeState{closed, initialID, false, true}},
		"one message as events, as was asked":   {initialID, []turning{asked, ended, answered}, exchangeState{asEvents, initialID, true, true}},
		"asked too late":                        {initialID, []turning{ended, asked, answered}, exchangeState{asJSON, initialID, false, true}},
		"events":                                {laterIDs, []turning{opened}, exchangeState{asEvents, laterIDs, true, false}},
		"events without ids":                    {noIDs, []turning{opened}, exchangeState{asEvents, noIDs, false, false}},
		"events of nobody who can come back":    {noIDs, []turning{opened, lost}, exchangeState{closed, noIDs, false, false}},
		"late":                                  {initialID, []turning{waited}, exchangeState{asEvents, initialID, true, false}},
		"late, without a first id":              {laterIDs, []turning{waited, lost}, exchangeState{closed, laterIDs, false, false}},
		"late, and then an event":               {laterIDs, []turning{waited, opened, lost}, exchangeState{detached, laterIDs, true, false}},
		"lost before anything":                  {initialID, []turning{lost}, exchangeState{closed, initialID, false, false}},
		"lost":                                  {laterIDs, []turning{opened, lost}, exchangeState{detached, laterIDs, true, false}},
		"lost, and everything is stored":        {laterIDs, []turning{opened, ended, lost}, exchangeState{closed, laterIDs, true, true}},
		"the end while the client is away":      {laterIDs, []turning{opened, lost, ended}, exchangeState{closed, laterIDs, true, true}},
		"back":                                  {laterIDs, []turning{opened, lost, resumed}, exchangeState{asEvents, laterIDs, true, false}},
		"back on another connection":            {laterIDs, []turning{opened, resumed}, exchangeState{asEvents, laterIDs, true, false}},
		"back from nowhere":                     {laterIDs, []turning{waited, resumed}, exchangeState{asEvents, laterIDs, false, false}},
		"polled":                                {initialID, []turning{polled}, exchangeState{detached, initialID, true, false}},
		"polled by a client of an old revision": {laterIDs, []turning{opened, polled}, exchangeState{asEvents, laterIDs, true, false}},
		"polled after the answer":               {initialID, []turning{ended, polled}, exchangeState{waiting, initialID, false, true}},
		"unread":                                {laterIDs, []turning{opened, cut, lost, resumed}, exchangeState{closed, laterIDs, true, false}},
	} {
		s := exchangeState{ids: test.ids}
		for _, turn := range test.turns {
			s, _ = s.after(turn)
		}
		if s != test.want {
			t.Errorf("%s: got %+v, want %+v", name, s, test.want)
		}
	}
}

// A frame is queued until the last one, and stored if its client could come back for it.
//
// Guarantees: G-0033.1
func TestWhatAResponseTakes(t *testing.T) {
	everyState(func(s exchangeState) {
		if s.accepts() != (!s.over && s.stage != closed) {
			t.Errorf("%+v: accepts a frame: %v", s, s.accepts())
		}
		for _, stored := range []uint64{0, 1} {
			for _, isLast := range []bool{false, true} {
				if got, want := s.keeps(stored, isLast), s.ids != noIDs && !(isLast && stored == 0 && !s.known); got != want {
					t.Errorf("%+v, %d stored, the last: %v: kept %v, want %v", s, stored, isLast, got, want)
				}
			}
		}
	})
}
