//go:build unix

// Command attacks measures how well a good client is served over Streamable HTTP while others attack:
//
//	go run ./internal/attacks                          a table of all attacks, in some minutes
//	go run ./internal/attacks -only bodies -runs 5     the median and the worst of five runs
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
		err = attack(ctx, os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Stdin)
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
	if err := flags.Parse(args); err != nil {
		return nil // it has been printed
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil || o.runs < 1 || o.time <= 0 || flags.NArg() > 0 {
		return fmt.Errorf("-only takes a regular expression, -runs and -time take positive values, and there are no arguments: %w", err)
	}
	idle := make(map[string]result)
	for _, of := range []string{bowline, control} {
		if idle[of], err = o.measure(ctx, of, "", shape{}); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s idle: p50 %v, p99 %v\n", of, idle[of].p50, idle[of].p99)
	}
	fmt.Fprintln(out, "\n| Attack | Attackers | p50 | p99 | × idle | worst p99 | failed | heap | RSS | control p99 | failed |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
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
			fmt.Fprintf(out, "| %s | %s | %v | %v | %.1f | %v | %d | %d MiB | %d MiB | %v | %d |\n", kind.name, s.name, got.p50, got.p99,
				float64(got.p99)/float64(idle[bowline].p99), got.worst, got.failed, got.heap>>20, got.rss>>20, than.p99, than.failed)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d calls of the good client failed", failed)
	}
	return nil
}
