package supervisor_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/bowline-mcp/bowline/supervisor"
)

// forged is a name that prints as another line, in red, backwards.
const forged = "a\n├─ b: permanent worker, running\r\x1b[31m\u2028\u202e\xff"

// wantPlain wants each line of a text to print as it is, and to quote what is
// forged.
func wantPlain(t *testing.T, what, text string, count int) {
	t.Helper()
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	found := strings.Split(text, "\n")
	if len(found) != count || !utf8.ValidString(text) || strings.ContainsFunc(strings.Join(found, ""), unprintable) || !strings.Contains(text, `"a\n├─ b`) {
		t.Errorf("%s, of %d lines:\n%q", what, count, text)
	}
}

// TestNamesForgeNothing: whatever a supervisor, a child and its failure are
// called, reports, events and errors have a line for each.
//
// Guarantees: G-0002.17
func TestNamesForgeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []supervisor.Event
		s := supervisor.New(supervisor.Options{Name: forged, Intensity: -1, OnEvent: func(e supervisor.Event) { told = append(told, e) }})
		failing, release := newScript(), make(chan struct{})
		start(t, s, supervisor.ChildSpec{ID: "stuck" + forged, Run: ignoresStop(release), Shutdown: time.Second})
		start(t, s, supervisor.ChildSpec{ID: forged, Run: failing.run})
		_, refused := s.Start(t.Context(), supervisor.ChildSpec{ID: forged, Run: idle})
		wantPlain(t, "refused", refused.Error(), 1)
		wantPlain(t, "report", s.Report().String(), 3)
		failing.end(returns(errors.New("\x1b[31mbroken")))
		verdict := s.Wait(t.Context())
		var stuck *supervisor.StuckError
		if !errors.As(verdict, &stuck) {
			t.Fatalf("Wait returned %v", verdict)
		}
		wantPlain(t, "stuck", stuck.Error(), 1)
		wantPlain(t, "report of the end", s.Report().String(), 3)
		for _, e := range told {
			wantPlain(t, "event", e.String(), 1)
		}
		close(release)
		synctest.Wait()
	})
}

// TestTextIsQuotedWhereItDoesNotPrint, and else left alone.
func TestTextIsQuotedWhereItDoesNotPrint(t *testing.T) {
	for name, want := range map[string]string{
		"weather/berlin": `weather/berlin`, `say "a" \ b`: `say "a" \ b`, "Москва 日本語 e\u0301": "Москва 日本語 e\u0301",
		"a\tb": `"a\tb"`, "a\u202eb": `"a\u202eb"`, "a\u2028b": `"a\u2028b"`, "a\xffb": `"a\xffb"`, "a\u00a0b": `"a\u00a0b"`,
	} {
		e := supervisor.Event{Kind: supervisor.ChildStarted, Supervisor: name, Child: name}
		if got := e.String(); got != "supervisor "+want+": "+want+": child started" {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
}
