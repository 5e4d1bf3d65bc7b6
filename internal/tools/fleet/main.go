// Fleet shows what many supervised connections in one process cost, what it
// takes to lose some of them, and that the others do not notice.
//
//	go run ./internal/tools/fleet                  10,000 connections in memory
//	go run ./internal/tools/fleet -children 200    200 real child processes, killed at random
//
// It prints each phase with its measurements. No measurement fails the program. The exit
// status is 1 unless every call ends exactly once, connections that were not killed have
// no failed call, every connection becomes ready again, a drain answers the calls in
// flight, and no resource is left.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"time"
)

// options say what to run: the children if there are any, otherwise the pairs.
type options struct {
	seed     uint64
	timeout  time.Duration // how long all phases may take
	pairs    pairsOptions
	children childrenOptions
}

func main() {
	if isChild() {
		exit(serveChild(context.Background()))
	}
	o := parse(os.Args[1:])
	runtime.MemProfileRate = o.pairs.profile
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, o)
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

const usage = `usage: go run ./internal/tools/fleet [flags]

Without -children: connects that many pairs of a client session and a server's in
memory, calls them, measures their memory, kills some, stops the server of many at
once, and drains all of them with calls in flight.

With -children: starts that many real child processes under one supervisor, and
has callers call them while random ones are killed (SIGKILL). Each child writes
down what it executes, and the outcomes of the callers are compared with that. Linux only.

`

func parse(args []string) options {
	var o options
	flags := flag.NewFlagSet("fleet", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	flags.Uint64Var(&o.seed, "seed", 1, "of the random choice of which connections are killed, and when")
	flags.DurationVar(&o.timeout, "patience", 5*time.Minute, "the timeout of all phases together, in addition to -duration")

	flags.IntVar(&o.pairs.pairs, "pairs", 10_000, "connections in memory")
	flags.IntVar(&o.pairs.starting, "starting", 64, "how many connect at once")
	flags.Float64Var(&o.pairs.killed, "killed", 10, "how many `percent` of the pairs are killed")
	flags.IntVar(&o.pairs.lost, "lost", 1000, "how many clients lose their server at once")
	flags.DurationVar(&o.pairs.backoff, "backoff", time.Second, "the first delay before a connection begins anew")
	flags.IntVar(&o.pairs.profile, "profile", 16<<10, "allocations are sampled every so many `bytes`, for what a pair consists of; 1: all of them, 0: none")

	flags.IntVar(&o.children.children, "children", 0, "child processes, in place of pairs")
	flags.DurationVar(&o.children.duration, "duration", time.Minute, "how long children are called and killed")
	flags.IntVar(&o.children.callers, "callers", 4, "goroutines that call each child")
	flags.Float64Var(&o.children.kills, "kills", 8, "children killed a `second`")
	flags.DurationVar(&o.children.pause, "pause", 100*time.Millisecond, "how long a caller waits between calls, on average")
	_ = flags.Parse(args) // it exits on an error
	if flags.NArg() > 0 {
		fmt.Fprintf(flags.Output(), "fleet: takes flags only, not %q\n", flags.Args())
		os.Exit(2)
	}
	return o
}

var errTimeout = errors.New("the time of -patience is over")

func run(ctx context.Context, out io.Writer, o options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout+o.children.duration, errTimeout)
	defer cancel()
	if o.children.children > 0 {
		return runChildren(ctx, out, o.seed, o.children)
	}
	return runPairs(ctx, out, o.seed, o.pairs)
}
