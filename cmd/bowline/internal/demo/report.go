package demo

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/bowline-mcp/bowline/conn"
)

// A report is the closing table.
type report struct {
	stats      conn.Stats
	ledger     *ledger
	restarts   uint64
	outage     time.Duration
	goroutines [2]int // before and after
	children   [2]int // started, and still alive
}

func (s *show) report(goroutines int) *report {
	return &report{
		stats:      s.session.Conn().Stats(),
		ledger:     s.ledger,
		restarts:   s.session.Conn().Status().Epoch - 1,
		outage:     s.timeline.longestOutage(),
		goroutines: [2]int{goroutines, settledGoroutines(goroutines)},
		children:   [2]int{s.children.started(), s.children.alive()},
	}
}

// settledGoroutines counts goroutines once those that have nothing left to do
// have ended, which the scheduler may take a moment for.
func settledGoroutines(baseline int) int {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range 100 {
		if runtime.NumGoroutine() <= baseline {
			break
		}
		<-look.C
	}
	return runtime.NumGoroutine()
}

func (r *report) print(out io.Writer) {
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "calls ended by\tnot sent\tsent\tunknown\t")
	for _, cause := range conn.Causes() {
		row := r.stats.Settled[cause]
		if len(row) > 0 {
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t\n", cause, row[conn.NotSent], row[conn.Sent], row[conn.Unknown])
		}
	}
	fmt.Fprintf(table, "all\t%d made\t%d ended\t\t\n", r.stats.Calls, r.stats.Ended())
	table.Flush()
	fmt.Fprintf(out, "\nrestarts %d, longest outage %.2f s\n", r.restarts, r.outage.Seconds())
	fmt.Fprintf(out, "goroutines %d before, %d after; child processes %d started, %d left\n",
		r.goroutines[0], r.goroutines[1], r.children[0], r.children[1])
}

// verdict is nil when the books balance, the server came back, and nothing leaked.
func (r *report) verdict() error {
	var errs []error
	for _, cause := range conn.Causes() {
		for _, delivery := range conn.Deliveries() {
			booked, told := int(r.stats.Settled[cause][delivery]), r.ledger.count(account{cause, delivery})
			if booked != told {
				errs = append(errs, fmt.Errorf("demo: %s (%s): %d calls ended so, %d callers were told so", cause, delivery, booked, told))
			}
		}
	}
	if r.stats.Calls != r.stats.Ended() {
		errs = append(errs, fmt.Errorf("demo: %d calls made, %d ended", r.stats.Calls, r.stats.Ended()))
	}
	for _, err := range r.ledger.strange {
		errs = append(errs, fmt.Errorf("demo: a caller was told something strange: %w", err))
	}
	if r.restarts == 0 {
		errs = append(errs, errors.New("demo: the server did not come back"))
	}
	if r.stats.Settled[conn.LinkLost][conn.Unknown] == 0 {
		errs = append(errs, errors.New("demo: no call was in flight when the server was killed"))
	}
	if r.goroutines[1] > r.goroutines[0] {
		errs = append(errs, fmt.Errorf("demo: %d goroutines leaked", r.goroutines[1]-r.goroutines[0]))
	}
	if r.children[1] > 0 {
		errs = append(errs, fmt.Errorf("demo: %d child processes are left", r.children[1]))
	}
	return errors.Join(errs...)
}
