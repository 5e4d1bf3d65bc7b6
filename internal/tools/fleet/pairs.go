package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/fleet"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/protocol"
)

type pairsOptions struct {
	pairs    int           // how many pairs there are
	starting int           // how many of them connect at the same time
	killed   float64       // how many links are cut, in percent
	lost     int           // how many lose their server at once
	backoff  time.Duration // the delay before the first attempt after a loss
	profile  int           // how many bytes lie between two sampled allocations; 0: no profile
}

// longTimeout is a timeout that is long enough on a machine that runs ten
// thousand other calls, so that a slow machine fails no call.
const longTimeout = 2 * time.Minute

// Pairs are many sessions of one client with one server.
type pairs struct {
	*fleet.Fleet[*pair]
	printer
	options pairsOptions
	random  *rand.Rand
	before  memory // the memory of the process without pairs
	ledger  ledger.Ledger
	tools   *tools
	server  *server.Server
	client  *client.Client
	killed  []*pair // the pairs of the kill phase
}

// newPairs measures the memory first: what is there before the first pair is nobody's.
func newPairs(out io.Writer, seed uint64, o pairsOptions) *pairs {
	f := &pairs{
		Fleet: fleet.New[*pair]("fleet"), printer: printer{out},
		options: o, random: rand.New(rand.NewPCG(seed, 0)),
		before: measureMemory(), tools: newTools(),
	}
	f.server = f.tools.server()
	f.client = client.New(protocol.Implementation{Name: "fleet", Version: "1"}, client.Options{
		Supervisor: f.Supervisor,
		Conn: conn.Tuning{
			BackoffMin: o.backoff, RequestTimeout: longTimeout, InitTimeout: longTimeout,
			Hooks: f.ledger.Hooks(fleet.HasCaller),
			Log:   slog.New(slog.DiscardHandler), // links are cut all the time
		},
	})
	for range o.pairs {
		f.Members = append(f.Members, &pair{of: f})
	}
	return f
}

// runPairs runs the phases until one fails. At the end it always drains what
// was started and checks the counts.
func runPairs(ctx context.Context, out io.Writer, seed uint64, o pairsOptions) error {
	if o.pairs < 10 || o.starting < 1 || o.lost < 1 || o.killed <= 0 || o.killed > 50 {
		return errors.New("at least ten -pairs, one -starting and one -lost, and -killed up to 50")
	}
	f := newPairs(out, seed, o)
	began := time.Now()
	f.print("%s pairs of a client session and a server's, under one supervisor (seed %d)", count(o.pairs), seed)
	err := phases(ctx, f.start, f.callEach, f.idle, f.kill, f.loseServer)
	err = errors.Join(err, f.drainAll(ctx), f.checkResults())
	f.print("\n%v in all; at most %s MB from the operating system", round(time.Since(began)), count(int(measureMemory().system>>20)))
	return err
}

// start connects all pairs, a few at a time, because Connect returns only when
// the session is ready.
func (f *pairs) start(ctx context.Context) error {
	f.print("\n1. start, %d at a time", f.options.starting)
	began := time.Now()
	err := fleet.Each(f.Members, f.options.starting, "sessions were not ready", func(p *pair) error { return p.connect(ctx) })
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	f.print("   all ready in %s", rate(len(f.Members), time.Since(began)))
	return nil
}

// callEach makes one call in every session.
func (f *pairs) callEach(ctx context.Context) error {
	f.print("\n2. one call each, %d at a time", f.options.starting)
	began := time.Now()
	err := fleet.Each(f.Members, f.options.starting, "calls were not answered", func(p *pair) error { return p.call(ctx, countTool) })
	if err != nil {
		return fmt.Errorf("call: %w", err)
	}
	f.print("   all answered in %s", rate(len(f.Members), time.Since(began)))
	return nil
}

// These targets are printed for comparison.
const (
	targetBytes      = 12 << 10
	targetGoroutines = 2
)

// idle measures the memory of the pairs while all are idle. Then neither a session
// nor its server has a goroutine.
func (f *pairs) idle(context.Context) error {
	f.print("\n3. idle, after a garbage collection")
	ledger.SettledGoroutines(f.before.goroutines)
	now := measureMemory()
	per := func(now, before uint64) float64 { return (float64(now) - float64(before)) / float64(len(f.Members)) }
	heap, stacks := per(now.heap, f.before.heap), per(now.stacks, f.before.stacks)
	f.print("   %6.2f kB a pair on the heap", heap/1024)
	f.print("   %6.2f kB a pair of stacks", stacks/1024)
	f.print("   %6.2f kB a pair together; the target is %d kB", (heap+stacks)/1024, targetBytes>>10)
	f.print("   %6.2f kB a pair held by the runtime, including what it keeps until it collects garbage", per(now.held, f.before.held)/1024)
	if now.resident > 0 {
		f.print("   %6.2f kB a pair of resident memory", per(now.resident, f.before.resident)/1024)
	}
	f.print("   %6.2f goroutines a pair; the target is %d", per(uint64(now.goroutines), uint64(f.before.goroutines)), targetGoroutines)
	f.printProfile()
	return nil
}

