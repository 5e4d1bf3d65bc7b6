package client_test

import (
	"context"
	"flag"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/supervisor"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

var (
	idleSessions = flag.Int("sessions", 1000, "how many sessions BenchmarkIdleSessions keeps idle")
	idleFor      = flag.Duration("idle", 30*time.Second, "how long BenchmarkIdleSessions watches them")
)

// BenchmarkIdleSessions measures how many requests per second a server gets over HTTP
// from idle sessions.
func BenchmarkIdleSessions(b *testing.B) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		b.Run(version, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(float64(requestsWhileIdle(b, version))/idleFor.Seconds(), "requests/s")
			}
		})
	}
}

// requestsWhileIdle counts the requests of sessions that were opened spread over the
// same time, as sessions are in practice.
func requestsWhileIdle(b *testing.B, version string) int64 {
	s := echoServer(false)
	handler := streamable.NewHandler(s, streamable.HandlerOptions{})
	var requests atomic.Int64
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler.ServeHTTP(w, r)
	}))
	defer site.Close()
	defer handler.Close(0)
	defer s.Close(context.Background())
	all := supervisor.New(supervisor.Options{})
	defer all.Stop(context.Background())
	c := client.New(clientInfo, client.Options{ProtocolVersion: version, Supervisor: all, Conn: conn.Tuning{StopGrace: time.Second}})
	over := &streamable.Client{URL: site.URL}
	for range *idleSessions {
		callOnce(b, c, over)
	}
	before := requests.Load()
	<-time.NewTimer(*idleFor).C
	return requests.Load() - before
}
