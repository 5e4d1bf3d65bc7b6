package proptest

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/telemetry"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/fault"
)

var (
	calls = flag.Int("bowline.calls", 0, "proptest: calls of a soak")
	seed  = flag.Uint64("bowline.seed", 0, "proptest: of the first round of a soak")
)

// Soak makes many calls, on many Conns and from many callers at the same time, while all
// faults of package fault happen at random. It compares what the callers were told with
// what the peer has executed:
//
//   - Each call has one outcome. A result belongs to its own call.
//   - A call that was reported as not sent was not executed.
//   - A call that was answered was executed.
//   - A call was passed to the link once. It was executed at most once, plus once for
//     each time that a fault has repeated it. No request is answered more often than it
//     reached the peer.
//   - The counts of each Conn agree with those of its callers, by cause and delivery.
//     They include every answer, malformed frame and notification. At the end nothing is
//     left.
//   - With Options.Asks, each request that the peer makes while it serves a call ends
//     once. An answer belongs to its own request. The Conn serves the request at most
//     once, plus once for each time that a fault has repeated it.
//
// Soak fails if too few calls are answered: fewer than an eighth of those in flight at
// the same time. In real time, when the machine may be slow, it first makes up to six
// more rounds, each with twice the RequestTimeout of the one before. It prints the counts
// at the end.
//
// Calls are made in rounds of 20,000. Each round has a seed for its faults and callers,
// which is printed if the round fails. Pass it as -bowline.seed to repeat the round; the
// order of goroutines may still differ.
//
// The function peer returns a transport whose peer uses the given handler, in this
// process, because the handler records what was executed. Soak calls peer once for each
// Conn. Release resources in clean-ups of the test. In memory:
//
//	func(_ *testing.T, h conn.Handler) transport.Transport {
//		return inmem.New(func(link transport.Link) {
//			go conn.Accept(link, conn.Options{Handler: h}).Run(context.Background())
//		}, inmem.Options{})
//	}
//
// Guarantees: G-0003.1, G-0003.2, G-0005.1
func Soak(t *testing.T, peer func(*testing.T, conn.Handler) transport.Transport, o Options) {
	leaves(t, func(t *testing.T) { o = o.prepare(t, peer(t, EchoHandler())) })
	s := &soak{o: o, peer: peer, next: *seed, books: newBooks(), began: time.Now()}
	if s.next == 0 {
		s.next = rand.Uint64()
	}
	for s.books.made < o.Calls && !t.Failed() {
		s.round(t, min(roundCalls, o.Calls-s.books.made))
	}
	for range patientRounds {
		if o.RealTime && s.triedTooLittle() != "" && !t.Failed() {
			s.o.Conn.RequestTimeout *= 2
			s.round(t, o.atOnce())
		}
	}
	s.books.took = time.Since(s.began)
	t.Logf("\n%v", s.books)
	if why := s.triedTooLittle(); why != "" {
		t.Errorf("%s, so too little was tried", why)
	}
}

// A soak consists of rounds of calls, and their totals.
type soak struct {
	o     Options
	peer  maker
	next  uint64 // the seed of the next round
	books *books
	began time.Time
}

// triedTooLittle says which calls or requests had too few answers, or returns "" if
// there were enough.
func (s *soak) triedTooLittle() string {
	enough := s.o.enough()
	if answered := s.books.answered(); answered < enough {
		return fmt.Sprintf("%d calls were answered, and not %d", answered, enough)
	}
	if asks := s.books.asks; s.o.Asks && asks.answered < int(enough/8) {
		return fmt.Sprintf("%d asks were answered of %d", asks.answered, asks.made)
	}
	return ""
}

func (s *soak) round(t *testing.T, calls int) {
	t.Helper()
	r := &round{o: s.o, seed: s.next, calls: calls, books: s.books}
	leaves(t, func(t *testing.T) {
		if s.o.RealTime {
			r.run(t, s.peer)
		} else {
			synctest.Test(t, func(t *testing.T) { r.run(t, s.peer) })
		}
	})
	s.next++
	t.Logf("%d of %d calls in %v", s.books.made, s.o.Calls, time.Since(s.began).Round(time.Millisecond))
}

// atOnce returns the maximum number of calls in flight.
func (o Options) atOnce() int { return min(o.Calls, roundConns*o.Concurrent) }

// enough returns how many calls must be answered for the test to be meaningful.
func (o Options) enough() uint64 { return uint64(max(o.atOnce()/8, 1)) }

// A maker returns a transport to a peer that uses the given handler.
type maker = func(*testing.T, conn.Handler) transport.Transport

const (
	roundCalls = 20_000
	roundConns = 16

	// patientRounds is how many more rounds are made if the machine is so slow
	// that too few calls were answered in time. In each of them, calls have twice
	// as much time as in the one before.
	patientRounds = 6
)

// A round consists of several Conns, each with its own peer, faults and callers.
type round struct {
	o     Options
	seed  uint64
	calls int
	books *books
}

