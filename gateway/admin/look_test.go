package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	g "maragu.dev/gomponents"
)

// The head says the worst that needs somebody, and counts what is well.
//
// Guarantees: G-0091.8
func TestVerdictOfTheWhole(t *testing.T) {
	ready, starting, stopped, bad := ServerReport{State: Ready, Calls: 2}, ServerReport{State: Starting, Calls: 1}, ServerReport{State: Stopped}, ServerReport{State: Backoff}
	noted, mistaken := ready, ready
	noted.Notices, mistaken.Mistake = []string{"n"}, "m"
	for _, c := range []struct {
		report               Report
		class, sign, verdict string
		ready, calls         int
	}{
		{Report{}, "ok", "●", "No server is in trouble", 0, 0},
		{Report{Servers: []ServerReport{stopped}}, "ok", "●", "No server is in trouble", 0, 0},
		{Report{Servers: []ServerReport{ready, stopped}}, "ok", "●", "No server is in trouble", 1, 2},
		{Report{Servers: []ServerReport{ready, ready}}, "ok", "●", "All servers are ready", 2, 4},
		{Report{Servers: []ServerReport{ready, noted}}, "warn", "⚠", "Working, with notices", 2, 4},
		{Report{Servers: []ServerReport{mistaken}}, "warn", "⚠", "Working, with notices", 1, 2},
		{Report{Servers: []ServerReport{ready}, Notices: []string{"n"}}, "warn", "⚠", "Working, with notices", 1, 2},
		{Report{Servers: []ServerReport{noted, starting}}, "warn", "◌", "1 server starting", 1, 3},
		{Report{Servers: []ServerReport{starting, starting}}, "warn", "◌", "2 servers starting", 0, 2},
		{Report{Servers: []ServerReport{starting}, Mistakes: []string{"m"}}, "bad", "✖", "The file was changed, and is not applied", 0, 1},
		{Report{Servers: []ServerReport{bad, ready}, Mistakes: []string{"m"}}, "bad", "✖", "1 server in trouble", 1, 2},
		{Report{Servers: []ServerReport{bad, {State: Misconfigured}}}, "bad", "✖", "2 servers in trouble", 0, 0},
	} {
		h := headOf(c.report)
		if h.Class != c.class || h.Sign != c.sign || h.Verdict != c.verdict || h.ReadyCount != c.ready || h.Calls != c.calls {
			t.Errorf("%+v: got %s %s %q, %d ready, %d calls", c.report, h.Class, h.Sign, h.Verdict, h.ReadyCount, h.Calls)
		}
	}
}

// A row has the sign of its state, and that of a notice only if the server is ready. Only who may act has a form.
//
// Guarantees: G-0091.1, G-0091.8
func TestLookOfARow(t *testing.T) {
	for _, c := range []struct {
		server      ServerReport
		class, sign string
		why         string
		more        int
		stale       bool
		first       Action
	}{
		{ServerReport{State: Ready, Reason: "r"}, "ok", "●", "", 0, false, Restart},
		{ServerReport{State: Ready, Notices: []string{"a", "b", "c"}}, "warn", "⚠", "", 2, false, Restart},
		{ServerReport{State: Ready, Mistake: "m"}, "warn", "⚠", "", 0, false, Restart},
		{ServerReport{State: Starting, Reason: "r", Mistake: "m"}, "warn", "◌", "r", 0, true, Stop},
		{ServerReport{State: Backoff, Reason: "r", Notices: []string{"a"}}, "bad", "✖", "r", 0, true, Wake},
		{ServerReport{State: Misconfigured, Mistake: "m"}, "bad", "✖", "", 0, true, ""},
		{ServerReport{State: Stopped}, "idle", "○", "", 0, true, Start},
	} {
		r := rowOf(c.server, "secret")
		if r.Class != c.class || r.Sign != c.sign || r.Why != c.why || r.More != c.more || r.Stale != c.stale || r.Form != "secret" {
			t.Errorf("%+v: got %+v", c.server, r)
		}
		if (len(r.Actions) == 0) != (c.first == "") || len(r.Actions) > 0 && r.Actions[0] != c.first {
			t.Errorf("%+v: the actions are %v", c.server, r.Actions)
		}
		if nobody := rowOf(c.server, ""); nobody.Form != "" || nobody.Actions != nil {
			t.Errorf("%+v: without a token: %+v", c.server, nobody)
		}
	}
}