// printProfile prints which packages and functions have allocated the heap.
func (f *pairs) printProfile() {
	if f.options.profile <= 0 {
		return
	}
	f.print("   the heap by package and function, sampled every %d bytes, in kB a pair:", f.options.profile)
	for _, pkg := range profile() {
		if f.kilobytes(pkg) < 0.05 {
			return
		}
		var most []string
		for _, function := range pkg.parts[:min(4, len(pkg.parts))] {
			most = append(most, fmt.Sprintf("%s %.2f", function.name, f.kilobytes(function)))
		}
		f.print("   %6.2f  %-26s %s", f.kilobytes(pkg), pkg.name, strings.Join(most, ", "))
	}
}

// kilobytes returns the size of a share for each pair.
func (f *pairs) kilobytes(s share) float64 { return s.bytes / float64(len(f.Members)) / 1024 }

const (
	drainDeadline = 30 * time.Second

	// inFlight is how long the calls are held after the drain has begun.
	inFlight = 200 * time.Millisecond
)

// drainAll drains while every session has a call in flight. All these calls must
// be answered.
func (f *pairs) drainAll(ctx context.Context) error {
	f.print("\n6. drain within %v, with a call in flight in every session", drainDeadline)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainDeadline)
	defer cancel()
	held, failure := f.holdCalls(ctx, f.ready())
	release := time.AfterFunc(inFlight, func() { close(f.tools.released) })
	defer release.Stop()
	began := time.Now()
	err := errors.Join(f.Drain(ctx), f.server.Close(ctx))
	took := time.Since(began)
	answered, calls := 0, held.outcomes()
	for _, how := range calls {
		if how == nil {
			answered++
		}
	}
	f.print("   drained in %v, of which the calls were held for %v: %s of %s were answered",
		round(took), inFlight, count(answered), count(len(calls)))
	if answered != len(calls) {
		err = errors.Join(err, fmt.Errorf("drain: %d calls were in flight, and %d were answered", len(calls), answered))
	}
	return errors.Join(failure, err)
}

// ready are the pairs that can be called: all of them, unless a phase has failed.
func (f *pairs) ready() []*pair {
	return slices.DeleteFunc(slices.Clone(f.Members), func(p *pair) bool {
		return p.Session == nil || p.Session.Conn().State() != conn.Ready
	})
}

// heldCalls are calls in flight.
type heldCalls struct {
	callers sync.WaitGroup
	ended   []error // the result of each call; each caller writes its own
}

// holdCalls makes a call in each of the pairs, and returns once the server holds
// all of them.
func (f *pairs) holdCalls(ctx context.Context, pairs []*pair) (*heldCalls, error) {
	h := &heldCalls{ended: make([]error, len(pairs))}
	for i, p := range pairs {
		h.callers.Go(func() { h.ended[i] = p.call(context.WithoutCancel(ctx), holdTool) })
	}
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for f.tools.holding.Load() < int64(len(pairs)) {
		select {
		case <-look.C:
		case <-ctx.Done():
			return h, fmt.Errorf("%d of %d calls are in flight: %w", f.tools.holding.Load(), len(pairs), context.Cause(ctx))
		}
	}
	return h, nil
}

// outcomes waits until all calls have ended, and returns their errors.
func (h *heldCalls) outcomes() []error {
	h.callers.Wait()
	return h.ended
}

// checkResults checks the counts, and that no goroutine is left.
func (f *pairs) checkResults() error {
	f.print("\n7. results")
	f.print("%s", outcomeTables(&f.ledger))
	executed, abandoned := f.tools.executed.Load(), f.tools.abandoned.Load()
	f.print("   %s executed by the server, of which %s for callers that were gone", count(int(executed)), count(int(abandoned)))
	wrong := []error{f.ledger.Balance(f.Stats()...)}
	if answered := int64(f.ledger.Reported()[ledger.Answered()]); executed-abandoned != answered {
		wrong = append(wrong, fmt.Errorf("%d calls were executed, %d of them were cancelled, and %d were answered", executed, abandoned, answered))
	}
	goroutines, err := f.Leaked()
	f.print("   goroutines: %d before, %d after", f.Goroutines, goroutines)
	return errors.Join(append(wrong, err)...)
}

// outcomeTables returns a table of how calls and handshakes ended.
func outcomeTables(l *ledger.Ledger) string {
	return fmt.Sprintf("%v\nof handshakes:\n%v", l.Reported(), l.Handshakes())
}
