//go:build unix

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/wait"
)

// A result says how the good client was served.
type result struct {
	p50, p99, worst time.Duration // the median of the runs, and the worst p99
	failed          int
	heap, rss       int // the largest of the runs, in bytes
	attacks         counts
}

// Counts say how often something happened to the attackers in a second.
type counts struct{ done, refused, failed float64 }

func (c counts) String() string {
	return fmt.Sprintf("%.0f, %.0f, %.0f", c.done, c.refused, c.failed)
}

// measure measures the good client during an attack, or without one.
func (o *options) measure(ctx context.Context, of, name string, s shape) (all result, err error) {
	p50s, p99s := make([]time.Duration, o.runs), make([]time.Duration, o.runs)
	for i := range o.runs {
		one, err := o.run(ctx, of, name, s)
		if err != nil {
			return all, fmt.Errorf("%s under %q, %s: %w", of, name, s.name, err)
		}
		p50s[i], p99s[i] = one.p50, one.p99
		all.failed, all.heap, all.rss = all.failed+one.failed, max(all.heap, one.heap), max(all.rss, one.rss)
		runs := float64(o.runs)
		all.attacks.done += one.attacks.done / runs
		all.attacks.refused += one.attacks.refused / runs
		all.attacks.failed += one.attacks.failed / runs
	}
	slices.Sort(p50s)
	slices.Sort(p99s)
	all.p50, all.p99, all.worst = p50s[o.runs/2], p99s[o.runs/2], p99s[o.runs-1]
	return all, nil
}

func (o *options) run(ctx context.Context, of, name string, s shape) (one result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	host, end, err := child(ctx, serves, of)
	if err != nil {
		return one, err
	}
	defer func() {
		_, ended := end()
		err = errors.Join(err, ended)
	}()
	good := newConnection(host, "127.0.0.1")
	good.most = 1
	defer good.close()
	for range 100 { // warm-up
		if err := good.echo(ctx, small); err != nil {
			return one, fmt.Errorf("before the attack: %w", err)
		}
	}
	var k kind
	if name != "" {
		if k, err = kindOf(name); err != nil {
			return one, err
		}
	}
	attackers := make([]func() (string, error), s.addresses)
	for n := range s.addresses {
		_, attackers[n], err = child(ctx, attacks, name, host, fmt.Sprintf("127.0.1.%d", n+1), fmt.Sprint(s.connections, s.connections*s.addresses))
		if err != nil {
			return one, err
		}
	}
	if name != "" {
		if err := wait.Sleep(ctx, time.Second); err != nil { // until the attack has begun
			return one, err
		}
	}
	var took []time.Duration
	for begun := time.Now(); time.Since(begun) < o.time; {
		at := time.Now()
		size := small
		if len(took)%10 == 9 {
			size = medium
		}
		err := good.echo(ctx, size)
		took = append(took, time.Since(at))
		if err == nil && size == medium && k.also != nil && of == bowline {
			err = k.also(ctx, good)
		}
		if err != nil {
			one.failed++
			fmt.Fprintf(os.Stderr, "%s under %q, %s: the good client: %v\n", of, name, s.name, err)
		}
		if err := wait.Sleep(ctx, 2*time.Millisecond); err != nil {
			return one, err
		}
	}
	slices.Sort(took)
	one.p50, one.p99 = took[len(took)/2].Round(10*time.Microsecond), took[len(took)*99/100].Round(10*time.Microsecond)
	response, err := http.Get("http://" + host + "/memory")
	if err != nil {
		return one, err
	}
	defer response.Body.Close()
	if _, err = fmt.Fscan(response.Body, &one.heap, &one.rss); err != nil {
		return one, err
	}
	for _, end := range attackers {
		printed, err := end()
		if err != nil {
			return one, fmt.Errorf("an attacker: %w", err)
		}
		var c counts
		var seconds float64
		if _, err := fmt.Sscan(printed, &c.done, &c.refused, &c.failed, &seconds); err != nil {
			return one, fmt.Errorf("the counts of an attacker: %w", err)
		}
		one.attacks.done += c.done / seconds
		one.attacks.refused += c.refused / seconds
		one.attacks.failed += c.failed / seconds
	}
	return one, nil
}

// The sizes of what the good client sends and gets: every tenth call is above the size that large ones never delay.
const (
	small  = 64
	medium = 100_000
)

// echo makes one call of the good client, which takes half a minute at most.
func (c *connection) echo(ctx context.Context, size int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return c.call(ctx, "echo", textOf(size))
}

// child starts this program in a role. If that serves, child returns its address. The caller calls end, which
// returns what else the child has printed. The end of ctx kills it.
func child(ctx context.Context, args ...string) (host string, end func() (string, error), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	printed := bufio.NewReader(stdout)
	end = func() (string, error) {
		stdin.Close()
		rest, _ := io.ReadAll(printed)
		return string(rest), cmd.Wait()
	}
	if args[0] != serves {
		return "", end, nil
	}
	line, err := printed.ReadString('\n')
	if err != nil {
		_, ended := end()
		return "", nil, errors.Join(fmt.Errorf("the server did not start: %w", err), ended)
	}
	return strings.TrimSpace(line), end, nil
}
