//go:build !race

package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Each operation of docs/benchmarks.md allocates at most this much in client, server
// and transport together, over HTTP including what net/http allocates on both sides.
// Each ceiling leaves a tenth for differences between runs. The race detector allocates
// too, so the test does not run with it.
func TestWorkAllocates(t *testing.T) {
	for _, c := range []struct {
		name string
		runs int
		most float64
		work func(t *testing.T) func() error
	}{
		{"call over HTTP", 500, 124, func(t *testing.T) func() error { return callOverHTTP(t, protocol.LatestLegacy) }},
		{"call over HTTP, modern", 500, 137, func(t *testing.T) func() error { return callOverHTTP(t, protocol.Latest) }},
		{"connect and close", 200, 88, connectAndClose},
		{"list of 1000 tools", 20, 4850, listOfTools},
		{"notification", 2000, 11, notification},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := c.work(t)
			allocated := testing.AllocsPerRun(c.runs, func() {
				if err := work(); err != nil {
					t.Fatal(err)
				}
			})
			if allocated > c.most {
				t.Errorf("%v allocations, want %v at most", allocated, c.most)
			}
		})
	}
}

func echoes(session *client.Session, arguments json.RawMessage) func() error {
	params := &protocol.CallToolParams{Name: "echo", Arguments: arguments}
	return func() error {
		_, err := session.CallTool(context.Background(), params)
		return err
	}
}

func callOverHTTP(t *testing.T, version string) func() error {
	h := streamable.NewHandler(echoServer(false), streamable.HandlerOptions{})
	site := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Close(0)
		site.Close()
	})
	return echoes(connected(t, &streamable.Client{URL: site.URL}, client.Options{ProtocolVersion: version}), json.RawMessage(echoArguments))
}

func connected(t *testing.T, over transport.Transport, o client.Options) *client.Session {
	t.Helper()
	session, err := client.New(clientInfo, o).Connect(t.Context(), over)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close(context.Background()) })
	return session
}

func accepting(t *testing.T, s *server.Server) transport.Transport {
	t.Cleanup(func() { s.Close(context.Background()) })
	return inmem.New(s.Accept, inmem.Options{})
}

func connectAndClose(t *testing.T) func() error {
	over, c := accepting(t, echoServer(false)), client.New(clientInfo, client.Options{ProtocolVersion: protocol.LatestLegacy})
	return func() error {
		session, err := c.Connect(context.Background(), over)
		if err != nil {
			return err
		}
		return session.Close(context.Background())
	}
}

func listOfTools(t *testing.T) func() error {
	s := server.New(serverInfo, server.Options{})
	for i := range 1000 {
		server.AddTool(s, protocol.Tool{Name: fmt.Sprint("tool-", i), Description: "one of many", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error) {
				return &protocol.CallToolResult{}, nil
			})
	}
	session := connected(t, accepting(t, s), client.Options{ProtocolVersion: protocol.LatestLegacy})
	return func() error {
		for _, err := range session.Tools(context.Background()) {
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func notification(t *testing.T) func() error {
	received := make(chan struct{})
	s := server.New(serverInfo, server.Options{Fallback: func(context.Context, *server.Request) (any, error) {
		received <- struct{}{}
		return nil, nil
	}})
	session := connected(t, accepting(t, s), client.Options{ProtocolVersion: protocol.LatestLegacy})
	return func() error {
		err := session.Notify(context.Background(), "notifications/news", struct{}{})
		if err == nil {
			<-received
		}
		return err
	}
}

// An echo of 1 MiB in memory allocates at most eleven times its length. The budget of
// docs/benchmarks.md is 16 MB.
func TestLargeEchoAllocates(t *testing.T) {
	echo := echoes(connected(t, accepting(t, echoServer(false)), client.Options{ProtocolVersion: protocol.LatestLegacy}),
		json.RawMessage(`{"message":"`+strings.Repeat("x", 1<<20)+`"}`))
	const times = 10
	var before, after runtime.MemStats
	for range 3 {
		if err := echo(); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&before)
	for range times {
		if err := echo(); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 11<<20 {
		t.Errorf("%d bytes, want %d at most", each, 11<<20)
	}
}
