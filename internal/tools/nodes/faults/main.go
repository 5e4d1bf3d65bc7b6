//go:build unix

// Command faults causes the faults that nodes of a cluster survive, and prints what becomes of
// sessions and calls:
//
//	go build -o /tmp/bowline ./cmd/bowline/full/bowline
//	go run ./internal/tools/nodes/faults -bowline /tmp/bowline -busy 1,100
//
// It fails if the books of a run do not balance: every call ends in one way, what was executed
// was called, and nothing was executed twice; and if sessions are lost, or are without an answer
// for longer than they should. Times are upper bounds: they contain what else the machine does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bowline-mcp/bowline/internal/tools/nodes"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/child"
)

func main() {
	if kind := os.Getenv(child.Variable); kind != "" {
		if err := child.Run(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type options struct {
	bowline, natsServer string
	only                *regexp.Regexp
	busy                []int
	wait                time.Duration
	chaos, gateways     time.Duration
	seed                uint64
	clients             int
	atOnce              int
	users               bool
	verbose             bool
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.bowline, "bowline", "", "the `program` of a node: cmd/bowline/full/bowline")
	flag.StringVar(&o.natsServer, "nats-server", "", "nats-server; without it there is only the set-up with one embedded server")
	only := flag.String("only", "", "the faults to cause, as a regular `expression`")
	busy := flag.String("busy", "0,1,100", "how many calls are under way when a fault begins; a run for each")
	flag.DurationVar(&o.wait, "wait", 500*time.Millisecond, "how long a call takes")
	flag.DurationVar(&o.chaos, "chaos", 0, "cause faults at random for so long, too")
	flag.DurationVar(&o.gateways, "gateways", 0, "cause faults at random for so long on gateways with users, too, with one embedded server")
	flag.BoolVar(&o.users, "users", false, "cause the faults on gateways with users, too, with one embedded server")
	flag.Uint64Var(&o.seed, "seed", 1, "decides which faults happen at random")
	flag.IntVar(&o.clients, "clients", 50, "how many clients there are while faults happen at random")
	flag.IntVar(&o.atOnce, "at-once", 1, "how many runs there are at a time")
	flag.BoolVar(&o.verbose, "v", false, "print what the nodes say, and how calls have failed")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return err
	}
	if o.busy, err = numbers(*busy); err != nil {
		return err
	}
	if o.bowline == "" {
		return errors.New("name the program of a node with -bowline")
	}
	return o.runAll(ctx, o.jobs())
}

func numbers(list string) (all []int, err error) {
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// A job is one run.
type job struct {
	name  string
	setup nodes.Setup
	run   func(context.Context, nodes.SiteOptions) (nodes.Row, error)
	row   nodes.Row
	err   error
}

// jobs returns all runs, the longest first.
func (o *options) jobs() (all []*job) {
	setups := []nodes.Setup{nodes.OneServer}
	if o.natsServer != "" {
		setups = append(setups, nodes.EmbeddedServers, nodes.ThreeServers)
	}
	all = o.chaosJobs(setups)
	for _, fault := range nodes.Faults() {
		for _, setup := range fault.Setups {
			if !o.only.MatchString(fault.Name) || !slices.Contains(setups, setup) {
				continue
			}
			for _, busy := range o.busy {
				all = append(all, o.faultJobs(fault, setup, busy)...)
			}
		}
	}
	return all
}

// faultJobs returns the runs of a fault with one set-up: with servers, and perhaps with gateways.
func (o *options) faultJobs(fault nodes.Fault, setup nodes.Setup, busy int) (all []*job) {
	name := fmt.Sprintf("%s, %d in flight", fault.Name, busy)
	run := func(ctx context.Context, site nodes.SiteOptions) (nodes.Row, error) {
		return fault.Run(ctx, site, busy, o.wait)
	}
	all = append(all, &job{name: name, setup: setup, run: run})
	if o.users && setup == nodes.OneServer {
		all = append(all, &job{name: "gateways, " + name, setup: setup, run: ofGateways(run)})
	}
	return all
}

// chaosJobs returns the runs in which faults happen at random. Those of gateways have one set-up: what differs between the set-ups is tried with servers,
// and costs as long as the longest of all runs.
func (o *options) chaosJobs(setups []nodes.Setup) (all []*job) {
	for _, setup := range setups {
		if o.chaos > 0 {
			all = append(all, &job{name: "chaos", setup: setup, run: func(ctx context.Context, site nodes.SiteOptions) (nodes.Row, error) {
				return nodes.Chaos(ctx, nodes.ChaosOptions{Site: site, Seed: o.seed, For: o.chaos, Clients: o.clients, Wait: o.wait, Log: os.Stderr})
			}})
		}
	}
	if o.gateways > 0 {
		all = append(all, &job{name: "chaos of gateways", setup: nodes.OneServer, run: ofGateways(func(ctx context.Context, site nodes.SiteOptions) (nodes.Row, error) {
			return nodes.Chaos(ctx, nodes.ChaosOptions{Site: site, Seed: o.seed, For: o.gateways, Clients: o.clients, Wait: o.wait, Log: os.Stderr})
		})})
	}
	return all
}

// ofGateways makes a run with gateways, which start this program as their servers.
func ofGateways(run func(context.Context, nodes.SiteOptions) (nodes.Row, error)) func(context.Context, nodes.SiteOptions) (nodes.Row, error) {
	return func(ctx context.Context, site nodes.SiteOptions) (row nodes.Row, err error) {
		if site.Child, err = os.Executable(); err != nil {
			return row, err
		}
		return run(ctx, site)
	}
}

// runAll makes the runs, and prints their rows.
func (o *options) runAll(ctx context.Context, jobs []*job) error {
	var group sync.WaitGroup
	waiting := make(chan *job)
	for range o.atOnce {
		group.Go(func() {
			for j := range waiting {
				j.row, j.err = o.run(ctx, j)
				fmt.Fprintf(os.Stderr, "%s, %s: %.1f s\n", j.name, j.setup, j.row.Took.Seconds())
			}
		})
	}
	for _, j := range jobs {
		waiting <- j
	}
	close(waiting)
	group.Wait()
	return o.report(jobs)
}

// run makes a run in a folder of its own.
func (o *options) run(ctx context.Context, j *job) (row nodes.Row, err error) {
	folder, err := os.MkdirTemp("", "bowline-faults-*")
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	var log io.Writer
	if o.verbose {
		log = os.Stderr
	}
	return j.run(ctx, nodes.SiteOptions{Setup: j.setup, Bowline: o.bowline, NATSServer: o.natsServer, Folder: filepath.Clean(folder), Log: log})
}

// report prints the rows, and fails with those that are wrong.
func (o *options) report(jobs []*job) error {
	var rows []nodes.Row
	var errs []error
	wrong := 0
	for _, j := range jobs {
		if j.err != nil {
			errs = append(errs, fmt.Errorf("%s, %s: %w", j.name, j.setup, j.err))
			continue
		}
		rows = append(rows, j.row)
	}
	if err := nodes.Print(os.Stdout, rows); err != nil {
		return err
	}
	for _, r := range rows {
		if len(r.Wrong) > 0 {
			wrong++
		}
		if len(r.Wrong) > 0 || o.verbose {
			fmt.Printf("%s, %s, %d in flight:\n", r.Fault, r.Setup, r.Busy)
			r.Explain(os.Stdout, shown)
		}
	}
	if wrong > 0 {
		errs = append(errs, fmt.Errorf("%d of %d rows are wrong", wrong, len(rows)))
	}
	return errors.Join(errs...)
}

// shown is how many lines explain a row, of each kind.
const shown = 20
