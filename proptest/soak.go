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
// faults of package fault happen at random. It compares the outcomes that the callers got with
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
	checkGoroutines(t, func(t *testing.T) { o = o.prepare(t, peer(t, EchoHandler())) })
	s := &soak{o: o, peer: peer, nextSeed: *seed, totals: newTotals(), start: time.Now()}
	if s.nextSeed == 0 {
		s.nextSeed = rand.Uint64()
	}
	for s.totals.made < o.Calls && !t.Failed() {
		s.round(t, min(roundCalls, o.Calls-s.totals.made))
	}
	for range extraRounds {
		if o.RealTime && s.tooFewAnswers() != "" && !t.Failed() {
			s.o.Conn.RequestTimeout *= 2
			s.round(t, o.maxInFlight())
		}
	}
	s.totals.duration = time.Since(s.start)
	t.Logf("\n%v", s.totals)
	if why := s.tooFewAnswers(); why != "" {
		t.Errorf("%s, so the soak has tested too little", why)
	}
}

// A soak consists of rounds of calls, and their totals.
type soak struct {
	o        Options
	peer     peerFunc
	nextSeed uint64 // the seed of the next round
	totals   *totals
	start    time.Time
}

// tooFewAnswers reports which calls or requests had too few answers, or returns "" if
// there were enough.
func (s *soak) tooFewAnswers() string {
	minimum := s.o.minAnswered()
	if answered := s.totals.answered(); answered < minimum {
		return fmt.Sprintf("%d calls were answered, and not %d", answered, minimum)
	}
	if asks := s.totals.asks; s.o.Asks && asks.answered < int(minimum/8) {
		return fmt.Sprintf("%d asks were answered, of %d", asks.answered, asks.made)
	}
	return ""
}

func (s *soak) round(t *testing.T, calls int) {
	t.Helper()
	r := &round{o: s.o, seed: s.nextSeed, calls: calls, totals: s.totals}
	checkGoroutines(t, func(t *testing.T) {
		if s.o.RealTime {
			r.run(t, s.peer)
		} else {
			synctest.Test(t, func(t *testing.T) { r.run(t, s.peer) })
		}
	})
	s.nextSeed++
	t.Logf("%d of %d calls in %v", s.totals.made, s.o.Calls, time.Since(s.start).Round(time.Millisecond))
}

// maxInFlight returns the maximum number of calls in flight.
func (o Options) maxInFlight() int { return min(o.Calls, roundConns*o.Concurrent) }

// minAnswered returns how many calls must be answered for the test to be meaningful.
func (o Options) minAnswered() uint64 { return uint64(max(o.maxInFlight()/8, 1)) }

// A peerFunc returns a transport to a peer that uses the given handler.
type peerFunc = func(*testing.T, conn.Handler) transport.Transport

const (
	roundCalls = 20_000
	roundConns = 16

	// extraRounds is how many more rounds are made if the machine is so slow
	// that too few calls were answered in time. In each of them, calls have twice
	// as much time as in the one before.
	extraRounds = 6
)

// A round consists of several Conns, each with its own peer, faults and callers.
type round struct {
	o      Options
	seed   uint64
	calls  int
	totals *totals
}

func (r *round) run(t *testing.T, peer peerFunc) {
	t.Helper()
	var running, calling sync.WaitGroup
	all := make([]*soakConn, roundConns)
	for i := range all {
		random := rand.New(rand.NewPCG(r.seed, uint64(i)))
		s := newSoakConn(r.o, random, func(h conn.Handler) transport.Transport { return peer(t, h) })
		all[i] = s
		running.Go(func() { _ = s.conn.Run(context.Background()) })
		calling.Go(func() { s.work(r.share(i), random) })
	}
	calling.Wait()
	r.waitIdle()
	for _, s := range all {
		s.idleStats = s.conn.Stats()
		s.conn.Stop()
	}
	running.Wait()
	for i, s := range all {
		for _, wrong := range s.audit() {
			t.Errorf("seed %d, Conn %d: %s", r.seed, i, wrong)
		}
		r.totals.add(s)
	}
}

