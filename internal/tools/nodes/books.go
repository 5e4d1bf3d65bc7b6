package nodes

import (
	"fmt"
	"slices"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/internal/ledger"
)

// Books say how the calls of a Load have ended, and what was executed.
type Books struct {
	Sessions int
	Lost     []Lost   // sessions that a node has called unknown
	GivenUp  []string // for each other session that its client has given up: why
	Calls    int      // all calls; each is in one of the next four
	Answered int
	NotSent  int // failed, and certainly not executed
	Unknown  int // failed, and perhaps executed
	Refused  int // failed otherwise: the server or the tool has answered with an error
	Denied   int // calls that a persona forbids, which are none of those above, and that were refused
	Limited  int // of Refused, those that were too many for a gateway at a time
	Executed int
	Twice    int      // calls that were executed more than once
	Wrong    []string // what does not balance
	Failed   []string // the first failures

	outages []time.Duration      // the longest of each session, in order
	calls   map[string]*loadCall // by their ids

	executed map[string]int // how often, by their ids
}

// A Lost is a session that a node has called unknown.
type Lost struct {
	Node     string   // where it began
	Requests []string // that were answered with status 404: method and time
}

// count puts each call in one class, and checks it against what was executed.
func (b *Books) count(executed map[string]int) {
	b.executed = executed
	for id, call := range b.calls {
		if call.forbidden {
			b.countForbidden(id, call)
			continue
		}
		b.Calls++
		outcome, times := call.outcome, executed[id]
		switch {
		case !call.ended:
			b.Wrong = append(b.Wrong, fmt.Sprintf("call %s has not ended", id))
		case call.toolSaid != "":
			b.Refused++
			b.countLimited(call)
		case outcome == ledger.Answered():
			b.Answered++
		case outcome.Delivery == conn.NotSent:
			b.NotSent++
		case outcome.Delivery == conn.Unknown:
			b.Unknown++
		default:
			b.Refused++
		}
		if call.toolSaid != "" || outcome.Cause == conn.PeerError {
			outcome = ledger.Outcome{Cause: conn.PeerError, Delivery: conn.Sent} // executed or not
		}
		why := ledger.Call{Reported: 1, Outcome: outcome, Executed: times}.Contradiction(1)
		if call.ended && why != "" {
			b.Wrong = append(b.Wrong, fmt.Sprintf("call %s, %s: %s", id, call.outcome, why))
		}
	}
	b.countExecuted()
	if sum := b.Answered + b.NotSent + b.Unknown + b.Refused; sum != b.Calls {
		b.Wrong = append(b.Wrong, fmt.Sprintf("%d calls were made, and %d are in a class", b.Calls, sum))
	}
	slices.Sort(b.Wrong)
}

func (b *Books) countLimited(call *loadCall) {
	if call.isLimited() {
		b.Limited++
	}
}

func (b *Books) countExecuted() {
	for id, times := range b.executed {
		b.Executed += times
		if times > 1 {
			b.Twice++
		}
		if b.calls[id] == nil {
			b.Wrong = append(b.Wrong, fmt.Sprintf("%s was executed, and is no call", id))
		}
	}
}

// countForbidden checks a call that a persona forbids.
func (b *Books) countForbidden(id string, call *loadCall) {
	if call.isDenied() {
		b.Denied++
	}
	switch times := b.executed[id]; {
	case !call.ended:
		b.Wrong = append(b.Wrong, fmt.Sprintf("call %s has not ended", id))
	case times > 0:
		b.Wrong = append(b.Wrong, fmt.Sprintf("call %s was executed %d times, and a persona forbids it", id, times))
	case call.outcome == ledger.Answered():
		b.Wrong = append(b.Wrong, fmt.Sprintf("call %s was answered, and a persona forbids it", id))
	}
}

// audit checks the calls against the records that audit trails have. A gateway writes the record before its client has the answer, so an answer, or a refusal, without a record was not
// recorded by anybody.
func (b *Books) audit(recorded trails) (wrong []string) {
	for id, call := range b.calls {
		isAnswered := call.ended && call.toolSaid == "" && call.outcome == ledger.Answered()
		switch times := recorded.answered[id]; {
		case call.forbidden:
			wrong = append(wrong, call.auditForbidden(id, times, recorded.denied[id])...)
		case call.isLimited() && !recorded.notSent[id]:
			wrong = append(wrong, fmt.Sprintf("call %s was refused for a limit, and no audit trail says so", id))
		case isAnswered && times == 0:
			wrong = append(wrong, fmt.Sprintf("call %s was answered, and no audit trail says so", id))
		case times > 1:
			wrong = append(wrong, fmt.Sprintf("call %s was answered %d times, as the audit trails say", id, times))
		case call.ended && call.outcome.Delivery == conn.NotSent && times > 0:
			wrong = append(wrong, fmt.Sprintf("call %s was not sent, and the audit trails say that it was answered", id))
		}
	}
	for id := range recorded.answered {
		if b.calls[id] == nil {
			wrong = append(wrong, fmt.Sprintf("the audit trails have %s, which is no call", id))
		}
	}
	for id := range recorded.denied {
		if call := b.calls[id]; call == nil || !call.forbidden {
			wrong = append(wrong, fmt.Sprintf("the audit trails say that %s was denied, which no persona forbids", id))
		}
	}
	for id := range recorded.notSent {
		if times := b.executed[id]; times > 0 {
			wrong = append(wrong, fmt.Sprintf("call %s was executed %d times, and the audit trails say that no server has got it", id, times))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// auditForbidden checks a call that a persona forbids against how many records say that it was answered, and that it was denied.
func (c *loadCall) auditForbidden(id string, answered, denied int) (wrong []string) {
	if answered > 0 {
		wrong = append(wrong, fmt.Sprintf("call %s was answered, as the audit trails say, and a persona forbids it", id))
	}
	if denied > 1 || denied == 0 && c.isDenied() {
		wrong = append(wrong, fmt.Sprintf("call %s was refused, and %d records say that it was denied, want one", id, denied))
	}
	return wrong
}

// Outage returns the median of the longest times that the sessions had to wait for an answer, and
// the longest.
func (b *Books) Outage() (median, longest time.Duration) {
	if len(b.outages) == 0 {
		return 0, 0
	}
	return b.outages[len(b.outages)/2], b.outages[len(b.outages)-1]
}
