//go:build unix

// Command attacks measures how well a good client is served over Streamable HTTP while others attack:
//
//	go run ./internal/tools/attacks                          a table of all attacks, in some minutes
//	go run ./internal/tools/attacks -only bodies -runs 5     the median and the worst of five runs
//
// Each attack happens three times: over one connection, over 50 connections of one address, and from 40
// addresses. The server, and each attacker, is a process of its own; attackers run at nice 19. The control is a
// server of net/http and encoding/json that does the same for the same requests. Times are those of the good
// client, which calls a tool every few milliseconds; they contain what else the machine does.
//
// It fails if a call of the good client fails or is refused.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// The roles of this program, which its first argument names.
const (
	serves  = "serve"
	attacks = "attack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	var err error
	switch role {
	case serves:
		err = serve(ctx, os.Args[2], os.Stdin, os.Stdout)
	case attacks:
		err = attack(ctx, os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Stdin, os.Stdout)
	default:
		err = measure(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attacks:", err)
		os.Exit(1)
	}
}

// A shape says over how many connections an attack comes, and from how many addresses.
type shape struct {
	name                   string
	addresses, connections int // connections of each address
}

var shapes = []shape{{"1 connection", 1, 1}, {"50 connections", 1, 50}, {"40 addresses", 40, 1}}

type options struct {
	only *regexp.Regexp
	runs int
	time time.Duration
}

func measure(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("attacks", flag.ContinueOnError)
	only := flags.String("only", "", "the attacks to measure, as a regular `expression` of their names and shapes, such as \"bodies, 40\"")
	flags.IntVar(&o.runs, "runs", 1, "how many `runs` to make, of which the median and the worst are printed")
	flags.DurationVar(&o.time, "time", 2*time.Second, "how long a run measures")
	save := flags.String("save", "", "also write the table to a `file`: internal/tools/attacks/measured.md is a part of docs/attacks.md")
	if err := flags.Parse(args); err != nil {
		return nil // it has been printed
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil || o.runs < 1 || o.time <= 0 || flags.NArg() > 0 {
		return fmt.Errorf("-only takes a regular expression, -runs and -time take positive values, and there are no arguments: %w", err)
	}
	file := io.Discard
	if *save != "" {
		created, err := os.Create(*save)
		if err != nil {
			return err
		}
		defer created.Close()
		file = created
	}
	return o.table(ctx, io.MultiWriter(out, file))
}

const explained = `Medians of %d runs of %v each, with %d processors and %s. A call of the good client took %v without an attack (p99 %v; the
control %v and %v). Attackers run at nice 19, in processes of their own. "Attacks" are those that succeeded, were refused and have failed
in each second. Heap is what is reachable after a collection, and RSS the highest of the process. The goal is met if no good call fails, p99
is at most 3 times that without an attack or 1.5 times the control's (from 40 addresses 10 and 2 times), heap is at most 384 MiB, and RSS
at most 900 MiB.

| Attack | Attackers | Attacks | p50 | p99 | worst p99 | failed | heap | RSS | control: attacks | p50 | p99 | failed | goal |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
`

// table measures, and prints a line for each attack.
func (o *options) table(ctx context.Context, out io.Writer) error {
	var idle [2]result
	for i, of := range []string{bowline, control} {
		var err error
		if idle[i], err = o.measure(ctx, of, "", shape{}); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, explained, o.runs, o.time, runtime.GOMAXPROCS(0), runtime.Version(), idle[0].p50, idle[0].p99, idle[1].p50, idle[1].p99)
	failed := 0
	for _, kind := range kinds {
		for _, s := range shapes {
			if !o.only.MatchString(kind.name + ", " + s.name) {
				continue
			}
			got, err := o.measure(ctx, bowline, kind.name, s)
			if err != nil {
				return err
			}
			than, err := o.measure(ctx, control, kind.name, s)
			if err != nil {
				return err
			}
			failed += got.failed
			fmt.Fprintf(out, "| %s | %s | %v | %v | %v | %v | %d | %d MiB | %d MiB | %v | %v | %v | %d | %s |\n", kind.name, s.name, got.attacks, got.p50, got.p99,
				got.worst, got.failed, got.heap>>20, got.rss>>20, than.attacks, than.p50, than.p99, than.failed, s.verdict(idle[0], got, than))
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d calls of the good client failed", failed)
	}
	return nil
}

// verdict says whether the goal was met.
func (s shape) verdict(idle, got, than result) string {
	timesIdle, ofControl := 3.0, 1.5
	if s.addresses > 1 {
		timesIdle, ofControl = 10, 2
	}
	limit := timesIdle * float64(idle.p99)
	var missed []string
	if got.failed > 0 {
		missed = append(missed, "calls failed")
	}
	if float64(got.p99) > max(limit, ofControl*float64(than.p99)) {
		missed = append(missed, "p99")
	}
	if got.heap > 384<<20 {
		missed = append(missed, "heap")
	}
	if got.rss > 900<<20 {
		missed = append(missed, "RSS")
	}
	switch {
	case len(missed) > 0:
		return "missed: " + strings.Join(missed, ", ")
	case float64(got.p99) > limit:
		return "met, as the control is slow, too"
	default:
		return "met"
	}
}
