package bench

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// connecting opens a session in memory and closes it, again and again.
func connecting(ctx context.Context, m *measurement) error {
	open := m.memory(m.revision, serving{})
	return m.calls(ctx, "", 1, func(ctx context.Context) error {
		s, err := open(ctx)
		if err != nil {
			return err
		}
		return s.close()
	})
}

const listedTools = 1000

// listing lists a thousand tools in memory.
func listing(ctx context.Context, m *measurement) error {
	s, err := m.inMemory(ctx, serving{tools: listedTools})
	if err != nil {
		return err
	}
	return m.calls(ctx, "", 1, whole(listedTools, s.list))
}

// whole lists all, and fails if they are fewer than so many.
func whole(want int, list func(context.Context) (int, error)) call {
	return func(ctx context.Context) error {
		n, err := list(ctx)
		if err == nil && n < want {
			err = fmt.Errorf("it lists %d, and not %d", n, want)
		}
		return err
	}
}

// A growth is one size of what grows.
type growth struct {
	point string
	of    serving
	work  func(*session) call
}

// growing lists more and more, and calls a tool whose schema is larger and larger.
func growing(ctx context.Context, m *measurement) error {
	var all []growth
	for _, n := range []int{1000, pick(m, 10_000, 2000)} {
		all = append(all, growth{fmt.Sprintf("tools=%d", n), serving{tools: n}, func(s *session) call { return whole(n, s.list) }})
	}
	if m.name == bowlineTyped {
		for _, n := range []int{1000, pick(m, 100_000, 2000)} {
			all = append(all, growth{fmt.Sprintf("resources=%d", n), serving{resources: n}, func(s *session) call { return whole(n, s.resources) }})
		}
		for _, n := range []int{1000, 250_000} { // the server refuses one of more than 256 KiB
			all = append(all, growth{fmt.Sprintf("schema=%d", n), serving{schema: n}, func(s *session) call { return s.wide }})
		}
	}
	for _, g := range all {
		s, err := m.inMemory(ctx, g.of)
		if err != nil {
			return err
		}
		if err := m.calls(ctx, g.point, 1, g.work(s)); err != nil {
			return err
		}
	}
	return nil
}

const (
	arrived = "handled per s"
	lost    = "lost"
	peak    = "peak of bytes held"
	handled = "handled"
	quiet   = "p50 in s, before"
)

// flooding has the client send notifications to the server in memory, as fast as
// it can, and counts what the handler gets.
func flooding(ctx context.Context, m *measurement) error {
	many := pick(m, 100_000, 2000)
	var received atomic.Int64
	s, err := m.inMemory(ctx, serving{notified: func() { received.Add(1) }})
	if err != nil {
		return err
	}
	// A slow one is done after a few seconds, with fewer.
	until := time.Now().Add(pick(m, 4*time.Second, time.Second))
	started := time.Now()
	sent := 0
	for ; sent < many && (sent%64 != 0 || time.Now().Before(until)); sent++ {
		if err := s.notify(ctx); err != nil {
			return err
		}
	}
	all := settled(&received, int64(sent))
	m.add("", arrived, float64(received.Load())/all.Sub(started).Seconds())
	m.add("", lost, float64(int64(sent)-received.Load())/float64(sent))
	return nil
}

// settled is when the last has come: so many, or fewer when no more come.
func settled(received *atomic.Int64, want int64) time.Time {
	const patience = 300 * time.Millisecond
	have, last := received.Load(), time.Now()
	for have < want && time.Since(last) < patience {
		rest(time.Millisecond)
		if now := received.Load(); now != have {
			have, last = now, time.Now()
		}
	}
	return last
}

// congestion has a client that takes a millisecond for each of the server's 5000
// notifications, and calls meanwhile.
func congestion(ctx context.Context, m *measurement) error {
	var received atomic.Int64
	s, err := m.inMemory(ctx, serving{received: func() {
		received.Add(1)
		rest(time.Millisecond)
	}})
	if err != nil {
		return err
	}
	echo := s.echo(echoText)
	window := pick(m, 1500*time.Millisecond, 200*time.Millisecond)
	before, err := someCalls(ctx, window/3, echo)
	if err != nil {
		return err
	}
	runtime.GC()
	empty, most := live(), uint64(0)
	sending, stop := context.WithTimeout(ctx, window)
	defer stop()
	failed := make(chan error, 1)
	go func() {
		if err := s.flood(sending, 5000); err != nil && sending.Err() == nil {
			failed <- err
		}
	}()
	var meanwhile []time.Duration
	for sending.Err() == nil {
		took, err := someCalls(ctx, window/10, echo)
		if err != nil {
			return err
		}
		meanwhile = append(meanwhile, took...)
		runtime.GC()
		most = max(most, live())
	}
	select {
	case err := <-failed:
		return err
	default:
	}
	m.add("", quiet, middleOf(before))
	m.add("", median, middleOf(meanwhile))
	m.add("", handled, float64(received.Load()))
	m.add("", peak, float64(most-min(most, empty)))
	m.opened = nil // the rest of the notifications is not awaited
	return nil
}

