package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

const echoText = "0123456789012345678901234567890123456789012345678901234567890123"

func callers(n int) string { return fmt.Sprintf("callers=%d", n) }

// echoCalls has so many callers call at once, for each number of callers.
func echoCalls(open func(*measurement, context.Context) (*session, error), all ...int) func(context.Context, *measurement) error {
	return func(ctx context.Context, m *measurement) error {
		s, err := open(m, ctx)
		if err != nil {
			return err
		}
		for _, n := range all {
			if n > 1000 && m.quick && m.slow {
				continue
			}
			if err := m.calls(ctx, callers(n), n, s.echo(echoText)); err != nil {
				return err
			}
		}
		return nil
	}
}

func memoryCalls(m *measurement, ctx context.Context) (*session, error) {
	return m.inMemory(ctx, serving{})
}

func payload(size int) string { return fmt.Sprintf("payload=%d", size) }

func payloadSizes() []int { return []int{64, 1 << 10, 16 << 10, 256 << 10, 1 << 20} }

// payloadCalls has one caller call with texts of each size.
func payloadCalls(ctx context.Context, m *measurement) error {
	s, err := memoryCalls(m, ctx)
	if err != nil {
		return err
	}
	for _, size := range payloadSizes() {
		if err := m.calls(ctx, payload(size), 1, s.echo(strings.Repeat("0123456789abcdef", size/16))); err != nil {
			return err
		}
	}
	return nil
}

// calls measures for a while, after it has warmed up for a third of it. How many
// calls that will be the warming up says, so that what is measured has room for
// its own figures, and allocates none.
func (m *measurement) calls(ctx context.Context, point string, callers int, echo call) error {
	period := pick(m, 350*time.Millisecond, 30*time.Millisecond)
	if err := echo(ctx); err != nil { // the first waits for a process to start
		return err
	}
	warm := make([][]time.Duration, callers)
	until := time.Now().Add(period / 3)
	warmed, err := together(warm, func(took []time.Duration) ([]time.Duration, error) {
		for len(took) == 0 || time.Now().Before(until) {
			d, err := timed(func() error { return echo(ctx) })
			if err != nil {
				return nil, err
			}
			took = append(took, d)
		}
		return took, nil
	})
	if err != nil {
		return err
	}
	done := 0
	for _, took := range warm {
		done += len(took)
	}
	expected := float64(done) * float64(period) / float64(warmed)
	each := max(pick(m, 2, 1), int(math.Ceil(expected/float64(callers))))
	all := make([][]time.Duration, callers)
	for i := range all {
		all[i] = make([]time.Duration, 0, each)
	}
	runtime.GC()
	spending := startSpending()
	took, err := together(all, func(took []time.Duration) ([]time.Duration, error) {
		for range each {
			started := time.Now()
			err := echo(ctx)
			took = append(took, time.Since(started))
			if err != nil {
				return nil, err
			}
		}
		return took, nil
	})
	if err != nil {
		return err
	}
	m.addCalls(point, spending.stop(), took, slices.Concat(all...))
	return nil
}

func (m *measurement) addCalls(point string, cost spent, took time.Duration, each []time.Duration) {
	slices.Sort(each)
	n := float64(len(each))
	m.add(point, median, each[len(each)/2].Seconds())
	var sum time.Duration
	for _, d := range each {
		sum += d
	}
	m.add(point, mean, sum.Seconds()/n)
	m.add(point, percentile, each[len(each)*99/100].Seconds())
	m.add(point, rate, n/took.Seconds())
	m.add(point, allocs, float64(cost.mallocs)/n)
	m.add(point, allocated, float64(cost.bytes)/n)
	if cost.cpu > 0 {
		m.add(point, processor, cost.cpu.Seconds()/n)
	}
}

// together runs f for each caller at once, and hands it what to put its figures
// into.
func together(all [][]time.Duration, f func([]time.Duration) ([]time.Duration, error)) (time.Duration, error) {
	errs := make([]error, len(all))
	var running sync.WaitGroup
	started := time.Now()
	for i := range all {
		running.Go(func() { all[i], errs[i] = f(all[i]) })
	}
	running.Wait()
	return time.Since(started), errors.Join(errs...)
}
