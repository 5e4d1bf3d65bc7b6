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
	"strconv"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/fleet"
	"github.com/bowline-mcp/bowline/internal/ledger"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/marks"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
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
	*fleet.Fleet[*child]
	printer
	options    childrenOptions
	seed       uint64
	mark       string // what all processes of this run have in their environment
	executed   string // the file in which children write what they execute
	files      int    // the number of open files before the first child
	ledger     ledger.Ledger
	calls      calls
	client     *client.Client
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
	err = phases(ctx, s.start, s.callAndKill, s.callEach)
	err = errors.Join(err, s.drainAll(ctx), s.checkResults())
	s.print("\n%v in all", round(time.Since(began)))
	return err
}

// newSoak counts files and goroutines before there is a child. Timeouts are long, so that only kills end a
// process or a call: a slow machine changes no outcome.
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
		Fleet: fleet.New[*child]("soak"), printer: printer{out},
		options: o, seed: seed, executed: executed, files: files,
		mark: strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36),
	}
	s.client = client.New(protocol.Implementation{Name: "fleet", Version: "1"}, client.Options{
		Supervisor: s.Supervisor,
		Conn: conn.Tuning{
			BackoffMin: 100 * time.Millisecond, BackoffMax: 2 * time.Second, ProvenAfter: time.Second,
			InitTimeout: longTimeout, RequestTimeout: longTimeout, Liveness: longTimeout, // only kills end a process
			Hooks: telemetry.Tee(s.ledger.Hooks(fleet.HasCaller), telemetry.Hooks{Gap: s.onGap}),
			Log:   slog.New(slog.DiscardHandler), // children are killed all the time
		},
	})
	s.collection = collection{samples: s.Supervisor.Samples, made: s.made, reported: s.calls.reported, before: map[string]*telemetry.ConnSample{}}
	environment := []string{markVariable + "=" + s.mark, executedVariable + "=" + executed, "GORACE=atexit_sleep_ms=0"}
	for range o.children {
		c := new(child)
		c.command = stdio.Command{Path: self, Env: environment, Started: c.Started}
		s.Members = append(s.Members, c)
	}
	return s, nil
}

// starting is how many processes are started at once.
const starting = 8

func (s *soak) start(ctx context.Context) error {
	s.print("\n1. start, %d at a time", starting)
	began := time.Now()
	err := fleet.Each(s.Members, starting, "children were not ready", func(c *child) (err error) {
		c.Session, err = s.client.Connect(ctx, &c.command)
		return err
	})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	s.print("   all ready in %s", rate(len(s.Members), time.Since(began)))
	found, err := processes(s.mark)
	if err == nil && found.marked != len(s.Members) {
		err = fmt.Errorf("start: %d processes of this run were found, and not %d", found.marked, len(s.Members))
	}
	return err
}

// callAndKill calls all children and kills random ones until the time is over
// and all are ready again.
func (s *soak) callAndKill(ctx context.Context) error {
	s.print("\n2. %d callers of each, and %g of them killed a second, for %v", s.options.callers, s.options.kills, s.options.duration)
	load := s.startCallers(ctx)
	watching, stopWatching := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { s.collection.run(watching) })
	err := s.killUntilEnd(ctx)
	back := fleet.Each(s.Members, len(s.Members), "children did not become ready again", func(c *child) error {
		_, err := c.AwaitBack(ctx, c.back)
		return err
	})
	load.End()
	stopWatching()
	watcher.Wait()
	s.collection.collect()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.print("   the connections were sampled %s times, to compare their counts with the outcomes of the callers", count(s.collection.count))
	s.print("   time from the loss until ready again: %s", milestones(s.outages))
	s.print("%s", histogram(s.outages))
	return errors.Join(err, back, s.collection.violation)
}

// callEach makes a last call of every child.
func (s *soak) callEach(ctx context.Context) error {
	s.print("\n3. one call each")
	err := fleet.Each(s.Members, starting, "calls were not answered", func(c *child) error { return s.call(ctx, c.Session, marks.Arguments{}) })
	if err != nil {
		return fmt.Errorf("call: %w", err)
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
	err := s.Drain(ctx)
	s.print("   drained in %v", round(time.Since(began)))
	return err
}

// made returns how many calls all sessions have made.
func (s *soak) made() (calls uint64) {
	for _, stats := range s.Stats() {
		calls += stats.Calls
	}
	return calls
}

// onGap is a telemetry hook, called on the goroutine of a connection.
func (s *soak) onGap(gap telemetry.Gap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outages = append(s.outages, gap.Duration)
}

// checkResults checks the counts, compares them with the children's file, and
// checks that no resource is left.
func (s *soak) checkResults() error {
	s.print("\n5. results")
	s.print("%s", outcomeTables(&s.ledger))
	return errors.Join(s.ledger.Balance(s.Stats()...), s.compareWithExecuted(), s.countStarts(), s.checkLeaks())
}

// compareWithExecuted is the one check that believes neither client nor server: the file is written by
// processes that were killed at any moment.
func (s *soak) compareWithExecuted() error {
	executed, err := marks.Read(s.executed)
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
	for _, c := range s.Members {
		n, err := c.Process.Close()
		starts, wrong = starts+n, append(wrong, err)
	}
	s.print("   processes: %s started, %s of them killed", count(starts), count(s.kills))
	if starts != len(s.Members)+s.kills {
		wrong = append(wrong, fmt.Errorf("%d children and %d kills, but %d processes were started", len(s.Members), s.kills, starts))
	}
	return errors.Join(wrong...)
}

// checkLeaks checks that processes have ended, and that goroutines and files
// are as before.
func (s *soak) checkLeaks() error {
	_, leaked := s.Leaked()
	wrong := []error{leaked}
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

// killUntilEnd kills random children at random times, until the time is over.
func (s *soak) killUntilEnd(ctx context.Context) error {
	end := time.Now().Add(s.options.duration)
	nextProgress := time.Now().Add(progressEvery)
	err := fleet.Strike(ctx, s.plan, func(c *child) error {
		if c.Kill() {
			s.kills++
		}
		if time.Now().After(nextProgress) {
			s.printProgress()
			nextProgress = nextProgress.Add(progressEvery)
		}
		return nil
	})
	if err == nil {
		err = wait.Sleep(ctx, time.Until(end))
	}
	s.printProgress()
	return err
}

// plan yields when children are killed, and which. It is drawn from the seed.
func (s *soak) plan(yield func(time.Duration, *child) bool) {
	random := rand.New(rand.NewPCG(s.seed, 0))
	for at := time.Duration(0); ; {
		at += time.Duration(random.ExpFloat64() / s.options.kills * float64(time.Second))
		if at > s.options.duration || !yield(at, s.Members[random.IntN(len(s.Members))]) {
			return
		}
	}
}

// printProgress prints the progress.
func (s *soak) printProgress() {
	s.print("   %s calls, %s children killed", count(int(s.calls.numbers.Load())), count(s.kills))
}