// waitIdle waits until all Conns are idle. In real time it cannot know that.
func (r *round) waitIdle() {
	if r.o.RealTime {
		return
	}
	retention := time.NewTimer(r.o.retention())
	<-retention.C
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

// soakConn is one Conn of a round.
type soakConn struct {
	o         Options
	record    *record
	faults    *fault.Transport
	conn      *conn.Conn
	idleStats conn.Stats
}

func newSoakConn(o Options, random *rand.Rand, peer func(conn.Handler) transport.Transport) *soakConn {
	s := &soakConn{o: o, record: newRecord()}
	s.faults = fault.New(watch(peer(peerHandler{s.record, o.Window / 4, o.Asks}), innerObserver{s.record}), randomPlan(o, random))
	o.Conn.Handler = connHandler{s.record, o.Window / 4}
	o.Conn.Hooks = telemetry.Tee(o.Conn.Hooks, s.record.Hooks(func(called string) bool { return called == method }))
	o.Conn.Log = cmp.Or(o.Conn.Log, slog.New(slog.DiscardHandler))
	s.conn = conn.New(watch(s.faults, outerObserver{s.record}), o.Conn)
	return s
}

// work makes the given number of calls.
func (s *soakConn) work(calls int, random *rand.Rand) {
	var breaking, calling sync.WaitGroup
	over := make(chan struct{})
	breaking.Go(func() { s.breakLinks(over) })
	numbers := make(chan int, calls)
	for n := range calls {
		numbers <- n + 1
	}
	close(numbers)
	for range s.o.Concurrent {
		own := rand.New(rand.NewPCG(random.Uint64(), 0))
		calling.Go(func() {
			for n := range numbers {
				s.call(n, own)
			}
		})
	}
	calling.Wait()
	close(over)
	breaking.Wait()
}

// breakLinks breaks the link from time to time, as a failed liveness check would,
// because a link that is half open or mute does not report its loss.
func (s *soakConn) breakLinks(over <-chan struct{}) {
	every := time.NewTicker(s.o.breakInterval())
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

// breakInterval returns how long breakLinks waits before it breaks a link.
func (o Options) breakInterval() time.Duration {
	if o.RealTime {
		return 10 * o.Conn.RequestTimeout
	}
	return time.Minute
}

// call makes one call, with a timeout, a context or a Conn that may end first.
func (s *soakConn) call(n int, random *rand.Rand) {
	params := string(s.o.Params(n))
	s.record.begin(params)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	soon := 1 + time.Duration(random.Int64N(int64(2*s.o.Window)))
	request := conn.Request{Method: method, Params: json.RawMessage(params), Version: s.o.Version, WaitForReady: random.IntN(8) > 0}
	switch random.IntN(8) {
	case 0:
		request.Timeout = soon
	case 1:
		cancelling := time.AfterFunc(soon, cancel)
		defer cancelling.Stop()
	}
	result, err := s.conn.Call(ctx, request)
	s.record.settle(params, string(result), err)
	if random.IntN(4) == 0 || err != nil {
		pause := time.NewTimer(soon)
		<-pause.C
	}
}

// randomPlan draws a plan in which every kind of fault may happen at any time.
func randomPlan(o Options, random *rand.Rand) fault.Plan {
	plan := fault.Plan{Seed: random.Uint64()}
	for _, kind := range answerFaults {
		if !o.allows(kind) {
			continue
		}
		for _, d := range directions(kind) {
			plan.Faults = append(plan.Faults, fault.Fault{
				Kind: kind, Direction: d, After: o.handshake[d],
				Probability: 2 * random.Float64() * likelihood(kind), For: 1 + time.Duration(random.Int64N(int64(o.Window))),
			})
		}
	}
	random.Shuffle(len(plan.Faults), func(i, j int) { plan.Faults[i], plan.Faults[j] = plan.Faults[j], plan.Faults[i] })
	if o.allows(fault.FailOpen) {
		plan.FailOpens = random.IntN(3)
	}
	if o.allows(fault.SlowClose) && random.IntN(4) == 0 {
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
