package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

type childrenOptions struct {
	children int           // how many children there are
	duration time.Duration // the duration of the calls and kills
	callers  int           // how many callers each child has
	kills    float64       // how many kills per second
	pause    time.Duration // the average pause of a caller between calls
}

// A soak calls and kills many child processes under one supervisor.
type soak struct {
	options    childrenOptions
	out        io.Writer
	seed       uint64
	mark       string // what all processes of this run have in their environment
	executed   string // the file in which children write what they execute
	goroutines int    // the number of goroutines before the first child
	files      int    // the number of open files before the first child
	ledger     ledger.Ledger
	calls      calls
	supervisor *supervisor.Supervisor
	client     *client.Client
	children   []*child
	collection collection
	kills      int // how many kills have hit a process

	mu      sync.Mutex
	outages []time.Duration // the times from a loss until ready again
}

// runChildren runs the soak. At the end it always drains what was started and
// checks the counts.
func runChildren(ctx context.Context, out io.Writer, seed uint64, o childrenOptions) error {
	if o.children < 1 || o.callers < 1 || o.kills <= 0 || o.pause <= 0 || o.duration <= 0 {
		return errors.New("-children, -callers, -kills, -pause and -duration must be above zero")
	}
	folder, err := os.MkdirTemp("", "fleet-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	s, err := newSoak(out, seed, o, filepath.Join(folder, "executed"))
	if err != nil {
		return err
	}
	began := time.Now()
	s.print("%s child processes under one supervisor (seed %d)", count(o.children), seed)
	err = s.phases(ctx)
	err = errors.Join(err, s.drainAll(ctx), s.checkResults())
	s.print("\n%v in all", round(time.Since(began)))
	return err
}

func newSoak(out io.Writer, seed uint64, o childrenOptions, executed string) (*soak, error) {
	files, err := openFiles()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &soak{
		options: o, out: out, seed: seed, executed: executed,
		mark:       strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36),
		goroutines: runtime.NumGoroutine(), files: files,
		supervisor: supervisor.New(supervisor.Options{Name: "soak"}),
	}
	s.client = client.New(protocol.Implementation{Name: "fleet", Version: "1"}, client.Options{
		Supervisor: s.supervisor,
		Conn: conn.Options{
			BackoffMin: 100 * time.Millisecond, BackoffMax: 2 * time.Second, ProvenAfter: time.Second,
			InitTimeout: longTimeout, RequestTimeout: longTimeout, Liveness: longTimeout, // only kills end a process
			Hooks: telemetry.Tee(s.ledger.Hooks(isFleetCall), telemetry.Hooks{Gap: s.onGap}),
			Log:   slog.New(slog.DiscardHandler), // children are killed all the time
		},
	})
	s.collection = collection{samples: s.supervisor.Samples, made: s.made, reported: s.calls.reported, before: map[string]*telemetry.ConnSample{}}
	environment := []string{markVariable + "=" + s.mark, executedVariable + "=" + executed, "GORACE=atexit_sleep_ms=0"}
	for range o.children {
		c := new(child)
		c.command = stdio.Command{Path: self, Env: environment, Started: c.started}
		s.children = append(s.children, c)
	}
	return s, nil
}

func (s *soak) phases(ctx context.Context) error {
	for _, phase := range []func(context.Context) error{s.start, s.callAndKill, s.callEach} {
		if err := phase(ctx); err != nil {
			return err
		}
	}
	return nil
}

// starting is how many processes are started at once.
const starting = 8

func (s *soak) start(ctx context.Context) error {
	s.print("\n1. start, %d at a time", starting)
	began := time.Now()
	failed, example := each(s.children, starting, func(c *child) (err error) {
		c.session, err = s.client.Connect(ctx, &c.command)
		return err
	})
	if failed > 0 {
		return fmt.Errorf("start: %d of %d children were not ready, for instance: %w", failed, len(s.children), example)
	}
	s.print("   all ready in %s", rate(len(s.children), time.Since(began)))
	found, err := processes(s.mark)
	if err == nil && found.marked != len(s.children) {
		err = fmt.Errorf("start: %d processes of this run were found, and not %d", found.marked, len(s.children))
	}
	return err
}

// callAndKill calls all children and kills random ones until the time is over
// and all are ready again.
func (s *soak) callAndKill(ctx context.Context) error {
	s.print("\n2. %d callers of each, and %g of them killed a second, for %v", s.options.callers, s.options.kills, s.options.duration)
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for i, c := range s.children {
		for n := range s.options.callers {
			random := rand.New(rand.NewPCG(s.seed, uint64(i*s.options.callers+n+1)))
			callers.Go(func() { s.callUntil(ctx, stop, c, random) })
		}
	}
	watching, stopWatching := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { s.collection.run(watching) })
	err := s.killUntil(ctx, time.Now().Add(s.options.duration))
	failed, example := each(s.children, len(s.children), func(c *child) error { return c.awaitBack(ctx) })
	close(stop)
	callers.Wait()
	stopWatching()
	watcher.Wait()
	s.collection.collect()
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf("soak: %d children did not become ready again, for instance: %w", failed, example))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.print("   the connections were sampled %s times, to compare their counts with the outcomes of the callers", count(s.collection.count))
	s.print("   time from the loss until ready again: %s", milestones(s.outages))
	s.print("%s", histogram(s.outages))
	return errors.Join(err, s.collection.violation)
}

