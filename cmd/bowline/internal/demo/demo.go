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
	"runtime"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/supervisor"
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
	options    Options
	printer    *printer
	servers    []*server
	supervisor *supervisor.Supervisor
	metrics    *metrics // nil without Options.Metrics
}

// Run runs the demo. It returns nil only when every call ended exactly once,
// every server came back, nothing is left over, and the metrics, if they are wanted,
// have the same counts.
func Run(ctx context.Context, o Options) error {
	if err := o.setDefaults(); err != nil {
		return err
	}
	goroutines := runtime.NumGoroutine()
	d := &demo{
		options:    o,
		printer:    newPrinter(o),
		supervisor: supervisor.New(supervisor.Options{Name: "demo"}),
	}
	var err error
	if o.Metrics {
		if d.metrics, err = newMetrics(); err != nil {
			return err
		}
	}
	for _, name := range []string{"alpha", "bravo", "charlie"} {
		d.servers = append(d.servers, newServer(name, d.printer, d.metrics))
	}
	err = d.run(ctx)
	d.printer.removeTable()
	if err != nil {
		return err
	}
	report := d.report(context.WithoutCancel(ctx), goroutines)
	d.printer.summarize(report)
	return report.verdict()
}

// run runs the demo from start to end. It closes everything, whatever happens.
func (d *demo) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, d.close(ctx)) }()
	d.printer.print(event{Kind: kindNote, Text: fmt.Sprintf("starting %d servers: %s (seed %d)", len(d.servers), d.options.Server.Path, d.options.Seed)})
	for _, server := range d.servers {
		if err := server.connect(ctx, d.options.Server, d.supervisor); err != nil {
			return err
		}
	}
	if d.metrics != nil {
		d.metrics.Watch(samplesOf(d.servers))
	}
	d.printer.showTable(d.servers)
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for _, server := range d.servers {
		for range d.options.Callers {
			callers.Go(func() { server.call(ctx, stop) })
		}
	}
	d.printer.print(event{Kind: kindNote, Text: fmt.Sprintf("%d goroutines call each of them: a tool that takes 0.2 s, again and again", d.options.Callers)})
	err = d.injectFaults(ctx)
	close(stop)
	callers.Wait()
	return err
}

// injectFaults injects every fault at its time, waits until the servers are back,
// and lets them serve for the remaining time.
func (d *demo) injectFaults(ctx context.Context) error {
	began := time.Now()
	var down []func(context.Context) error
	for _, planned := range plan(d.options.Seed, len(d.servers), d.options.Duration) {
		if err := wait.Sleep(ctx, planned.at-time.Since(began)); err != nil {
			return err
		}
		server := d.servers[planned.server]
		epoch := server.session.Conn().Status().Epoch
		if err := server.inject(ctx, planned.fault); err != nil {
			return fmt.Errorf("demo: %s: %w", server.name, err)
		}
		if planned.fault.losesLink() {
			server.losses++
			down = append(down, func(ctx context.Context) error { return server.awaitReady(ctx, epoch) })
		}
	}
	waiting, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	for _, back := range down {
		if err := back(waiting); err != nil {
			return err
		}
	}
	return wait.Sleep(ctx, d.options.Duration-time.Since(began))
}

// close closes every session and the supervisor.
func (d *demo) close(ctx context.Context) error {
	var errs []error
	for _, server := range d.servers {
		if server.session != nil {
			server.printFailures()
			errs = append(errs, server.session.Close(ctx))
		}
	}
	return errors.Join(append(errs, d.supervisor.Stop(context.WithoutCancel(ctx)))...)
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
func plan(seed uint64, servers int, whole time.Duration) []plannedFault {
	random := rand.New(rand.NewPCG(seed, 0))
	order := random.Perm(servers)
	faults := make([]plannedFault, len(schedule))
	for i, s := range schedule {
		part := s.part + 0.04*random.Float64() - 0.02
		faults[i] = plannedFault{time.Duration(part * float64(whole)), order[s.server%servers], s.fault}
	}
	return faults
}
