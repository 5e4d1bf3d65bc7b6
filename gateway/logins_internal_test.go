package gateway

import (
	"testing"
	"testing/synctest"
	"time"
)

// A connection looks at most once a second for whether its user is still logged in, and not just after a login.
func TestHowOftenAConnectionLooksForItsLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l seenLogin
		looks := func(after time.Duration, want bool) {
			t.Helper()
			<-time.NewTimer(after).C
			if got := l.mayLook(); got != want {
				t.Errorf("%v later it looks: %t, want %t", after, got, want)
			}
		}
		looks(0, true)
		looks(time.Second-1, false)
		looks(1, true)
		looks(time.Minute, true)
		l.note()
		if !l.seen.Load() {
			t.Error("a login that was noted was not seen")
		}
		looks(time.Second-1, false)
		looks(1, true)
	})
}

// A request without a token leaves that of the one before, and the same token is no other one.
func TestWhichTokensAreNew(t *testing.T) {
	var s subject
	if _, err := s.token(t.Context()); err == nil {
		t.Error("there is a token before any")
	}
	for i, c := range []struct {
		given string // "": none
		isNew bool
		has   string
	}{{"", false, ""}, {"one", true, "one"}, {"one", false, "one"}, {"", false, "one"}, {"two", true, "two"}, {"one", true, "one"}} {
		ctx := t.Context()
		if c.given != "" {
			ctx = WithSubjectToken(ctx, c.given)
		}
		isNew := s.note(ctx)
		has := ""
		if now := s.last.Load(); now != nil {
			has = *now
		}
		if isNew != c.isNew || has != c.has {
			t.Errorf("%d, with %q: new %t, and now it has %q; want %t and %q", i, c.given, isNew, has, c.isNew, c.has)
		}
	}
}
