//go:build !race

package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
)

// Each operation of docs/benchmarks.md allocates at most this much in client, server
// and transport together, over HTTP including what net/http allocates on both sides.
// A list allocates less than ten times for each of its tools. Each ceiling leaves a tenth
// for differences between runs, or less than one allocation. The race detector allocates
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
		{"call over stdio, the client's side", 500, 6, callOverStdio},
		{"list of 1000 tools", 20, 4750, func(t *testing.T) func() error { return listOfTools(t, protocol.LatestLegacy) }},
		{"list of 1000 tools, modern", 20, 4850, func(t *testing.T) func() error { return listOfTools(t, protocol.Latest) }},
		{"notification", 2000, 11, notification},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := c.work(t)
			allocated := testing.AllocsPerRun(c.runs, func() {
				if err := work(); err != nil {
					t.Fatal(err)
				}
			})
			if t.Logf("%v allocations", allocated); allocated > c.most {
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

// callOverStdio calls a real child. What the child allocates is in another process, so
// it does not count.
func callOverStdio(t *testing.T) func() error {
	return echoes(connected(t, role(t, "crowd"), client.Options{ProtocolVersion: protocol.LatestLegacy}), json.RawMessage(echoArguments))
}

// listOfTools lists tools of 0.5 kB each, like those of docs/benchmarks.md.
func listOfTools(t *testing.T, version string) func() error {
	const description = "Searches the archive for documents that match a query, newest first, and returns their titles."
	schema := json.RawMessage(`{"type":"object","properties":{` +
		`"query":{"type":"string","description":"what to look for"},` +
		`"from":{"type":"string","format":"date-time","description":"no document older than this"},` +
		`"limit":{"type":"integer","minimum":1,"maximum":100,"description":"how many documents"},` +
		`"fields":{"type":"array","items":{"type":"string"},"description":"which fields to return"}},` +
		`"required":["query"]}`)
	const tools = 1000
	s := server.New(serverInfo, server.Options{})
	for i := range tools {
		server.AddTool(s, protocol.Tool{Name: fmt.Sprint("tool-", i), Description: description, InputSchema: schema},
			func(context.Context, *protocol.CallToolParams) (*protocol.CallToolResult, error) {
				return &protocol.CallToolResult{}, nil
			})
	}
	session := connected(t, accepting(t, s), client.Options{ProtocolVersion: version})
	return func() error {
		n := 0
		for _, err := range session.Tools(context.Background()) {
			if err != nil {
				return err
			}
			n++
		}
		if n != tools {
			return fmt.Errorf("%d tools, want %d", n, tools)
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
