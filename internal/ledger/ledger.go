// Package ledger checks the outcomes of calls. It counts the outcomes that callers
// got, and compares them with the Stats of the Conns and with what the peer has
// executed:
//
//   - every call ends once, with one cause and one delivery
//   - a call that was not sent was not executed
//   - a call that was answered was executed
//   - no call was executed more often than it may have been sent
//
// Programs on internal/fleet, which are the demo (cmd/bowline) and internal/tools/fleet, and the Soak of
// package proptest check themselves with it. It stands above conn and below everything that uses
// it. It is not exported: a user of proptest gets these checks by calling
// proptest.Soak, and a program that counts its own calls has conn.Stats.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
)

// An Outcome is how a call ended.
type Outcome struct {
	Cause    conn.Cause
	Delivery conn.Delivery
}

func (o Outcome) String() string { return fmt.Sprintf("%s (%s)", o.Cause, o.Delivery) }

// Answered is the outcome of a call that has a result.
func Answered() Outcome { return Outcome{conn.Answered, conn.Sent} }

// OutcomeOf reads how a call ended from the error that its caller got. It fails
// if the error is neither nil nor a *conn.CallError.
func OutcomeOf(err error) (Outcome, error) {
	var call *conn.CallError
	switch {
	case err == nil:
		return Answered(), nil
	case errors.As(err, &call):
		return Outcome{call.Cause, call.Delivery}, nil
	default:
		return Outcome{}, fmt.Errorf("ledger: a caller got %T, which is no *conn.CallError: %w", err, err)
	}
}

// Counts says how many calls ended in each way.
type Counts map[Outcome]uint64

// Settled adds up the calls that have ended, from the Stats of Conns.
func Settled(stats ...conn.Stats) Counts {
	counts := Counts{}
	for _, s := range stats {
		for cause, byDelivery := range s.Settled {
			for delivery, n := range byDelivery {
				counts[Outcome{cause, delivery}] += n
			}
		}
	}
	return counts
}

// Add adds other to the counts.
func (c Counts) Add(other Counts) {
	for outcome, n := range other {
		c[outcome] += n
	}
}

// String is a table with a row for each cause that has calls, and a column for
// each delivery.
func (c Counts) String() string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "calls ended by\t")
	for _, delivery := range conn.Deliveries() {
		fmt.Fprintf(table, "%s\t", delivery)
	}
	fmt.Fprintln(table)
	for _, cause := range conn.Causes() {
		sum, row := uint64(0), ""
		for _, delivery := range conn.Deliveries() {
			n := c[Outcome{cause, delivery}]
			sum, row = sum+n, row+fmt.Sprintf("%d\t", n)
		}
		if sum > 0 {
			fmt.Fprintf(table, "%s\t%s\n", cause, row)
		}
	}
	table.Flush()
	return text.String()
}

// A Ledger counts the outcomes that the callers of one or several Conns got. Its
// methods may be called from any goroutine. The zero value is empty.
type Ledger struct {
	mu         sync.Mutex
	reported   Counts
	handshakes Counts
	failures   []error // errors that are not an outcome of a call
}

// maxFailures is how many failures a Ledger keeps: a mistake often repeats.
const maxFailures = 10

// Report records what a caller got at the end of its call, and returns the outcome.
func (l *Ledger) Report(err error) Outcome { return l.count(&l.reported, err) }

func (l *Ledger) count(to *Counts, err error) Outcome {
	outcome, wrong := OutcomeOf(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if wrong != nil {
		if len(l.failures) < maxFailures {
			l.failures = append(l.failures, wrong)
		}
		return outcome
	}
	if *to == nil {
		*to = Counts{}
	}
	(*to)[outcome]++
	return outcome
}

// Hooks records the calls that Conns make for themselves, such as the calls of a
// handshake. Those are the calls of methods for which hasCaller returns
// false. They have no caller that calls Report.
func (l *Ledger) Hooks(hasCaller func(method string) bool) telemetry.Hooks {
	return telemetry.Hooks{RequestStopped: func(_ context.Context, stopped telemetry.RequestStopped) {
		if !hasCaller(stopped.Method) {
			l.count(&l.handshakes, stopped.Err)
		}
	}}
}

// Reported returns how many callers got each outcome.
func (l *Ledger) Reported() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := Counts{}
	counts.Add(l.reported)
	return counts
}

// Handshakes returns how the calls that Hooks has recorded ended.
func (l *Ledger) Handshakes() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := Counts{}
	counts.Add(l.handshakes)
	return counts
}

// Balance checks that the counts of the Conns equal the counts of their
// callers: each call has ended once, with the outcome that its caller got.
func (l *Ledger) Balance(stats ...conn.Stats) error {
	reported, settled := l.Reported(), Settled(stats...)
	reported.Add(l.Handshakes())
	l.mu.Lock()
	wrong := append([]error(nil), l.failures...)
	l.mu.Unlock()
	var made, ended uint64
	for _, s := range stats {
		made, ended = made+s.Calls, ended+s.Ended()
	}
	if made != ended {
		wrong = append(wrong, fmt.Errorf("ledger: %d calls were made, and %d have ended", made, ended))
	}
	for _, cause := range conn.Causes() {
		for _, delivery := range conn.Deliveries() {
			if o := (Outcome{cause, delivery}); reported[o] != settled[o] {
				wrong = append(wrong, fmt.Errorf("ledger: %v: %d calls ended so, and %d callers got that outcome", o, settled[o], reported[o]))
			}
		}
	}
	return errors.Join(wrong...)
}

// A Call is one call, as its caller and its peer saw it.
type Call struct {
	Reported int // how often its caller got an outcome
	Outcome  Outcome
	Executed int // how often the peer executed it
}

// Contradiction describes what is wrong with a call that has ended and that was
// sent at most sent times. It returns "" if nothing is wrong.
func (c Call) Contradiction(sent int) string {
	switch {
	case c.Reported != 1:
		return fmt.Sprintf("its caller got %d outcomes", c.Reported)
	case c.Outcome.Delivery == conn.NotSent && c.Executed > 0:
		return "it was not sent, and executed"
	case c.Outcome.Cause == conn.Answered && c.Executed == 0:
		return "it was answered, and not executed"
	case c.Executed > sent:
		return fmt.Sprintf("it was sent %d times, and executed %d times", sent, c.Executed)
	default:
		return ""
	}
}

// SettledGoroutines returns the number of goroutines of the process. Goroutines
// that have finished their work take a moment to end, so it waits until there
// are no more than wanted, for at most five seconds.
func SettledGoroutines(wanted int) int {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range 500 {
		if runtime.NumGoroutine() <= wanted {
			break
		}
		<-look.C
	}
	return runtime.NumGoroutine()
}
