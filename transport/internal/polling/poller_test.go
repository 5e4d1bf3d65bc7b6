//go:build unix

package polling

import (
	"testing"
	"testing/synctest"
)

// pollsOf returns how often a reader polls before a wait in which it finds nothing.
func pollsOf(p *poller) (polls int) {
	for p.again() {
		polls++
	}
	return polls
}

// A reader whose peer takes long polls before one in 64 waits, and never more than 100
// times on a pipe and 200 times on an HTTP connection.
//
// Guarantees: G-0065.1, G-0065.2
func TestReaderPollsRarelyIfThePeerIsSlow(t *testing.T) {
	t.Run("pipe", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { testSlowPeer(t, newPoller(2, pipePolls), 100) })
	})
	t.Run("HTTP", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { testSlowPeer(t, newPoller(2, connPolls), 200) })
	})
}

func testSlowPeer(t *testing.T, p poller, most int) {
	t.Helper()
	var had []int // the waits that had polls
	const waits = 10_000
	for wait := range waits {
		switch polls := pollsOf(&p); polls {
		case 0:
		case most:
			had = append(had, wait)
		default:
			t.Fatalf("wait %d had %d polls, want none or %d", wait, polls, most)
		}
	}
	for i, wait := range had[1:] {
		if got, want := wait-had[i], min(2<<min(i, 6), 64); got != want {
			t.Errorf("%d waits from the polls of wait %d to the next polls, want %d", got, had[i], want)
		}
	}
	if got, want := len(had), waits/64; got < want || got > want+6 {
		t.Errorf("%d of %d waits had polls, want about one in 64", got, waits)
	}
}

// One quick answer makes a reader poll before each wait again.
//
// Guarantees: G-0065.2
func TestReaderPollsAgainAfterAQuickAnswer(t *testing.T) {
	synctest.Test(t, testQuickAnswer)
}

func testQuickAnswer(t *testing.T) {
	t.Helper()
	p := newPoller(2, pipePolls)
	for pollsOf(&p) > 0 || p.every < 64 {
	}
	p.found() // what comes after a wait says nothing about polling
	for range 62 {
		if polls := pollsOf(&p); polls > 0 {
			t.Fatalf("%d polls after an answer that came slowly, want none", polls)
		}
	}
	for range 3 {
		if !p.again() {
			t.Fatal("the reader waited, want a poll")
		}
		p.found()
	}
}

// Guarantees: G-0065.3
func TestReaderDoesNotPollOnOneProcessor(t *testing.T) {
	p := newPoller(1, pipePolls)
	if p.again() {
		t.Error("the reader polled, want a wait: the peer needs the processor")
	}
}

// The environment variable switches polling off.
//
// Guarantees: G-0065.7
func TestTheEnvironmentSwitchesPollingOff(t *testing.T) {
	for value, polls := range map[string]bool{"off": false, "": true, "on": true} {
		t.Setenv(Variable, value)
		if p := newPoller(2, pipePolls); p.again() != polls {
			t.Errorf("with %s=%s the reader polls: %v, want %v", Variable, value, !polls, polls)
		}
	}
}

// A reader that has polled for a millisecond waits, since while the processors are busy
// each poll takes long.
//
// Guarantees: G-0065.1
func TestPollingIsBoundedInTime(t *testing.T) {
	p := newPoller(2, 1<<30)
	if !p.again() {
		t.Fatal("the reader waited, want a poll")
	}
	p.began = p.began.Add(-longestPolls - 1)
	if p.again() {
		t.Error("the reader polled after a millisecond, want a wait")
	}
}

// A reader whose peer always answers quickly waits once in two milliseconds all the same,
// since other connections may have something to read.
//
// Guarantees: G-0065.6
func TestQuickPeerLetsTheReaderWaitNowAndThen(t *testing.T) {
	p := newPoller(2, pipePolls)
	for range 3 {
		if !p.again() {
			t.Fatal("the reader waited, want a poll")
		}
		p.found()
	}
	p.waited = p.waited.Add(-longestUnwaited - 1)
	if p.again() {
		t.Error("the reader polled after two milliseconds without a wait, want a wait")
	}
	p.waited = p.waited.Add(-longestUnwaited - 1) // the wait itself takes long
	p.found()
	if !p.again() {
		t.Error("the reader waited again after it had waited, want a poll")
	}
}

// Polls that were cut short have found nothing.
//
// Guarantees: G-0065.2
func TestPollsThatWereStoppedHaveFoundNothing(t *testing.T) {
	p := newPoller(2, pipePolls)
	pollsOf(&p)
	pollsOf(&p) // none, since the polls before were in vain
	if !p.again() {
		t.Fatal("the reader waited, want a poll")
	}
	p.stop()
	p.found()
	if p.every != 2 {
		t.Errorf("the reader polls before one in %d waits, want one in 2: polling has found nothing yet", p.every)
	}
}