// A server with a notice or a mistake comes before those that have none if it is ready; one that was stopped needs nobody.
//
// Guarantees: G-0091.8
func TestOrderOfTheServers(t *testing.T) {
	noted := []string{"n"}
	r := Report{Servers: []ServerReport{{Name: "stopped", State: Stopped, Notices: noted, Mistake: "m"}, {Name: "fine", State: Ready}, {Name: "mistaken", State: Ready, Mistake: "m"},
		{Name: "noted", State: Ready, Notices: noted}, {Name: "new", State: Starting, Notices: noted}, {Name: "away", State: Backoff, Mistake: "m"}, {Name: "odd", State: Misconfigured}}}
	var got []string
	for _, s := range r.TroubleFirst() {
		got = append(got, s.Name)
	}
	if want := "odd away new mistaken noted fine stopped"; strings.Join(got, " ") != want {
		t.Errorf("the order is %q, want %s", got, want)
	}
	if got := (Report{Denied: map[int]uint64{401: 2}, StatesRefused: 3}).Denials(); got != "requests denied: 2 with status 401, 3 whose requestState does not hold" {
		t.Errorf("the denials are %q", got)
	}
}

// Texts and numbers are as short as a person reads them.
//
// Guarantees: G-0091.8
func TestWhatAPersonReads(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("é", 120): strings.Repeat("é", 120), strings.Repeat("é", 121): strings.Repeat("é", 120) + "…", "one\ntwo": "one…", "": "",
	} {
		if got := cut(text); got != want {
			t.Errorf("%q is cut to %q", text, got)
		}
	}
	whole := strings.Repeat("a", 4<<10)
	for text, want := range map[string]string{"": "", whole: whole, whole + "b": whole + "…", whole[1:] + "é": whole[1:] + "…"} {
		if got := start(text); got != want {
			t.Errorf("of %d bytes %d are shown", len(text), len(got))
		}
	}
	for ms, want := range map[float64]string{0: "0.0 ms", 9.94: "9.9 ms", 10: "10 ms", 9999: "9999 ms", 10_000: "10 s", 61_400: "61 s"} {
		if got := milliseconds(ms); got != want {
			t.Errorf("%v ms is shown as %q", ms, got)
		}
	}
	for form, want := range map[string]bool{"application/x-www-form-urlencoded": true, "application/x-www-form-urlencoded; charset=utf-8": true, "application/json": false, "": false, ";": false} {
		if got := isForm(&http.Request{Header: http.Header{"Content-Type": {form}}}); got != want {
			t.Errorf("%q is a form: %v", form, got)
		}
	}
}

// A time has its date when it is of another day, and the script counts from it or down to it.
//
// Guarantees: G-0091.8
func TestTimesAreOfTheGatewaysClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().UTC() // the bubble begins at midnight
		pass(24 * time.Hour)
		if got := string(written(clock(at))); got != `<time datetime="2000-01-01T00:00:00Z">00:00:00</time>` {
			t.Errorf("a day ago: %s", got)
		}
		pass(time.Second)
		if got := string(written(clock(at))); got != `<time datetime="2000-01-01T00:00:00Z">1 Jan 00:00</time>` {
			t.Errorf("more than a day ago: %s", got)
		}
		for count, got := range map[string]g.Node{"up": countUp(at), "down": countDown(at)} {
			if want := `<time datetime="2000-01-01T00:00:00Z" data-count="` + count + `" data-clock="1 Jan 00:00">1 Jan 00:00</time>`; string(written(got)) != want {
				t.Errorf("counted %s: %s", count, written(got))
			}
		}
	})
}

