// Package demo shows the main job: real server processes under supervision are
// killed, garbled and stalled while many goroutines call them, every caller is
// told one true thing, and the servers come back.
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

	"github.com/bowline-mcp/bowline/internal/pause"
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

// A show is one run of the demo.
type show struct {
	options    Options
	story      *story
	servers    []*server
	supervisor *supervisor.Supervisor
	metrics    *metrics // nil without Options.Metrics
}

// Run plays the demo. It returns nil only when every call ended exactly once,
// every server came back, nothing is left over, and the metrics, if they were asked for,
// say what the books do.
func Run(ctx context.Context, o Options) error {
	if err := o.setDefaults(); err != nil {
		return err
	}
	goroutines := runtime.NumGoroutine()
	s := &show{
		options:    o,
		story:      newStory(o),
		supervisor: supervisor.New(supervisor.Options{Name: "demo"}),
	}
	var err error
	if o.Metrics {
		if s.metrics, err = newMetrics(); err != nil {
			return err
		}
	}
	for _, name := range []string{"alpha", "bravo", "charlie"} {
		s.servers = append(s.servers, newServer(name, s.story, s.metrics))
	}
	err = s.play(ctx)
	s.story.end()
	if err != nil {
		return err
	}
	report := s.report(context.WithoutCancel(ctx), goroutines)
	s.story.summarize(report)
	return report.verdict()
}

// play runs the demo from start to end. It closes everything, whatever happens.
func (s *show) play(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	s.story.tell(event{Kind: kindNote, Text: fmt.Sprintf("starting %d servers: %s (seed %d)", len(s.servers), s.options.Server.Path, s.options.Seed)})
	for _, server := range s.servers {
		if err := server.connect(ctx, s.options.Server, s.supervisor); err != nil {
			return err
		}
	}
	if s.metrics != nil {
		s.metrics.Watch(samplesOf(s.servers))
	}
	s.story.watch(s.servers)
	enough := make(chan struct{})
	var callers sync.WaitGroup
	for _, server := range s.servers {
		for range s.options.Callers {
			callers.Go(func() { server.call(ctx, enough) })
		}
	}
	s.story.tell(event{Kind: kindNote, Text: fmt.Sprintf("%d goroutines call each of them: a tool that takes 0.2 s, again and again", s.options.Callers)})
	err = s.perform(ctx)
	close(enough)
	callers.Wait()
	return err
}

// perform injects every fault at its time, waits until the servers are back,
// and lets them serve for the remaining time.
func (s *show) perform(ctx context.Context) error {
	began := time.Now()
	var down []func(context.Context) error
	for _, act := range plan(s.options.Seed, len(s.servers), s.options.Duration) {
		if err := pause.For(ctx, act.at-time.Since(began)); err != nil {
			return err
		}
		server := s.servers[act.server]
		epoch := server.session.Conn().Status().Epoch
		if err := server.suffer(ctx, act.fault); err != nil {
			return fmt.Errorf("demo: %s: %w", server.name, err)
		}
		if act.fault.losesLink() {
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
	return pause.For(ctx, s.options.Duration-time.Since(began))
}

// close closes every session and the supervisor.
func (s *show) close(ctx context.Context) error {
	var errs []error
	for _, server := range s.servers {
		if server.session != nil {
			server.tellFailures()
			errs = append(errs, server.session.Close(ctx))
		}
	}
	return errors.Join(append(errs, s.supervisor.Stop(context.WithoutCancel(ctx)))...)
}

// A fault is a way in which a server fails.
type fault string

const (
	killed    fault = "killed"    // the process is killed during calls
	garbage   fault = "garbage"   // the server writes lines that are not messages
	oversized fault = "oversized" // the server sends a frame above the limit
	stalled   fault = "stalled"   // the process is stopped (SIGSTOP)
	resumed   fault = "resumed"   // the process continues (SIGCONT)
	leaves    fault = "leaves"    // the server exits by itself
)

// losesLink reports whether the fault ends the server's process, so that it
// must be restarted.
func (f fault) losesLink() bool { return f == killed || f == oversized || f == leaves }

// An act is one fault at one time.
type act struct {
	at     time.Duration // the time since the beginning
	server int
	fault  fault
}

// scene says when each fault happens, as a fraction of the duration, and which
// of the shuffled servers it hits.
var scene = [...]struct {
	part   float64
	server int
	fault  fault
}{
	{0.10, 0, killed},
	{0.28, 1, garbage},
	{0.36, 1, oversized},
	{0.52, 2, stalled},
	{0.66, 2, resumed},
	{0.72, 0, leaves},
}

// plan draws which server fails how, and when, from a seed. Equal seeds give
// equal plans. Times vary by ± 2 % of the duration, which keeps their order.
func plan(seed uint64, servers int, whole time.Duration) []act {
	random := rand.New(rand.NewPCG(seed, 0))
	order := random.Perm(servers)
	acts := make([]act, len(scene))
	for i, s := range scene {
		part := s.part + 0.04*random.Float64() - 0.02
		acts[i] = act{time.Duration(part * float64(whole)), order[s.server%servers], s.fault}
	}
	return acts
}
