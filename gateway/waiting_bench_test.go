package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// manyWaiting is how many questions one client may have at the same time.
const manyWaiting = 32

// BenchmarkWaiting measures what calls hold while they wait: heap, stacks and goroutines of client, gateway and server together. In a
// call the handler waits, in a question the user, and a task is a call that has returned while its handler goes on. What the gateway
// adds to a call is the difference between two lines.
func BenchmarkWaiting(b *testing.B) {
	for _, kind := range []struct{ name, tool string }{{"call", "wait"}, {"question", "ask"}, {"task", "task"}} {
		for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
			b.Run(kind.name+"/direct/"+version, func(b *testing.B) { waiting(b, version, kind.tool, false) })
			if kind.name == "call" {
				b.Run(kind.name+"/gateway/"+version, func(b *testing.B) { waiting(b, version, "a__"+kind.tool, true) })
			}
		}
	}
}

func waiting(b *testing.B, version, tool string, through bool) {
	for b.Loop() {
		arrived, over := make(chan struct{}), make(chan struct{})
		wait := func(context.Context) {
			arrived <- struct{}{}
			<-over
		}
		s := waitingServer(wait)
		accept := s.Accept
		if through {
			accept = gatewayBefore(b, version, s).Accept
		}
		session := waitingClient(b, version, accept, wait)
		before := inUse()
		var calls sync.WaitGroup
		for range manyWaiting {
			calls.Go(func() {
				params := &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(`{}`)}
				if tool == "task" {
					if _, err := session.StartTool(b.Context(), params); err != nil {
						b.Error(err)
					}
					return
				}
				if _, err := session.CallTool(b.Context(), params); err != nil {
					b.Error(err)
				}
			})
		}
		for range manyWaiting {
			<-arrived
		}
		if tool == "task" {
			calls.Wait()
		}
		after := inUse()
		b.ReportMetric(float64(after.heap-before.heap)/manyWaiting, "heap-B/call")
		b.ReportMetric(float64(after.stack-before.stack)/manyWaiting, "stack-B/call")
		b.ReportMetric(float64(after.goroutines-before.goroutines)/manyWaiting, "goroutines/call")
		close(over)
		calls.Wait()
		if err := errors.Join(session.Close(context.Background()), s.Close(context.Background())); err != nil {
			b.Fatal(err)
		}
	}
}

// waitingServer has a tool that waits, one that does so as a task, and one that asks the user.
func waitingServer(wait func(context.Context)) *server.Server {
	s := server.New(protocol.Implementation{Name: "a", Version: "1"}, server.Options{Tasks: &server.TaskOptions{Legacy: true}})
	waits := func(ctx context.Context, _ struct{}) (string, error) {
		wait(ctx)
		return "done", nil
	}
	server.AddTool(s, protocol.Tool{Name: "wait"}, waits)
	server.AddTool(s, protocol.Tool{Name: "task", Execution: &protocol.ToolExecution{TaskSupport: protocol.TaskRequired}}, waits)
	server.AddTool(s, protocol.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		_, err := server.Elicit[struct{ Name string }](ctx, "Who are you?")
		return "done", err
	}, server.Asks(server.Reruns, protocol.ClientCapabilities{Elicitation: &protocol.ElicitationCapability{}}))
	return s
}

func waitingClient(b *testing.B, version string, accept func(transport.Link), wait func(context.Context)) *client.Session {
	c := client.New(protocol.Implementation{Name: "client", Version: "1"}, client.Options{
		ProtocolVersion: version, FailFast: true, Tasks: true,
		Elicit: func(ctx context.Context, _ *client.Session, _ *protocol.ElicitParams) (*protocol.ElicitResult, error) {
			wait(ctx)
			return client.Accept(struct{ Name string }{"Ada"})
		},
	})
	session, err := c.Connect(b.Context(), inmem.New(accept, inmem.Options{}))
	if err != nil {
		b.Fatal(err)
	}
	return session
}

func gatewayBefore(b *testing.B, version string, s *server.Server) *server.Server {
	g := gateway.New(gateway.Options{Each: func(of *mcpjson.Server, o *client.Options) {
		o.ProtocolVersion, of.Transport = version, inmem.New(s.Accept, inmem.Options{})
	}})
	file, err := mcpjson.Parse("mcp.json", []byte(`{"mcpServers":{"a":{"command":"/bin/a"}}}`))
	if err == nil {
		_, err = g.Apply(b.Context(), file)
	}
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { g.Close(context.Background()) })
	return g.Server()
}

type memory struct{ heap, stack, goroutines int }

// inUse measures after several collections, since each halves the stacks that are mostly unused.
func inUse() memory {
	for range 8 {
		runtime.GC()
	}
	debug.FreeOSMemory()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	return memory{int(now.HeapAlloc), int(now.StackInuse), runtime.NumGoroutine()}
}
