package server_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// BenchmarkIdleSession measures the memory and the goroutines of a silent legacy
// session over HTTP, in the handler and in the server together.
func BenchmarkIdleSession(b *testing.B) {
	const many = 2000
	h := streamable.NewHandler(newServer(server.Options{}), streamable.HandlerOptions{})
	defer h.Close(0)
	openSession(b, h)
	for b.Loop() {
		bytes, goroutines := inUse()
		for range many {
			openSession(b, h)
		}
		bytesNow, goroutinesNow := inUse()
		b.ReportMetric(float64(bytesNow-bytes)/many, "B/session")
		b.ReportMetric(float64(goroutinesNow-goroutines)/many, "goroutines/session")
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
