package peers

import (
	"context"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	mcpgotransport "github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	benchRevision = "2025-11-25"
	roundCalls    = 256 // of each implementation in each iteration
)

var benchCall = Call{Tool: "echo", Arguments: map[string]any{
	"message": "0123456789012345678901234567890123456789012345678901234567890123",
}}

// A contestant is a client and a server of the same implementation.
type contestant struct {
	name    string
	connect func(testing.TB) Session
}

// BenchmarkEcho calls a tool that echoes 64 bytes, in 2025-11-25 and, where it
// says modern, in 2026-07-28. The implementations take turns, a round of calls
// each, so that a busy machine is busy for all of them. What is reported is each
// one's median round, per call. The floor of HTTP is net/http with encoding/json.
func BenchmarkEcho(b *testing.B) {
	built := programs(b)
	wires := []struct {
		name        string
		contestants []contestant
	}{
		{"memory", []contestant{
			{"bowline", memoryBowline(benchRevision)}, {"bowline-modern", memoryBowline(protocol.Latest)},
			{"go-sdk", memoryGoSDK}, {"mcp-go", memoryMCPGo},
		}},
		{"stdio", processes(built)},
		{"http", endpoints(built)},
	}
	for _, wire := range wires {
		b.Run(wire.name+"/callers=1", func(b *testing.B) { race(b, wire.contestants, 1) })
		b.Run(wire.name+"/callers=64", func(b *testing.B) { race(b, wire.contestants, 64) })
	}
}

func race(b *testing.B, contestants []contestant, callers int) {
	var sessions []Session
	for _, c := range contestants {
		sessions = append(sessions, c.connect(b))
	}
	rounds := make([][]time.Duration, len(contestants))
	for b.Loop() {
		for i, session := range sessions {
			started := time.Now()
			playRound(b, session, callers)
			rounds[i] = append(rounds[i], time.Since(started))
		}
	}
	for i, c := range contestants {
		slices.Sort(rounds[i])
		median := rounds[i][len(rounds[i])/2]
		b.ReportMetric(float64(median.Nanoseconds())/roundCalls, c.name+"-ns/call")
	}
	b.ReportMetric(0, "ns/op") // the sum of all rounds means nothing
}

func playRound(b *testing.B, session Session, callers int) {
	var calling sync.WaitGroup
	for range callers {
		calling.Go(func() {
			for range roundCalls / callers {
				if _, err := session.CallTool(context.Background(), benchCall); err != nil {
					b.Error(err)
				}
			}
		})
	}
	calling.Wait()
}

func processes(p *Programs) []contestant {
	process := func(name string, connect Connect) contestant {
		return contestant{name, func(tb testing.TB) Session {
			session, err := connect(context.Background(), Endpoint{Command: []string{p.Peer, name}}, benchRevision)
			return closedAfter(tb, session, err)
		}}
	}
	return []contestant{
		process("bowline", connectBowline), process("go-sdk", connectGoSDK), process("mcp-go", connectMCPGo),
	}
}

func endpoints(p *Programs) []contestant {
	endpoint := func(name, server, revision string, connect Connect) contestant {
		return contestant{name, func(tb testing.TB) Session {
			ctx, cancel := context.WithTimeout(context.Background(), hangGuard)
			defer cancel()
			process, err := serve(ctx, []string{p.Peer, "http", server, revision}, "0")
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(process.close)
			session, err := connect(context.Background(), Endpoint{URL: process.url}, revision)
			return closedAfter(tb, session, err)
		}}
	}
	return []contestant{
		endpoint("floor", "floor", "", connectFloor),
		endpoint("bowline", "bowline", benchRevision, connectBowline),
		endpoint("bowline-modern", "bowline", protocol.Latest, connectBowline),
		endpoint("go-sdk", "go-sdk", benchRevision, connectGoSDK),
		endpoint("go-sdk-modern", "go-sdk", protocol.Latest, connectGoSDK),
		endpoint("mcp-go", "mcp-go", benchRevision, connectMCPGo),
		endpoint("mcp-go-modern", "mcp-go", protocol.Latest, connectMCPGo),
	}
}

func closedAfter(tb testing.TB, session Session, err error) Session {
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := session.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return session
}

func memoryBowline(revision string) func(testing.TB) Session {
	return func(tb testing.TB) Session {
		var serving sync.WaitGroup
		tb.Cleanup(serving.Wait)
		wire := inmem.New(func(link transport.Link) {
			serving.Go(func() {
				if err := newBowlineServer().ServeLink(context.Background(), link); err != nil {
					tb.Error(err)
				}
			})
		}, inmem.Options{})
		session, err := openBowline(context.Background(), wire, revision)
		return closedAfter(tb, session, err)
	}
}

func memoryGoSDK(tb testing.TB) Session {
	ours, theirs := mcp.NewInMemoryTransports()
	if _, err := newGoSDKServer().Connect(context.Background(), theirs, nil); err != nil {
		tb.Fatal(err)
	}
	session, err := openGoSDK(context.Background(), ours, benchRevision)
	return closedAfter(tb, session, err)
}

// memoryMCPGo has the wire of its stdio transport, on pipes in memory: its
// in-process transport has none.
func memoryMCPGo(tb testing.TB) Session {
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	var serving sync.WaitGroup
	tb.Cleanup(serving.Wait)
	serving.Go(func() {
		defer out.Close()
		if err := mcpgo.NewStdioServer(newMCPGoServer()).Listen(context.Background(), in, out); err != nil {
			tb.Error(err)
		}
	})
	wire := mcpgotransport.NewIO(fromServer, toServer, io.NopCloser(nil))
	session, err := openMCPGo(context.Background(), wire, benchRevision)
	return closedAfter(tb, session, err)
}
