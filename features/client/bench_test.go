package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

const echoArguments = `{"message":"0123456789012345678901234567890123456789012345678901234567890123"}`

// echoServer returns a server with the tool echo, typed or raw.
func echoServer(raw bool) *server.Server {
	s := server.New(serverInfo, server.Options{})
	if raw {
		server.AddTool(s, protocol.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, params *protocol.CallToolParams) (*protocol.CallToolResult, error) {
				return &protocol.CallToolResult{Content: protocol.Contents{&protocol.TextContent{Text: string(params.Arguments)}}}, nil
			})
	} else {
		addEcho(s)
	}
	return s
}

// addEcho adds the typed echo.
func addEcho(s *server.Server) {
	type message struct {
		Message string `json:"message"`
	}
	server.AddTool(s, protocol.Tool{Name: "echo"}, func(_ context.Context, in message) (string, error) {
		return in.Message, nil
	})
}

func inMemory(b *testing.B, s *server.Server) transport.Transport {
	n := &network{server: s}
	b.Cleanup(n.close)
	return n.transport()
}

func overSocket(b *testing.B, s *server.Server) transport.Transport {
	h := streamable.NewHandler(s, streamable.HandlerOptions{})
	site := httptest.NewServer(h)
	b.Cleanup(func() {
		h.Close(0)
		site.Close()
	})
	return &streamable.Client{URL: site.URL}
}

// BenchmarkCallTool makes 64-byte echoes: in memory with a raw and a typed tool, over
// HTTP with a typed one, in both eras, with one caller at a time and with 64.
func BenchmarkCallTool(b *testing.B) {
	for _, c := range []struct {
		name    string
		raw     bool
		to      func(*testing.B, *server.Server) transport.Transport
		version string
	}{
		{"memory/raw", true, inMemory, protocol.LatestLegacy},
		{"memory/typed", false, inMemory, protocol.LatestLegacy},
		{"memory/typed/modern", false, inMemory, protocol.Latest},
		{"http/typed", false, overSocket, protocol.LatestLegacy},
		{"http/typed/modern", false, overSocket, protocol.Latest},
	} {
		b.Run(c.name, func(b *testing.B) {
			session, err := client.New(clientInfo, client.Options{ProtocolVersion: c.version}).Connect(b.Context(), c.to(b, echoServer(c.raw)))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { session.Close(context.Background()) })
			params := &protocol.CallToolParams{Name: "echo", Arguments: json.RawMessage(echoArguments)}
			callers(b, func() error {
				_, err := session.CallTool(context.Background(), params)
				return err
			})
		})
	}
	b.Run("http/floor", benchmarkPlainHTTP)
}

// benchmarkPlainHTTP measures an echo with net/http alone, the floor for an echo over
// HTTP.
func benchmarkPlainHTTP(b *testing.B) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request map[string]any
		json.NewDecoder(r.Body).Decode(&request)
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(request)
	}))
	defer site.Close()
	pool := &http.Transport{MaxIdleConnsPerHost: 100}
	defer pool.CloseIdleConnections()
	plain := &http.Client{Transport: pool}
	frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":` + echoArguments + `}}`)
	callers(b, func() error {
		response, err := plain.Post(site.URL, "application/json", bytes.NewReader(frame))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		var answer map[string]any
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return err
	})
}

// callers measures a call made by one caller at a time, and by 64.
func callers(b *testing.B, call func() error) {
	b.Run("callers=1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := call(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("callers=64", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(32)
		var failed atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if call() != nil {
					failed.Add(1)
				}
			}
		})
		if failed.Load() > 0 {
			b.Fatalf("%d calls failed", failed.Load())
		}
	})
}
