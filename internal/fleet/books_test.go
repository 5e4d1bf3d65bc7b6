package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/conn"
)

var (
	answered = account{conn.Answered, conn.Sent}
	lost     = account{conn.LinkLost, conn.Unknown}
	refused  = account{conn.Refused, conn.NotSent}
)

func failure(how account) error {
	return &conn.CallError{Method: "tools/call", Cause: how.cause, Delivery: how.delivery, Err: errors.New("gone")}
}

// stats are those of one Conn whose calls have ended so.
func stats(calls uint64, settled map[account]uint64) []conn.Stats {
	s := conn.Stats{Calls: calls, Settled: make(map[conn.Cause]map[conn.Delivery]uint64)}
	for how, n := range settled {
		s.Settled[how.cause] = map[conn.Delivery]uint64{how.delivery: n}
	}
	return []conn.Stats{s}
}

func TestBooksBalance(t *testing.T) {
	b := newBooks()
	b.enter(nil)
	b.enter(failure(lost))
	b.add(b.handshakes, nil)
	for wrong, s := range map[string][]conn.Stats{
		"":                             stats(3, map[account]uint64{answered: 2, lost: 1}),
		"4 calls were made, and 3":     stats(4, map[account]uint64{answered: 2, lost: 1}),
		"1 calls ended so, 2 callers":  stats(2, map[account]uint64{answered: 1, lost: 1}),
		"link lost (unknown): 2 calls": stats(4, map[account]uint64{answered: 2, lost: 2}),
		"refused (not sent): 1 calls":  stats(3, map[account]uint64{answered: 2, refused: 1}),
	} {
		err := b.balance(s)
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if b.answered() != 1 {
		t.Errorf("%d callers were answered", b.answered())
	}
}

// TestBooksKnowOnlyCallErrors: any other error is no outcome of a call.
func TestBooksKnowOnlyCallErrors(t *testing.T) {
	b := newBooks()
	b.enter(errors.New("who knows"))
	if err := b.balance(nil); err == nil || !strings.Contains(err.Error(), "who knows") {
		t.Errorf("the books say %v", err)
	}
}

func TestAudit(t *testing.T) {
	for _, c := range []struct {
		told  account
		times int
		wrong string
	}{
		{answered, 1, ""},
		{answered, 0, "answered, and not executed"},
		{answered, 2, "more than once"},
		{lost, 0, ""},
		{lost, 1, ""},
		{lost, 2, "more than once"},
		{refused, 0, ""},
		{refused, 1, "not to be sent, and executed"},
	} {
		executed := make(map[int64]int)
		if c.times > 0 {
			executed[7] = c.times
		}
		err := audit(map[int64]account{7: c.told}, executed)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("told %v, executed %d times: %v", c.told, c.times, err)
		}
	}
	if err := audit(nil, map[int64]int{7: 1}); err == nil {
		t.Error("a call that nobody has made was executed, and nothing is wrong")
	}
}

func TestWitnessIsRead(t *testing.T) {
	executed, err := countLines(strings.NewReader("1\n20\n1\n"))
	if err != nil || len(executed) != 2 || executed[1] != 2 || executed[20] != 1 {
		t.Errorf("read %v, %v", executed, err)
	}
	if _, err := countLines(strings.NewReader("1\n2 3\n")); err == nil {
		t.Error("a torn line was read")
	}
}

// TestLedgerTakesOneOutcome of each call.
func TestLedgerTakesOneOutcome(t *testing.T) {
	var l ledger
	if err := l.enter(7, answered); err != nil {
		t.Error(err)
	}
	if l.enter(7, answered) == nil {
		t.Error("a call has ended twice, and nothing is wrong")
	}
}
