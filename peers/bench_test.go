package peers

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

const benchRevision = "2025-11-25"

// BenchmarkEcho calls a tool that echoes 64 bytes, in 2025-11-25 and, where it
// says modern, in 2026-07-28. The implementations take turns, a round of calls
// each, so that a busy machine is busy for all of them; the line race says how
// many rounds there were. What each line after it reports is of a whole call,
// there and back: the median and the 99th percentile of one caller's calls, or
// the calls per second of the median round of many callers; that as a multiple
// of the floor's, which is better when it is lower for a time and higher for a
// rate; and what the benchmark's own process has allocated, which is client and
// server in memory, and the client alone otherwise.
//
// The floor is the least that an echo can cost with encoding/json and one
// struct: on the same pipes or net/http, without limits, checks, timeouts or
// concurrent serving. In memory it has lines on a net.Pipe, as elsewhere; beside
// it floor-frames hands encoded frames over in a channel, uncopied, which is all
// that transport/inmem does.
// Bowline's typed tool does the floor's work, from a Go struct to a Go struct
// and back; its raw tool takes its arguments as they came.
func BenchmarkEcho(b *testing.B) {
	built := programs(b)
	for _, wire := range []struct {
		name        string
		callers     []int
		contestants []contestant
	}{
		{"memory", []int{1, 64, 1000}, inMemory()},
		{"stdio", []int{1, 64}, processes(built)},
		{"http", []int{1, 64}, endpoints(built)},
	} {
		for _, callers := range wire.callers {
			b.Run(fmt.Sprintf("%s/callers=%d", wire.name, callers), func(b *testing.B) { race(b, wire.contestants, callers) })
		}
	}
}

// A standing is what a contestant has shown so far.
type standing struct {
	echo    func() error
	took    []time.Duration // each call of one caller, or each round of many
	calls   int
	mallocs uint64
	bytes   uint64
}

func race(b *testing.B, contestants []contestant, callers int) {
	standings := make([]*standing, len(contestants))
	for i, c := range contestants {
		standings[i] = &standing{echo: c.connect(b)}
		standings[i].play(b, callers) // to warm up
	}
	b.Run("race", func(b *testing.B) {
		for i := range standings {
			standings[i] = &standing{echo: standings[i].echo}
		}
		for b.Loop() {
			for _, s := range standings {
				s.play(b, callers)
			}
		}
		b.ReportMetric(0, "ns/op") // the sum of all rounds means nothing
	})
	for i, c := range contestants {
		b.Run(c.name, func(b *testing.B) { standings[i].report(b, standings[0], callers) })
	}
}

// play makes a round of calls: a quarter of a thousand by one caller, and so
// many by each of many that beginning them does not count.
func (s *standing) play(b *testing.B, callers int) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if callers == 1 {
		s.calls += 256
		s.playAlone(b, 256)
	} else {
		each := max(8, 2048/callers)
		s.calls += callers * each
		s.playTogether(b, callers, each)
	}
	runtime.ReadMemStats(&after)
	s.mallocs += after.Mallocs - before.Mallocs
	s.bytes += after.TotalAlloc - before.TotalAlloc
}

func (s *standing) playAlone(b *testing.B, calls int) {
	s.took = slices.Grow(s.took, calls)
	for range calls {
		started := time.Now()
		err := s.echo()
		s.took = append(s.took, time.Since(started))
		if err != nil {
			b.Fatal(err)
		}
	}
}

func (s *standing) playTogether(b *testing.B, callers, each int) {
	started := time.Now()
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for range each {
				if err := s.echo(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	calling.Wait()
	s.took = append(s.took, time.Since(started)/time.Duration(callers*each))
}

func (s *standing) report(b *testing.B, floor *standing, callers int) {
	slices.Sort(s.took)
	slices.Sort(floor.took)
	if callers == 1 {
		b.ReportMetric(s.percentile(50), "p50-ns")
		b.ReportMetric(s.percentile(99), "p99-ns")
		b.ReportMetric(s.percentile(50)/floor.percentile(50), "p50/floor")
		b.ReportMetric(s.percentile(99)/floor.percentile(99), "p99/floor")
	} else {
		b.ReportMetric(1e9/s.percentile(50), "calls/s")
		b.ReportMetric(floor.percentile(50)/s.percentile(50), "rate/floor")
	}
	b.ReportMetric(float64(s.mallocs)/float64(s.calls), "allocs/call")
	b.ReportMetric(float64(s.bytes)/float64(s.calls), "B/call")
	b.ReportMetric(0, "ns/op") // nothing is run here
}

func (s *standing) percentile(p int) float64 {
	return float64(s.took[(len(s.took)-1)*p/100].Nanoseconds())
}