func (r *round) run(t *testing.T, peer maker) {
	t.Helper()
	var running, calling sync.WaitGroup
	all := make([]*soaked, roundConns)
	for i := range all {
		chance := rand.New(rand.NewPCG(r.seed, uint64(i)))
		s := newSoaked(r.o, chance, func(h conn.Handler) transport.Transport { return peer(t, h) })
		all[i] = s
		running.Go(func() { _ = s.conn.Run(context.Background()) })
		calling.Go(func() { s.work(r.share(i), chance) })
	}
	calling.Wait()
	r.rest()
	for _, s := range all {
		s.atRest = s.conn.Stats()
		s.conn.Stop()
	}
	running.Wait()
	for i, s := range all {
		for _, wrong := range s.audit() {
			t.Errorf("seed %d, Conn %d: %s", r.seed, i, wrong)
		}
		r.books.add(s)
	}
}

// rest waits until all Conns are idle. In real time it cannot know that.
func (r *round) rest() {
	if r.o.RealTime {
		return
	}
	rest := time.NewTimer(r.o.forgotten())
	<-rest.C
	synctest.Wait()
}

// share returns how many of the calls one Conn makes.
func (r *round) share(i int) int {
	share := r.calls / roundConns
	if i < r.calls%roundConns {
		share++
	}
	return share
}

// soaked is one Conn of a round.
type soaked struct {
	o      Options
	record *record
	faults *fault.Transport
	conn   *conn.Conn
	atRest conn.Stats
}

func newSoaked(o Options, chance *rand.Rand, peer func(conn.Handler) transport.Transport) *soaked {
	s := &soaked{o: o, record: newRecord()}
	s.faults = fault.New(watch(peer(executing{s.record, o.Window / 4, o.Asks}), inside{s.record}), stormy(o, chance))
	o.Conn.Handler = noticing{s.record, o.Window / 4}
	o.Conn.Hooks = telemetry.Tee(o.Conn.Hooks, s.record.Hooks(func(called string) bool { return called == method }))
	o.Conn.Log = cmp.Or(o.Conn.Log, slog.New(slog.DiscardHandler))
	s.conn = conn.New(watch(s.faults, outside{s.record}), o.Conn)
	return s
}

// work makes the given number of calls.
func (s *soaked) work(calls int, chance *rand.Rand) {
	var keeping, calling sync.WaitGroup
	over := make(chan struct{})
	keeping.Go(func() { s.keep(over) })
	numbers := make(chan int, calls)
	for n := range calls {
		numbers <- n + 1
	}
	close(numbers)
	for range s.o.Concurrent {
		own := rand.New(rand.NewPCG(chance.Uint64(), 0))
		calling.Go(func() {
			for n := range numbers {
				s.call(n, own)
			}
		})
	}
	calling.Wait()
	close(over)
	keeping.Wait()
}

// keep breaks the link from time to time, as a failed liveness check would,
// because a link that is half open or mute does not report its loss.
func (s *soaked) keep(over <-chan struct{}) {
	every := time.NewTicker(s.o.patience())
	defer every.Stop()
	for {
		select {
		case <-every.C:
			s.faults.Break()
		case <-over:
			return
		}
	}
}

// patience returns how long keep waits before it breaks a link.
func (o Options) patience() time.Duration {
	if o.RealTime {
		return 10 * o.Conn.RequestTimeout
	}
	return time.Minute
}

// call makes one call, with a timeout, a context or a Conn that may end first.
func (s *soaked) call(n int, chance *rand.Rand) {
	params := string(s.o.Params(n))
	s.record.make(params)
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	soon := 1 + time.Duration(chance.Int64N(int64(2*s.o.Window)))
	request := conn.Request{Method: method, Params: json.RawMessage(params), Version: s.o.Version, WaitForReady: chance.IntN(8) > 0}
	switch chance.IntN(8) {
	case 0:
		request.Timeout = soon
	case 1:
		leaving := time.AfterFunc(soon, leave)
		defer leaving.Stop()
	}
	result, err := s.conn.Call(ctx, request)
	s.record.settle(params, string(result), err)
	if chance.IntN(4) == 0 || err != nil {
		pause := time.NewTimer(soon)
		<-pause.C
	}
}

// stormy draws a plan in which every kind of fault may happen at any time.
func stormy(o Options, chance *rand.Rand) fault.Plan {
	plan := fault.Plan{Seed: chance.Uint64()}
	for _, kind := range answerFaults {
		if !o.allows(kind) {
			continue
		}
		for _, d := range directions(kind) {
			plan.Faults = append(plan.Faults, fault.Fault{
				Kind: kind, Direction: d, After: o.handshake[d],
				Probability: 2 * chance.Float64() * likelihood(kind), For: 1 + time.Duration(chance.Int64N(int64(o.Window))),
			})
		}
	}
	chance.Shuffle(len(plan.Faults), func(i, j int) { plan.Faults[i], plan.Faults[j] = plan.Faults[j], plan.Faults[i] })
	if o.allows(fault.FailOpen) {
		plan.FailOpens = chance.IntN(3)
	}
	if o.allows(fault.SlowClose) && chance.IntN(4) == 0 {
		plan.SlowClose = o.stopGrace() / 2
	}
	return plan
}

// likelihood returns the average fraction of frames that a kind of fault hits.
// Faults that end a link or a stream are rare, because otherwise few calls
// would be answered.
func likelihood(kind fault.Kind) float64 {
	switch kind {
	case fault.HalfOpen, fault.MuteStream:
		return 0.0003
	case fault.Die:
		return 0.002
	default:
		return 0.008
	}
}