// someCalls makes calls for a while, with pauses: they must not take the processor,
// or a lock, from what they are made beside.
func someCalls(ctx context.Context, d time.Duration, echo call) (took []time.Duration, err error) {
	until := time.Now().Add(d)
	for len(took) == 0 || time.Now().Before(until) {
		one, err := timed(func() error { return echo(ctx) })
		if err != nil {
			return nil, err
		}
		took = append(took, one)
		rest(3 * time.Millisecond)
	}
	return took, nil
}

func middleOf(took []time.Duration) float64 {
	slices.Sort(took)
	return took[len(took)/2].Seconds()
}

// live is what the heap held at the end of the last garbage collection.
func live() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func parked(n int) string { return fmt.Sprintf("parked=%d", n) }

func mostParked(quick bool) int {
	if quick {
		return 1000
	}
	return 10_000
}

// parking has one caller call while others wait for answers that do not come.
func parking(ctx context.Context, m *measurement) error {
	most := mostParked(m.quick)
	s, err := m.inMemory(ctx, serving{parks: most + 100})
	if err != nil {
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	var ended atomic.Int64
	park := func(n int) {
		for range n {
			go func() {
				s.park(waiting)
				ended.Add(1)
			}()
		}
	}
	echo := s.echo(echoText)
	park(1)
	if err := m.calls(ctx, parked(1), 1, echo); err != nil {
		return err
	}
	before := m.weigh()
	park(most - 1)
	m.addHeld(parked(most), before, most-1)
	if err := m.calls(ctx, parked(most), 1, echo); err != nil {
		return err
	}
	m.opened = nil // they wait until this process ends
	if n := ended.Load(); n > 0 {
		return fmt.Errorf("%d of %d calls did not stay parked", n, most)
	}
	return nil
}

const (
	agentServers = 3
	agentCalls   = 20
)

// agentWork is what an agent does for one question: it starts its servers, lists their tools, makes calls one after the other, in
// turn at each server, whose results have 2 to 50 kB, and ends.
func agentWork(ctx context.Context, m *measurement) error {
	command, err := serverCommand("stdio", m.name)
	if err != nil {
		return err
	}
	return m.calls(ctx, "", 1, func(ctx context.Context) error {
		var sessions []*session
		for range agentServers {
			s, err := m.stdio(ctx, m.revision, command)
			if err != nil {
				return err
			}
			sessions = append(sessions, s)
		}
		return askAll(ctx, sessions)
	})
}

// askAll lists the tools of each session, makes the calls, and closes the sessions.
func askAll(ctx context.Context, sessions []*session) error {
	for _, s := range sessions {
		if _, err := s.list(ctx); err != nil {
			return err
		}
	}
	for n := range agentCalls {
		if err := sessions[n%len(sessions)].fetch(ctx, 2000+n*48_000/(agentCalls-1)); err != nil {
			return err
		}
	}
	for _, s := range sessions {
		if err := s.close(); err != nil {
			return err
		}
	}
	return nil
}

const (
	callEnds     = "call ends after s"
	closeEnds    = "close ends after s"
	timedOut     = 6 * time.Second // the timeout of one step
	timedOutSoon = time.Second     // the same in a quick run
	deadline     = 200 * time.Millisecond
)

// stopping has a call that the server's process does not read, and then closes.
func stopping(ctx context.Context, m *measurement) error {
	command, err := serverCommand("mute", m.name)
	if err != nil {
		return err
	}
	s, err := m.stdio(ctx, m.revision, command)
	if err != nil {
		return err
	}
	echo := s.echo(strings.Repeat("x", 1<<20)) // more than a pipe holds
	limited, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	bound := pick(m, timedOut, timedOutSoon)
	m.add("", callEnds, within(bound, func() error { return echo(limited) }))
	m.add("", closeEnds, within(bound, s.close))
	return nil
}

// within is how long f takes, or the bound if it takes longer.
func within(bound time.Duration, f func() error) float64 {
	done := make(chan time.Duration, 1)
	started := time.Now()
	go func() {
		f() // how it ends is not asked
		done <- time.Since(started)
	}()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case took := <-done:
		return took.Seconds()
	case <-timer.C:
		return bound.Seconds()
	}
}
