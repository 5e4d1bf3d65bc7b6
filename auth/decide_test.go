package auth

import (
	"testing"
)

// TestDecisionsAboutRefusedTokens tries all facts, and compares with what must hold for each step.
//
// Guarantees: G-0044.3, G-0044.8
func TestDecisionsAboutRefusedTokens(t *testing.T) {
	names := map[step]string{takeSaved: "takeSaved", refreshFirst: "refreshFirst", logIn: "logIn", logInAgain: "logInAgain", stepUp: "stepUp"}
	for bits := range 1 << 6 {
		is := func(bit int) bool { return bits>>bit&1 == 1 }
		q := refusedToken{forbidden: is(0), sent: is(1), savedIsOK: is(2), recent: is(3), expired: is(4), refreshed: is(5)}
		young := q.recent && !q.expired
		want := map[step]bool{
			takeSaved:    q.savedIsOK,
			refreshFirst: !q.savedIsOK && !q.forbidden && !q.refreshed && !young,
			stepUp:       !q.savedIsOK && q.forbidden && q.sent,
			logInAgain:   !q.savedIsOK && !q.forbidden && q.sent && (q.refreshed || young),
			logIn:        !q.savedIsOK && !q.sent && (q.forbidden || q.refreshed || young),
		}
		for next, wanted := range want {
			if got := q.decide(); (got == next) != wanted {
				t.Errorf("%+v: got %s; %s: %v", q, names[got], names[next], wanted)
			}
		}
	}
}

// TestDecisionsAboutSavedLogins tries all facts.
func TestDecisionsAboutSavedLogins(t *testing.T) {
	for bits := range 1 << 4 {
		is := func(bit int) bool { return bits>>bit&1 == 1 }
		l := savedLogin{usable: is(0), isOther: is(1), refreshable: is(2), tooEarly: is(3)}
		want := noRenewal
		switch {
		case l.usable && l.isOther:
			want = adoptSaved
		case l.usable && l.refreshable && l.tooEarly:
			want = waitFirst
		case l.usable && l.refreshable:
			want = exchange
		}
		if got := l.decide(); got != want {
			t.Errorf("%+v: got %d, want %d", l, got, want)
		}
	}
}
