package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
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
	if m.name == floorByHand {
		return nil // it escapes nothing
	}
	if err := m.calls(ctx, payload(16<<10)+" random", 1, s.echo(randomText(16<<10))); err != nil {
		return err
	}
	if err := m.calls(ctx, payload(16<<10)+" found", 1, s.echo(foundText(16<<10))); err != nil || m.name == bowlineRaw {
		return err
	}
	return m.calls(ctx, payload(16<<10)+" nested", 1, s.order(orderOf(16<<10)))
}

// randomText has no pattern that a parser or a processor could learn, and is the same in each run.
func randomText(bytes int) string {
	random, text := rand.New(rand.NewPCG(1, 2)), make([]byte, bytes)
	for i := range text {
		text[i] = ' ' + byte(random.IntN('~'-' '))
	}
	return string(text)
}

// calls measures for a while, after it has warmed up for a third of it. All callers
// call until the time is over, and each at least once.
func (m *measurement) calls(ctx context.Context, point string, callers int, echo call) error {
	period := pick(m, 350*time.Millisecond, 30*time.Millisecond)
	if err := echo(ctx); err != nil { // the first waits for a process to start
		return err
	}
	if _, err := together(ctx, callers, period/3, echo, new(histogram)); err != nil {
		return err
	}
	each := new(histogram)
	runtime.GC()
	spending := startSpending()
	took, err := together(ctx, callers, period, echo, each)
	if err != nil {
		return err
	}
	cost, n := spending.stop(), float64(each.count())
	m.addTimes(point, each)
	m.add(point, mean, time.Duration(each.sum.Load()).Seconds()/n)
	m.add(point, rate, n/took.Seconds())
	m.add(point, allocs, float64(cost.mallocs)/n)
	m.add(point, allocated, float64(cost.bytes)/n)
	if cost.cpu > 0 {
		m.add(point, processor, cost.cpu.Seconds()/n)
	}
	return nil
}

// addTimes adds the times that most calls take, and the slowest.
func (m *measurement) addTimes(point string, each *histogram) {
	m.add(point, median, each.quantile(0.5).Seconds())
	m.add(point, percentile, each.quantile(0.99).Seconds())
	m.add(point, permille, each.quantile(0.999).Seconds())
}

// together has callers call at once, again and again, and says how long it took
// until the last had its answer.
func together(ctx context.Context, callers int, period time.Duration, echo call, each *histogram) (time.Duration, error) {
	errs := make([]error, callers)
	var running sync.WaitGroup
	started := time.Now()
	for i := range callers {
		running.Go(func() {
			for now := time.Now(); ; {
				if errs[i] = echo(ctx); errs[i] != nil {
					return
				}
				answered := time.Now()
				each.add(answered.Sub(now))
				if now = answered; now.Sub(started) >= period {
					return
				}
			}
		})
	}
	running.Wait()
	return time.Since(started), errors.Join(errs...)
}
