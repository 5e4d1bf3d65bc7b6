package ledger_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type counts = ledger.Counts

func failure(o ledger.Outcome) error {
	return &conn.CallError{Method: "tools/call", Cause: o.Cause, Delivery: o.Delivery, Err: errors.New("gone")}
}

// stats returns the Stats of a Conn whose calls have ended as in settled.
func stats(calls uint64, settled counts) conn.Stats {
	s := conn.Stats{Calls: calls, Settled: map[conn.Cause]map[conn.Delivery]uint64{}}
	for o, n := range settled {
		s.Settled[o.Cause] = map[conn.Delivery]uint64{o.Delivery: n}
	}
	return s
}

func TestBalance(t *testing.T) {
	answered, lost := ledger.Answered(), ledger.Outcome{Cause: conn.LinkLost, Delivery: conn.Unknown}
	refused := ledger.Outcome{Cause: conn.Refused, Delivery: conn.NotSent}
	var l ledger.Ledger
	l.Report(nil)
	l.Report(failure(lost))
	hooks := l.Hooks(func(method string) bool { return method == "tools/call" })
	hooks.RequestStopped(context.Background(), telemetry.RequestStopped{Method: "initialize"})
	hooks.RequestStopped(context.Background(), telemetry.RequestStopped{Method: "tools/call"}) // its caller reports it
	for wrong, s := range map[string]conn.Stats{
		"":                                stats(3, counts{answered: 2, lost: 1}),
		"4 calls were made, and 3":        stats(4, counts{answered: 2, lost: 1}),
		"1 calls ended so, and 2 callers": stats(2, counts{answered: 1, lost: 1}),
		"link lost (unknown): 2 calls":    stats(4, counts{answered: 2, lost: 2}),
		"refused (not sent): 1 calls":     stats(3, counts{answered: 2, refused: 1}),
	} {
		err := l.Balance(s)
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if err := l.Balance(stats(1, counts{answered: 1}), stats(2, counts{answered: 1, lost: 1})); err != nil {
		t.Errorf("of two Conns: %v", err)
	}
	if n := l.Reported()[answered]; n != 1 {
		t.Errorf("%d callers were answered", n)
	}
	if n := l.Handshakes()[answered]; n != 1 {
		t.Errorf("%d calls of handshakes were answered", n)
	}
}

// TestOtherErrorsAreNoOutcome: the end of a call is a *conn.CallError or nil.
func TestOtherErrorsAreNoOutcome(t *testing.T) {
	var l ledger.Ledger
	l.Report(errors.New("who knows"))
	if err := l.Balance(); err == nil || !strings.Contains(err.Error(), "who knows") {
		t.Errorf("the ledger says %v", err)
	}
}

func TestContradiction(t *testing.T) {
	answered, lost := ledger.Answered(), ledger.Outcome{Cause: conn.LinkLost, Delivery: conn.Unknown}
	refused := ledger.Outcome{Cause: conn.Refused, Delivery: conn.NotSent}
	for _, c := range []struct {
		call  ledger.Call
		sent  int
		wrong string
	}{
		{ledger.Call{Reported: 1, Outcome: answered, Executed: 1}, 1, ""},
		{ledger.Call{Reported: 1, Outcome: answered}, 1, "answered, and not executed"},
		{ledger.Call{Reported: 1, Outcome: answered, Executed: 2}, 1, "executed 2 times"},
		{ledger.Call{Reported: 1, Outcome: answered, Executed: 2}, 2, ""},
		{ledger.Call{Reported: 1, Outcome: lost}, 1, ""},
		{ledger.Call{Reported: 1, Outcome: lost, Executed: 1}, 1, ""},
		{ledger.Call{Reported: 1, Outcome: lost, Executed: 1}, 0, "sent 0 times"},
		{ledger.Call{Reported: 1, Outcome: refused}, 1, ""},
		{ledger.Call{Reported: 1, Outcome: refused, Executed: 1}, 1, "not sent, and executed"},
		{ledger.Call{Executed: 1}, 1, "got 0 outcomes"},
		{ledger.Call{Reported: 2, Outcome: answered, Executed: 1}, 1, "got 2 outcomes"},
	} {
		wrong := c.call.Contradiction(c.sent)
		if (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
			t.Errorf("%+v, sent %d times: %q", c.call, c.sent, wrong)
		}
	}
}
