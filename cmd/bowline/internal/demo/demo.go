// Package demo shows the main job: real server processes under supervision are
// killed, garbled and stalled while many goroutines call them. Every caller gets
// one correct outcome, and the servers are restarted.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/bowline-mcp/bowline/internal/fleet"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// Options configure a demo. The zero value of each field means its default.
type Options struct {
	Server   stdio.Command // how to start a server: required
	Out      io.Writer     // where to print; required
	JSON     bool          // print one JSON document per line instead of text
	Color    bool          // colour, for a terminal
	Live     bool          // show a live table below the events, for a terminal
	Seed     uint64        // decides which server fails how, and when
	Duration time.Duration // about how long it takes; 10 s, and 5 s at least
	Callers  int           // how many goroutines call each server; default 20
	Metrics  bool          // also print the table at the end from OpenTelemetry's metrics
}

// MinDuration is what the servers need to come back between their faults.
const MinDuration = 5 * time.Second

// ErrTooShort refuses a duration below MinDuration.
var ErrTooShort = fmt.Errorf("demo: the duration is too short: %v at least", MinDuration)

// recovery is how long a server may take to come back after the last fault.
const recovery = 20 * time.Second

func (o *Options) setDefaults() error {
	if o.Duration == 0 {
		o.Duration = 10 * time.Second
	}
	if o.Duration < MinDuration {
		return ErrTooShort
	}
	if o.Callers <= 0 {
		o.Callers = 20
	}
	return nil
}

// A demo is one run.
type demo struct {
	*fleet.Fleet[*server]
	options Options
	printer *printer
	metrics *metrics // nil without Options.Metrics
}

// Run runs the demo. It returns nil only when every call ended exactly once,
// every server came back, nothing is left over, and the metrics, if they are wanted,
// have the same counts.
func Run(ctx context.Context, o Options) error {
	if err := o.setDefaults(); err != nil {
		return err
	}
	d := &demo{Fleet: fleet.New[*server]("demo"), options: o, printer: newPrinter(o)}
	var err error
	if o.Metrics {
		if d.metrics, err = newMetrics(); err != nil {
			return err
		}
	}
	for _, name := range []string{"alpha", "bravo", "charlie"} {
		d.Members = append(d.Members, &server{name: name, printer: d.printer, metrics: d.metrics})
	}
	err = d.run(ctx)
	d.printer.removeTable()
	if err != nil {
		return err
	}
	report := d.report(context.WithoutCancel(ctx))
	d.printer.summarize(report)
	return report.verdict()
}

// run runs the demo from start to end. It closes everything, whatever happens.
func (d *demo) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, d.close(ctx)) }()
	d.printer.print(event{Kind: kindNote, Text: fmt.Sprintf("starting %d servers: %s (seed %d)", len(d.Members), d.options.Server.Path, d.options.Seed)})
	for _, server := range d.Members {
		if err := server.connect(ctx, d.options.Server, d.Supervisor); err != nil {
			return err
		}
	}
	if d.metrics != nil {
		d.metrics.Watch(samplesOf(d.Members))
	}
	d.printer.showTable(d.Members)
	waits := make([]bool, len(d.Members)*d.options.Callers) // each caller has its own
	load := fleet.StartLoad(len(waits), func(caller int) bool {
		waits[caller] = d.Members[caller%len(d.Members)].call(ctx, waits[caller])
		return ctx.Err() == nil
	})
	d.printer.print(event{Kind: kindNote, Text: fmt.Sprintf("%d goroutines call each of them: a tool that takes 0.2 s, again and again", d.options.Callers)})
	err = d.injectFaults(ctx)
	load.End()
	return err
}

// injectFaults injects every fault at its time, waits until the servers are back,
// and lets them serve for the remaining time.
func (d *demo) injectFaults(ctx context.Context) error {
	began := time.Now()
	if err := fleet.Strike(ctx, plan(d.options.Seed, len(d.Members), d.options.Duration).All, func(planned plannedFault) error {
		return d.Members[planned.server].inject(ctx, planned.fault)
	}); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	for _, server := range d.Members {
		if err := server.awaitReady(waiting); err != nil {
			return err
		}
	}
	return wait.Sleep(ctx, d.options.Duration-time.Since(began))
}

// close drains every session and the supervisor, and prints what callers got since the last event.
func (d *demo) close(ctx context.Context) error {
	for _, server := range d.Members {
		server.printFailures()
	}
	return d.Drain(ctx)
}

// A fault is a way in which a server fails.
type fault string

const (
	killed    fault = "killed"    // the process is killed during calls
	garbage   fault = "garbage"   // the server writes lines that are not messages
	oversized fault = "oversized" // the server sends a frame above the limit
	stalled   fault = "stalled"   // the process is stopped (SIGSTOP)
	resumed   fault = "resumed"   // the process continues (SIGCONT)
	exits     fault = "leaves"    // the server exits by itself
)

// losesLink reports whether the fault ends the server's process, so that it
// must be restarted.
func (f fault) losesLink() bool { return f == killed || f == oversized || f == exits }

// A plannedFault is one fault at one time.
type plannedFault struct {
	at     time.Duration // the time since the beginning
	server int
	fault  fault
}

// A faultPlan is all faults of a demo, in their order.
type faultPlan []plannedFault

// All yields the faults by their times.
func (p faultPlan) All(yield func(time.Duration, plannedFault) bool) {
	for _, f := range p {
		if !yield(f.at, f) {
			return
		}
	}
}

// schedule lists when each fault happens, as a fraction of the duration, and which
// of the shuffled servers it hits.
var schedule = [...]struct {
	part   float64
	server int
	fault  fault
}{
	{0.10, 0, killed},
	{0.28, 1, garbage},
	{0.36, 1, oversized},
	{0.52, 2, stalled},
	{0.66, 2, resumed},
	{0.72, 0, exits},
}

// plan draws which server fails how, and when, from a seed. Equal seeds give
// equal plans. Times vary by ± 2 % of the duration, which keeps their order.
func plan(seed uint64, servers int, whole time.Duration) faultPlan {
	random := rand.New(rand.NewPCG(seed, 0))
	order := random.Perm(servers)
	faults := make(faultPlan, len(schedule))
	for i, s := range schedule {
		part := s.part + 0.04*random.Float64() - 0.02
		faults[i] = plannedFault{time.Duration(part * float64(whole)), order[s.server%servers], s.fault}
	}
	return faults
}