// callEach makes a last call of every child.
func (s *soak) callEach(ctx context.Context) error {
	s.print("\n3. one call each")
	failed, example := each(s.children, starting, func(c *child) error { return s.call(ctx, c.session, recording{}) })
	if failed > 0 {
		return fmt.Errorf("call: %d of %d calls were not answered, for instance: %w", failed, len(s.children), example)
	}
	s.print("   all answered")
	return nil
}

// drainAll closes every session and the supervisor.
func (s *soak) drainAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainDeadline)
	defer cancel()
	s.print("\n4. drain within %v", drainDeadline)
	began := time.Now()
	err := drain(ctx, s.supervisor, s.sessions())
	s.print("   drained in %v", round(time.Since(began)))
	return err
}

// sessions are those of all children, unless the start has failed.
func (s *soak) sessions() (sessions []*client.Session) {
	for _, c := range s.children {
		if c.session != nil {
			sessions = append(sessions, c.session)
		}
	}
	return sessions
}

// made returns how many calls all sessions have made.
func (s *soak) made() (calls uint64) {
	for _, stats := range statsOf(s.sessions()) {
		calls += stats.Calls
	}
	return calls
}

func (s *soak) onGap(gap telemetry.Gap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outages = append(s.outages, gap.Duration)
}

func (s *soak) print(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

// checkResults checks the counts, compares them with the children's file, and
// checks that no resource is left.
func (s *soak) checkResults() error {
	s.print("\n5. results")
	s.print("%s", outcomeTables(&s.ledger))
	return errors.Join(s.ledger.Balance(statsOf(s.sessions())...), s.compareWithExecuted(), s.countStarts(), s.checkLeaks())
}

func (s *soak) compareWithExecuted() error {
	executed, err := readExecuted(s.executed)
	if err != nil {
		return err
	}
	different, err := s.calls.audit(executed)
	s.print("   %s calls were executed, as the children have written", count(different))
	return err
}

// countStarts checks that each process that was killed was replaced, and no
// other.
func (s *soak) countStarts() error {
	starts, wrong := 0, []error(nil)
	for _, c := range s.children {
		n, err := c.close()
		starts, wrong = starts+n, append(wrong, err)
	}
	s.print("   processes: %s started, %s of them killed", count(starts), count(s.kills))
	if starts != len(s.children)+s.kills {
		wrong = append(wrong, fmt.Errorf("%d children and %d kills, but %d processes were started", len(s.children), s.kills, starts))
	}
	return errors.Join(wrong...)
}

// checkLeaks checks that processes have ended, and that goroutines and files
// are as before.
func (s *soak) checkLeaks() error {
	var wrong []error
	if leaked := ledger.SettledGoroutines(s.goroutines) - s.goroutines; leaked > 0 {
		wrong = append(wrong, fmt.Errorf("%d goroutines are left", leaked))
	}
	left, err := processes(s.mark)
	files, failed := openFiles()
	s.print("   left over: %d processes, %d zombies, %d descriptors more than before", left.marked, left.zombies, files-s.files)
	if left != (found{}) {
		wrong = append(wrong, fmt.Errorf("%d processes and %d zombies are left", left.marked, left.zombies))
	}
	if files > s.files {
		wrong = append(wrong, fmt.Errorf("%d descriptors are left", files-s.files))
	}
	return errors.Join(append(wrong, err, failed)...)
}

// progressEvery is how often the soak prints its progress.
const progressEvery = 10 * time.Second

// killUntil kills random children at random times until the end. A kill that
// comes late does not put off those after it.
func (s *soak) killUntil(ctx context.Context, end time.Time) error {
	random := rand.New(rand.NewPCG(s.seed, 0))
	nextProgress := time.Now().Add(progressEvery)
	for at := time.Now(); ; {
		at = at.Add(time.Duration(random.ExpFloat64() / s.options.kills * float64(time.Second)))
		if at.After(end) {
			break
		}
		if err := wait.Sleep(ctx, time.Until(at)); err != nil {
			return err
		}
		if s.children[random.IntN(len(s.children))].kill() {
			s.kills++
		}
		if time.Now().After(nextProgress) {
			s.printProgress()
			nextProgress = nextProgress.Add(progressEvery)
		}
	}
	err := wait.Sleep(ctx, time.Until(end))
	s.printProgress()
	return err
}

// printProgress prints the progress.
func (s *soak) printProgress() {
	s.print("   %s calls, %s children killed", count(int(s.calls.numbers.Load())), count(s.kills))
}
