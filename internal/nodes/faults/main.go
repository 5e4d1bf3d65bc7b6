//go:build unix

// Command faults causes the faults that nodes of a cluster survive, and prints what becomes of
// sessions and calls:
//
//	go build -o /tmp/bowline ./cmd/bowline/full/bowline
//	go run ./internal/nodes/faults -bowline /tmp/bowline -busy 1,100
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

	"github.com/bowline-mcp/bowline/internal/nodes"
)

func main() {
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
	atOnce              int
	verbose             bool
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.bowline, "bowline", "", "the `program` of a node: cmd/bowline/full/bowline")
	flag.StringVar(&o.natsServer, "nats-server", "", "nats-server; without it only faults of one embedded server are caused")
	only := flag.String("only", "", "the faults to cause, as a regular `expression`")
	busy := flag.String("busy", "0,1,100", "how many calls are under way when a fault begins; a run for each")
	flag.DurationVar(&o.wait, "wait", 500*time.Millisecond, "how long a call takes")
	flag.IntVar(&o.atOnce, "at-once", 1, "how many runs there are at a time")
	flag.BoolVar(&o.verbose, "v", false, "print what the nodes say, and how calls have failed")
	flag.Parse()
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return err
	}
	for _, text := range strings.Split(*busy, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		o.busy = append(o.busy, n)
	}
	if o.bowline == "" {
		return errors.New("name the program of a node with -bowline")
	}
	return o.table(ctx)
}

// A job is one run.
type job struct {
	fault nodes.Fault
	setup nodes.Setup
	busy  int
	row   nodes.Row
	err   error
}

// table makes all runs, and prints their rows.
func (o *options) table(ctx context.Context) error {
	var jobs []*job
	for _, fault := range nodes.Faults() {
		if !o.only.MatchString(fault.Name) {
			continue
		}
		for _, setup := range fault.Setups {
			if setup == nodes.ThreeServers && o.natsServer == "" {
				continue
			}
			for _, busy := range o.busy {
				jobs = append(jobs, &job{fault: fault, setup: setup, busy: busy})
			}
		}
	}
	var group sync.WaitGroup
	waiting := make(chan *job)
	for range o.atOnce {
		group.Go(func() {
			for j := range waiting {
				j.row, j.err = o.run(ctx, j)
				if median, longest := j.row.Outage(); j.err == nil {
					fmt.Fprintf(os.Stderr, "%s, %s, %d in flight: outage %.2f s, at most %.2f s\n", j.fault.Name, j.setup, j.busy, median.Seconds(), longest.Seconds())
				}
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
	return j.fault.Run(ctx, nodes.SiteOptions{
		Setup: j.setup, Bowline: o.bowline, NATSServer: o.natsServer, Folder: filepath.Clean(folder), Log: log,
	}, j.busy, o.wait)
}

// report prints the rows, and fails with those that are wrong.
func (o *options) report(jobs []*job) error {
	var rows []nodes.Row
	var errs []error
	for _, j := range jobs {
		name := fmt.Sprintf("%s, %s, %d in flight", j.fault.Name, j.setup, j.busy)
		if j.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, j.err))
			continue
		}
		rows = append(rows, j.row)
	}
	if err := nodes.Print(os.Stdout, rows); err != nil {
		return err
	}
	wrong := slices.DeleteFunc(slices.Clone(rows), func(r nodes.Row) bool { return len(r.Wrong) == 0 })
	for _, r := range rows {
		if len(r.Wrong) > 0 || o.verbose {
			fmt.Printf("%s, %s, %d in flight:\n", r.Fault, r.Setup, r.Busy)
			r.Explain(os.Stdout, 20)
		}
	}
	if len(wrong) > 0 {
		errs = append(errs, fmt.Errorf("%d of %d rows are wrong", len(wrong), len(rows)))
	}
	return errors.Join(errs...)
}
