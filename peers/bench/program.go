package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Main is the command bench.
func Main(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) == 3 && args[0] == "serve" { // see serverCommand
		return serve(ctx, args[1], args[2])
	}
	var p program
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.IntVar(&p.rounds, "rounds", 0, "how often each contestant is measured; 0: 5, or once with -quick")
	only := flags.String("rows", "", "the rows to measure, as a regular expression; others keep what results.json says of them")
	flags.StringVar(&p.page, "write", "", "the page to write; results.json and the plots go into a folder of its name beside it")
	flags.BoolVar(&p.quick, "quick", false, "less of everything: to see that it works")
	render := flags.Bool("render", false, "measure nothing, and write the page anew from its results.json")
	measured := flags.String("measure", "", "measure this row alone, of one contestant, once; what a run starts for itself")
	contestant := flags.String("contestant", "", "the contestant to measure")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *measured != "" {
		return measure(out, *measured, *contestant, p.quick)
	}
	matching, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	for _, w := range rows() {
		if matching.MatchString(w.name) {
			p.rows = append(p.rows, w)
		}
	}
	switch {
	case *render && p.page == "":
		return errors.New("-render needs the page: -write")
	case *render:
		r, err := load(p.results())
		if err != nil {
			return err
		}
		return write(r, p.page)
	case len(p.rows) == 0:
		return fmt.Errorf("no row has a name like %q", *only)
	}
	if p.rounds == 0 {
		p.rounds = 5
		if p.quick {
			p.rounds = 1
		}
	}
	p.progress, p.command = progress, "go run ./cmd/bench "+strings.Join(args, " ")
	r, err := p.run(ctx)
	if r != nil {
		fmt.Fprint(out, tables(r, p.rows))
	}
	return err
}

// A program is one run of the command.
type program struct {
	rows     []row
	rounds   int
	quick    bool
	page     string // empty: none is written
	command  string
	progress io.Writer

	took map[string]time.Duration // what a contestant took in a row, the last time
}

func (p *program) results() string { return filepath.Join(folderOf(p.page), "results.json") }

// folderOf is where a page keeps its results and plots.
func folderOf(page string) string { return strings.TrimSuffix(page, filepath.Ext(page)) }

// run measures round by round: in each, every row, and in each row the
// contestants one after the other. A busy machine is busy for all of them, and a
// run that is cut short has whole rounds.
func (p *program) run(ctx context.Context) (*Results, error) {
	r, err := p.begin()
	if err != nil {
		return nil, err
	}
	p.took = make(map[string]time.Duration)
	started := time.Now()
	for round := range p.rounds {
		for _, w := range p.rows {
			if w.measure == nil || w.rounds > 0 && round >= w.rounds {
				continue
			}
			for _, contestant := range w.contestants {
				if err := p.measure(ctx, r, w, contestant, round); err != nil {
					return nil, err
				}
			}
		}
		r.Took = time.Since(started).Round(time.Second).String()
		if p.page != "" {
			if err := write(r, p.page); err != nil {
				return r, err
			}
		}
	}
	failed := slices.DeleteFunc(slices.Clone(r.Failures), func(f Failure) bool { return f.Absent })
	if len(failed) > 0 {
		return r, fmt.Errorf("%d of the measurements failed: see the notes of the tables", len(failed))
	}
	return r, nil
}

// begin is a fresh set of results. A run of some rows leaves the others as they
// were, if the page has some.
func (p *program) begin() (*Results, error) {
	r := describe(p.command, p.quick)
	if p.page == "" || len(p.rows) == len(rows()) {
		return r, nil
	}
	before, err := load(p.results())
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	r.Earlier = before.Earlier
	if before.Command != r.Command { // else each row of that run is measured again
		r.Earlier = fmt.Sprintf("%s, commit %s, with `%s`", before.Taken.Format(dateFormat), before.Commit, before.Command)
		if before.Earlier != "" { // that run, too, has measured only some rows
			r.Earlier += "; those that it left out: " + before.Earlier
		}
	}
	measuredNow := func(name string) bool {
		for _, w := range p.rows {
			if w.name == name {
				return true
			}
		}
		return false
	}
	for _, s := range before.Series {
		if !measuredNow(s.Row) {
			r.Series = append(r.Series, s)
		}
	}
	for _, f := range before.Failures {
		if !measuredNow(f.Row) {
			r.Failures = append(r.Failures, f)
		}
	}
	return r, nil
}

