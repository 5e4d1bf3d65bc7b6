package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/bowline-mcp/bowline/conn"
)

// A report contains the results of the demo: an entry for each server, and what
// was left behind.
type report struct {
	Kind       string   `json:"event"`
	Servers    []*entry `json:"servers"`
	Metrics    []*entry `json:"metrics,omitempty"` // the same entries from the metrics
	Goroutines [2]int   `json:"goroutines"`        // how many goroutines there were before and after
	Processes  [2]int   `json:"processes"`         // how many processes were started, and how many are still alive
	err        error    // the error of the output or of the metrics
	counted    uint64   // how many calls the histogram of callers has counted
}

// An entry contains the results of one server.
type entry struct {
	Server   string                       `json:"server"`
	Made     uint64                       `json:"made"`
	Ended    uint64                       `json:"ended"`
	Settled  map[string]map[string]uint64 `json:"settled"` // how many calls have ended, by cause and delivery
	Late     uint64                       `json:"late"`    // answers that came after their calls had ended
	Dropped  uint64                       `json:"malformed"`
	Restarts uint64                       `json:"restarts"`
	Outage   float64                      `json:"longestOutage"` // in seconds

	losses   uint64
	stats    conn.Stats
	outcomes *outcomes
}

func (d *demo) report(ctx context.Context) *report {
	r := &report{Kind: kindSummary, err: d.printer.err}
	for _, server := range d.Members {
		r.Servers = append(r.Servers, newEntry(server))
		started, err := server.process.Close()
		r.err = errors.Join(r.err, err)
		r.Processes[0] += started
		r.Processes[1] += server.process.Alive()
	}
	if d.metrics != nil {
		all, err := d.metrics.collect(ctx)
		r.err = errors.Join(r.err, err, d.metrics.provider.Shutdown(ctx))
		r.Metrics, r.counted = all.entries(d.Members), all.operationCount()
	}
	now, _ := d.Leaked() // the verdict says so
	r.Goroutines = [2]int{d.Goroutines, now}
	return r
}

func newEntry(s *server) *entry {
	stats := s.Session.Conn().Stats()
	e := &entry{
		Server: s.name, Made: stats.Calls, Ended: stats.Ended(), Late: stats.Late, Dropped: stats.Malformed,
		Restarts: s.Session.Conn().Status().Epoch - 1, Outage: seconds(s.longestOutage()),
		Settled: make(map[string]map[string]uint64),
		losses:  s.losses, stats: stats, outcomes: &s.outcomes,
	}
	for cause, byDelivery := range stats.Settled {
		row := make(map[string]uint64)
		for delivery, n := range byDelivery {
			row[delivery.String()] = n
		}
		if len(row) > 0 {
			e.Settled[cause.String()] = row
		}
	}
	return e
}

// summarize prints the table at the end.
func (p *printer) summarize(r *report) {
	if p.options.JSON {
		p.write(jsonLine(r))
		return
	}
	p.write("\n" + tables(r.Servers))
	if r.Metrics != nil {
		p.write("\nthe same by the metrics\n\n" + tables(r.Metrics))
	}
	p.write(fmt.Sprintf("\ngoroutines %d before, %d after; processes %d started, %d left\n",
		r.Goroutines[0], r.Goroutines[1], r.Processes[0], r.Processes[1]))
}

// tables returns two tables: one with a row for every way in which calls to a
// server ended, and one with a row for every server.
func tables(entries []*entry) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "server\tcalls ended by\tnot sent\tsent\tunknown\t")
	for _, e := range entries {
		for _, cause := range conn.Causes() {
			if row, any := e.row(cause); any {
				fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t\n", e.Server, cause, row[0], row[1], row[2])
			}
		}
	}
	fmt.Fprintln(table, "\nserver\tmade\tended\tlate answers\tmalformed\trestarts\tlongest outage")
	for _, e := range entries {
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%.2f s\n", e.Server, e.Made, e.Ended, e.Late, e.Dropped, e.Restarts, e.Outage)
	}
	table.Flush()
	return text.String()
}

// verdict returns nil if all counts agree, every server came back, and nothing
// was left behind.
func (r *report) verdict() error {
	errs := []error{r.err}
	var unknown uint64
	for _, e := range r.Servers {
		errs = append(errs, e.verdict()...)
		unknown += e.stats.Settled[conn.LinkLost][conn.Unknown]
	}
	errs = append(errs, r.metricsAgree())
	if unknown == 0 {
		errs = append(errs, errors.New("demo: no call was in flight when servers were lost"))
	}
	if leaked := r.Goroutines[1] - r.Goroutines[0]; leaked > 0 {
		errs = append(errs, fmt.Errorf("demo: %d goroutines leaked", leaked))
	}
	if r.Processes[1] > 0 {
		errs = append(errs, fmt.Errorf("demo: %d processes are left", r.Processes[1]))
	}
	return errors.Join(errs...)
}

// metricsAgree returns nil if the metrics have the same counts, or were not
// collected.
func (r *report) metricsAgree() error {
	if r.Metrics == nil {
		return nil
	}
	var errs []error
	reported := uint64(0)
	for i, e := range r.Servers {
		errs = append(errs, e.agree(r.Metrics[i]))
		for _, n := range e.outcomes.Reported() {
			reported += n
		}
	}
	if reported != r.counted {
		errs = append(errs, fmt.Errorf("demo: the metrics have counted %d calls, and the callers %d", r.counted, reported))
	}
	return errors.Join(errs...)
}

func (e *entry) verdict() []error {
	var errs []error
	if err := e.outcomes.Balance(e.stats); err != nil {
		errs = append(errs, fmt.Errorf("demo: %s: %w", e.Server, err))
	}
	if e.Restarts != e.losses {
		errs = append(errs, fmt.Errorf("demo: %s: lost %d times, came back %d times", e.Server, e.losses, e.Restarts))
	}
	return errs
}
