//go:build unix

package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// A Row is what a fault has done to the calls of a Load.
type Row struct {
	Fault string
	Setup Setup
	Busy  int // calls that were under way when it began
	Books
	Took    time.Duration
	watched watched // what was refused on purpose

	Wrong []string // what should not be; empty: the row is as it should be
}

// idleSessions is how many sessions have no call under way when a fault begins.
const idleSessions = 10

// settleTimeout is how long a session may be without an answer after the end of a fault.
const settleTimeout = time.Minute

// Run opens a Site, puts load on it, causes the fault, and waits until every session has an
// answer again. The error says that the run itself has failed.
func (f *Fault) Run(ctx context.Context, o SiteOptions, busy int, wait time.Duration) (row Row, err error) {
	row = Row{Fault: f.Name, Setup: o.Setup, Busy: busy}
	began := time.Now()
	site, err := Open(ctx, o)
	if err != nil {
		return row, err
	}
	closing := sync.OnceValue(site.Close)
	defer func() { err = errors.Join(err, closing()) }()
	row.name(site)
	load, err := StartLoad(ctx, LoadOptions{URL: site.URL(), Sessions: busy + idleSessions, Busy: busy, First: nodeName(victim), Wait: wait, Users: site.users()})
	if err != nil {
		return row, err
	}
	failed := site.saved(ctx)
	if failed == nil {
		load.Begin()
		row.watched, failed = f.cause(ctx, load, site)
	}
	unsettled := load.settleWithin(ctx, settleTimeout)
	row.Books, err = load.Stop(ctx, site.Ledger())
	row.judge(unsettled, f.Limit, f.MayLose)
	err = errors.Join(err, row.judgeGateways(closing, site))
	row.Took = time.Since(began)
	return row, errors.Join(failed, err)
}

// cause causes the fault, and has all sessions call once it has begun. Gateways refuse meanwhile what a persona forbids.
func (f *Fault) cause(ctx context.Context, load *Load, site *Site) (watched, error) {
	w := newWatch(load, site)
	for i := range f.Steps {
		step := &f.Steps[i]
		err := step.cause(ctx, site, func() {
			load.All()
			w.during(ctx, f.Name, step.Down)
		})
		if err != nil {
			return w.seen, err
		}
	}
	return w.seen, nil
}

func (l *Load) settleWithin(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return l.Settle(ctx)
}

// judge says what is wrong with the row.
func (r *Row) judge(unsettled error, limit time.Duration, mayLose func(node string) bool) {
	r.Wrong = slices.Clone(r.Books.Wrong)
	if unsettled != nil {
		r.Wrong = append(r.Wrong, unsettled.Error())
	}
	for _, lost := range r.Lost {
		if mayLose == nil || !mayLose(lost.Node) {
			r.Wrong = append(r.Wrong, fmt.Sprintf("a session of node %s was lost: status 404 for %q", lost.Node, lost.Requests))
		}
	}
	if _, longest := r.Outage(); limit > 0 && longest > limit {
		r.Wrong = append(r.Wrong, fmt.Sprintf("a session was %v without an answer, more than %v", longest.Round(time.Millisecond), limit))
	}
}

// judgeGateways closes a site, and compares what three know of the calls, if its nodes are gateways: clients, servers and audit trails. Each of them alone could be lied to.
//
// It says what else is wrong: what the servers behind the gateways have noticed, what the audit trails have not, and what was not refused that should have been.
func (r *Row) judgeGateways(closing func() error, site *Site) error {
	if site.behind == nil {
		return nil
	}
	_ = closing() // then the trails are complete; who has opened the site has the error
	r.Wrong = append(r.Wrong, r.watched.wrong()...)
	return r.judgeTrails(site.behind, site.machine)
}

func (r *Row) judgeTrails(g *gateways, machine func(node int) string) error {
	noticed, err := g.wrong()
	recorded, broken, unread := g.recorded(machine)
	r.Wrong = append(append(r.Wrong, noticed...), broken...)
	if unread == nil && len(broken) == 0 {
		r.Wrong = append(r.Wrong, r.audit(recorded)...)
	}
	return errors.Join(err, unread)
}

// name says in the name of the row that its nodes are gateways.
func (r *Row) name(site *Site) {
	if site.behind != nil {
		r.Fault = "gateways, " + r.Fault
	}
}

// Print writes rows as a table, and below it what is wrong with them.
func Print(to io.Writer, rows []Row) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "fault\tset-up\tin flight\tsessions\tlost\tgiven up\tcalls\tanswered\tnot sent\tunknown\terror\texecuted\ttwice\tdenied\tlimited\toutage p50\tmax\ttook\t")
	for _, r := range rows {
		median, longest := r.Outage()
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", r.Fault, r.Setup, r.Busy, r.Sessions, len(r.Lost), len(r.GivenUp),
			r.Calls, r.Answered, r.NotSent, r.Unknown, r.Refused, r.Executed, r.Twice, r.Denied, r.Limited, seconds(median), seconds(longest), seconds(r.Took), r.verdict())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		r.watched.print(to)
	}
	return nil
}

func (r *Row) verdict() string {
	if len(r.Wrong) > 0 {
		return "WRONG"
	}
	return ""
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// Explain writes what is wrong with a row, and how calls have failed, at most limit of each.
func (r *Row) Explain(to io.Writer, limit int) {
	for _, lines := range [][]string{r.Wrong, r.GivenUp, r.Failed} {
		for i, line := range lines {
			if i == limit {
				fmt.Fprintf(to, "  and %d more\n", len(lines)-limit)
				break
			}
			fmt.Fprintf(to, "  %s\n", line)
		}
	}
}