// measure starts a process for one contestant in one row, and tries again once. A
// contestant that fails is marked in the tables, and not measured any more.
func (p *program) measure(ctx context.Context, r *Results, w row, contestant string, round int) error {
	if _, failed := r.failure(w.name, contestant); failed {
		return nil
	}
	c, err := contestantNamed(contestant)
	if err != nil {
		return err
	}
	if why := c.missing(); why != "" {
		r.Failures = append(r.Failures, Failure{Row: w.name, Contestant: contestant, Why: why, Absent: true})
		return nil
	}
	fmt.Fprintf(p.progress, "round %d of %d: %s, %s%s\n", round+1, p.rounds, w.name, contestant, p.remaining(w, contestant, round))
	started := time.Now()
	samples, err := p.process(ctx, w, contestant)
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(p.progress, "failed, and is tried again: %v\n", err)
		samples, err = p.process(ctx, w, contestant)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.took[w.name+contestant] = time.Since(started)
	if err != nil {
		fmt.Fprintf(p.progress, "failed: %v\n", err)
		r.fail(w.name, contestant, err)
		return nil
	}
	r.add(w.name, contestant, samples)
	return nil
}

// remaining is how long the run has to go, as far as the first round has shown.
func (p *program) remaining(now row, contestant string, round int) string {
	if round == 0 {
		return ""
	}
	var left time.Duration
	for i := round; i < p.rounds; i++ {
		passed := i > round
		for _, w := range p.rows {
			for _, c := range w.contestants {
				passed = passed || w.name == now.name && c == contestant
				if passed && w.measure != nil && (w.rounds == 0 || i < w.rounds) {
					left += p.took[w.name+c]
				}
			}
		}
	}
	return fmt.Sprintf(" (%v to go)", left.Round(time.Second))
}

// hangGuard ends a measurement that hangs.
const hangGuard = 2 * time.Minute

func (p *program) process(ctx context.Context, w row, contestant string) ([]sample, error) {
	ctx, cancel := context.WithTimeout(ctx, hangGuard)
	defer cancel()
	if w.awake {
		sleep, err := keepAwake()
		defer sleep()
		if err != nil {
			return nil, err
		}
	}
	ourselves, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"-measure", w.name, "-contestant", contestant}
	if p.quick {
		args = append(args, "-quick")
	}
	child := exec.CommandContext(ctx, ourselves, args...)
	child.WaitDelay = time.Second // a server that was left behind may hold the pipes
	var output, complained bytes.Buffer
	child.Stdout, child.Stderr = &output, &complained
	if err := child.Run(); err != nil {
		err = errors.Join(err, context.Cause(ctx))
		return nil, fmt.Errorf("%w: %s", err, cmp.Or(lastLine(complained.String()), "it says nothing"))
	}
	var samples []sample
	if err := json.Unmarshal(output.Bytes(), &samples); err != nil {
		return nil, fmt.Errorf("what it printed: %w", err)
	}
	return samples, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// measure runs in its own process, and prints its results.
func measure(out io.Writer, rowName, contestantName string, quick bool) error {
	row, err := rowNamed(rowName)
	if err != nil {
		return err
	}
	c, err := contestantNamed(contestantName)
	if err != nil {
		return err
	}
	m := &measurement{contestant: c, quick: quick}
	if err := errors.Join(row.measure(context.Background(), m), m.close()); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(m.samples)
}

// serve is what serverCommand runs.
func serve(ctx context.Context, wire, contestantName string) error {
	switch wire {
	case "mute":
		return serveSilent(os.Stdin, os.Stdout)
	case "awake":
		return stayAwake(contestantName, os.Stdin, os.Stdout)
	}
	c, err := contestantNamed(contestantName)
	if err != nil {
		return err
	}
	if wire == "stdio" {
		return c.serveStdio(ctx)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		ended <- err
	}()
	go func() {
		if c.serveHTTP != nil {
			ended <- c.serveHTTP(listener)
			return
		}
		ended <- http.Serve(listener, c.handler(c.revision))
	}()
	return <-ended
}
