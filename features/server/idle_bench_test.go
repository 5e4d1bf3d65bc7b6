package server_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// BenchmarkIdleSession measures the memory and the goroutines of a silent legacy
// session over HTTP, in the handler and in the server together. With
// -memprofilerate=1 it also prints what of that was allocated where.
func BenchmarkIdleSession(b *testing.B) {
	const many = 2000
	h := streamable.NewHandler(newServer(server.Options{}), streamable.HandlerOptions{})
	defer h.Close(0)
	openSession(b, h)
	for b.Loop() {
		var before map[string]float64
		if runtime.MemProfileRate == 1 {
			before = bytesByLine() // before inUse, which counts it
		}
		bytes, goroutines := inUse()
		for range many {
			openSession(b, h)
		}
		bytesNow, goroutinesNow := inUse()
		b.ReportMetric(float64(bytesNow-bytes)/many, "B/session")
		b.ReportMetric(float64(goroutinesNow-goroutines)/many, "goroutines/session")
		if runtime.MemProfileRate == 1 {
			printPerSession(before, bytesByLine(), many)
		}
	}
}

// bytesByLine returns the bytes in use by the line of Go that has allocated them.
func bytesByLine() map[string]float64 {
	records := make([]runtime.MemProfileRecord, 1<<16)
	n, _ := runtime.MemProfile(records, false)
	bytes := make(map[string]float64)
	for _, r := range records[:min(n, len(records))] {
		frames := runtime.CallersFrames(r.Stack())
		of, more := frames.Next()
		for more && (strings.HasPrefix(of.Function, "runtime.") || strings.HasPrefix(of.Function, "internal/")) {
			of, more = frames.Next()
		}
		bytes[fmt.Sprintf("%s:%d", of.Function, of.Line)] += float64(r.InUseBytes())
	}
	return bytes
}

// printPerSession prints each line that has allocated a byte or more for each session, the most first.
func printPerSession(before, after map[string]float64, many float64) {
	for line := range after {
		after[line] = (after[line] - before[line]) / many
	}
	for _, line := range slices.SortedFunc(maps.Keys(after), func(a, b string) int { return cmp.Compare(after[b], after[a]) }) {
		if after[line] >= 1 {
			fmt.Printf("%8.1f B/session %s\n", after[line], line)
		}
	}
}

func openSession(b testing.TB, h http.Handler) (id string) {
	b.Helper()
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(initializeFrame))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != http.StatusOK {
		b.Fatalf("initialize: %d %s, want %v", w.Code, w.Body, http.StatusOK)
	}
	return w.Header().Get("Mcp-Session-Id")
}

// inUse waits until idle connections have parked, 100 ms after their last event.
func inUse() (bytes, goroutines int) {
	<-time.NewTimer(time.Second).C
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc), runtime.NumGoroutine()
}