// What a connection knows of a server becomes its row: connections after the first one are restarts.
//
// Guarantees: G-0091.8
func TestRowOfAConnection(t *testing.T) {
	for state, want := range map[conn.State]State{conn.Ready: Ready, conn.Backoff: Backoff, conn.Closing: Stopped, conn.Initializing: Starting} {
		for epoch, restarts := range map[uint64]int{0: 0, 1: 0, 3: 2} {
			status := conn.Status{State: state, Epoch: epoch, Since: noon, NextAttempt: noon.Add(time.Second)}
			status.Reason, status.LastFailure = conn.Reason{Kind: conn.HandshakeFailed}, conn.Reason{Kind: conn.CrashLooping, Err: errBroken}
			var s ServerReport
			s.Connection(status)
			if s.State != want || s.Restarts != restarts || s.Since != noon || s.NextAttempt != noon.Add(time.Second) ||
				s.Reason != "handshake failed" || s.LastFailure != "crash-looping: "+errBroken.Error() {
				t.Errorf("%v in epoch %d: %+v", state, epoch, s)
			}
		}
	}
}

// A connection of a user or a client is as its connection with the server is, with what failed last while it is not ready. One that sleeps has no status.
//
// Guarantees: G-0091.8
func TestConnectionsOfClients(t *testing.T) {
	failed := conn.Reason{Kind: conn.CrashLooping, Err: errBroken}
	for _, c := range []struct {
		status *conn.Status
		state  State
		reason string
	}{
		{nil, Stopped, ""},
		{&conn.Status{State: conn.Ready, LastFailure: failed}, Ready, ""},
		{&conn.Status{State: conn.Backoff, LastFailure: failed}, Backoff, "crash-looping: " + errBroken.Error()},
		{&conn.Status{State: conn.Initializing}, Starting, ""},
	} {
		want := Connection{User: "ann", Program: "editor 2", State: c.state, Reason: c.reason, Since: noon, Calls: 3}
		if got := ConnectionOf("ann", "editor 2", noon, 3, c.status); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// A reason is as long as a person reads: a server writes it, and each of its last states keeps one.
//
// Guarantees: G-0091.14
func TestReasonsAreBounded(t *testing.T) {
	why := conn.Reason{Kind: conn.HandshakeFailed, Err: errors.New(strings.Repeat("é", maxReason))}
	if got := ChangeOf(telemetry.Transition{Reason: why}).Reason; len(got) > maxReason+len("…") || len(got) < maxReason || !strings.HasPrefix(got, "handshake failed: éé") || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes: %.40s", len(got), got)
	}
	if got := ChangeOf(telemetry.Transition{Reason: fmt.Errorf("wrapped: %w", conn.Reason{Kind: "exited", Err: errBroken})}).Reason; got != "exited: "+errBroken.Error() {
		t.Errorf("a reason that is wrapped: %q", got)
	}
	var s ServerReport
	if s.Connection(conn.Status{State: conn.Backoff, Reason: why, LastFailure: why}); len(s.Reason) > maxReason+len("…") || s.LastFailure != s.Reason {
		t.Errorf("%d and %d bytes", len(s.Reason), len(s.LastFailure))
	}
	for long, cut := range map[int]bool{0: false, maxReason / 2: false, maxReason - len("exited: "): false, maxReason - len("exited: ") + 1: true} {
		text := "exited: " + strings.Repeat("a", long)
		if got := reasonText(conn.Reason{Kind: "exited", Err: errors.New(text[len("exited: "):])}); (got != text) != cut {
			t.Errorf("%d bytes of a cause are cut: %v, want %v", long, got != text, cut)
		}
	}
	if got := reasonText(conn.Reason{Kind: "exited", Err: errors.New("exited")}); got != "exited" {
		t.Errorf("a cause that says what the kind does: %q", got)
	}
}

// A reason of a failed handshake says nothing of whether its request was executed: nobody has asked for it.
//
// Guarantees: G-0091.11
func TestAReasonSaysWhatIsWrongOnly(t *testing.T) {
	refused := &conn.CallError{Method: "server/discover", Cause: conn.Refused, Delivery: conn.NotSent, Err: errBroken}
	for kind, want := range map[conn.ReasonKind]string{conn.HandshakeFailed: "handshake failed: ", conn.AuthRequired: "auth required: "} {
		if got := reasonText(conn.Reason{Kind: kind, Err: refused}); got != want+"server/discover: "+errBroken.Error() {
			t.Errorf("%q", got)
		}
	}
}
