package monitor

import (
	"context"
	"errors"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// A processMetric has the name that it has in every Go program that Prometheus scrapes, less what
// promName adds.
type processMetric struct {
	name, unit, help string
	read             func() (value float64, ok bool)
}

// processMetrics are those of the process. What only Linux tells is missing elsewhere.
func processMetrics(start time.Time) []processMetric {
	return []processMetric{
		{"go.goroutines", "", "Number of goroutines that currently exist.", func() (float64, bool) { return float64(runtime.NumGoroutine()), true }},
		{"go.memstats.heap_alloc", "By", "Number of heap bytes allocated and currently in use.", func() (float64, bool) {
			heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
			metrics.Read(heap)
			return float64(heap[0].Value.Uint64()), true
		}},
		{"process.start_time", "s", "Start time of the process since unix epoch in seconds.", func() (float64, bool) { return float64(start.UnixMilli()) / 1000, true }},
		{"process.open_fds", "", "Number of open file descriptors.", func() (float64, bool) {
			open, err := os.ReadDir("/proc/self/fd")
			return float64(len(open)) - 1, err == nil // less the one that reads
		}},
		{"process.resident_memory", "By", "Resident memory size in bytes.", func() (float64, bool) {
			pages, ok := processStatus(rss)
			return pages * float64(os.Getpagesize()), ok
		}},
	}
}

// The numbers of /proc/self/stat, counted from the process's state, see proc_pid_stat(5).
const (
	utime = 11
	stime = 12
	rss   = 21
)

const clockTicks = 100 // a second, in what Linux tells programs

func processStatus(field int) (value float64, ok bool) {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, false
	}
	_, numbers, _ := strings.Cut(string(text), ") ")
	if fields := strings.Fields(numbers); field < len(fields) {
		value, err = strconv.ParseFloat(fields[field], 64)
		return value, err == nil
	}
	return 0, false
}

// ObserveProcess adds the metrics of the process to a provider.
func ObserveProcess(meters metric.MeterProvider) error {
	meter, failed := meters.Meter("bowline"), error(nil)
	for _, m := range processMetrics(time.Now()) {
		_, err := meter.Float64ObservableGauge(m.name, metric.WithUnit(m.unit), metric.WithDescription(m.help),
			metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
				if value, ok := m.read(); ok {
					o.Observe(value)
				}
				return nil
			}))
		failed = errors.Join(failed, err)
	}
	_, err := meter.Float64ObservableCounter("process.cpu", metric.WithUnit("s"), metric.WithDescription("Total user and system CPU time spent in seconds."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			user, ok := processStatus(utime)
			if system, too := processStatus(stime); ok && too {
				o.Observe((user + system) / clockTicks)
			}
			return nil
		}))
	return errors.Join(failed, err)
}
