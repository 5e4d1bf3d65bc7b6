package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"github.com/bowline-mcp/bowline/transport/stdio"
	mcpgotransport "github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/server"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const benchText = "0123456789012345678901234567890123456789012345678901234567890123"

// A contestant is a client and a server of the same implementation. Its echo
// calls once, and fails when the answer is not what was sent.
type contestant struct {
	name    string
	connect func(testing.TB) (echo func() error)
}

// inMemory are those on a wire in memory, where encoded frames pass.
func inMemory() []contestant {
	return []contestant{
		{"floor", linesFloor}, {"floor-frames", framesFloor},
		{"bowline-raw", memoryBowline(benchRevision, rawEcho)},
		{"bowline-typed", memoryBowline(benchRevision, typedEcho)},
		{"bowline-typed-modern", memoryBowline(protocol.Latest, typedEcho)},
		{"go-sdk", memoryGoSDK},
		{"mcp-go", memoryMCPGo},
	}
}

// processes are those whose server is a child.
func processes(p *Programs) []contestant {
	process := func(name string, connect Connect) contestant {
		return contestant{name, func(tb testing.TB) func() error {
			session, err := connect(context.Background(), Endpoint{Command: []string{p.Peer, name}}, benchRevision)
			return sessionEcho(tb, session, err)
		}}
	}
	bowline := func(name string, echo bowlineEcho) contestant {
		return contestant{name, func(tb testing.TB) func() error {
			return echo(openEcho(tb, &stdio.Command{Path: p.Peer, Args: []string{"echo"}}, benchRevision))
		}}
	}
	floor := func(tb testing.TB) func() error {
		client, wait, err := startFloor([]string{p.Peer, "floor"})
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { checkClosed(tb, wait()) })
		return floorEchoes(tb, client)
	}
	return []contestant{
		{"floor", floor}, bowline("bowline-raw", rawEcho), bowline("bowline-typed", typedEcho),
		process("go-sdk", connectGoSDK), process("mcp-go", connectMCPGo),
	}
}

// endpoints are those whose server is one of HTTP.
func endpoints(p *Programs) []contestant {
	endpoint := func(name, server, revision string, connect Connect) contestant {
		return contestant{name, func(tb testing.TB) func() error {
			ctx, cancel := context.WithTimeout(context.Background(), hangGuard)
			defer cancel()
			process, err := serve(ctx, []string{p.Peer, "http", server, revision}, "0")
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(process.close)
			session, err := connect(context.Background(), Endpoint{URL: process.url}, revision)
			return sessionEcho(tb, session, err)
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

// sessionEcho calls the tool echo of the suite's servers.
func sessionEcho(tb testing.TB, session Session, err error) func() error {
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { checkClosed(tb, session.Close(context.Background())) })
	call := Call{Tool: "echo", Arguments: map[string]any{"message": benchText}}
	return func() error {
		result, err := session.CallTool(context.Background(), call)
		if err != nil {
			return err
		}
		return sameText(result.Text, benchText)
	}
}

func checkClosed(tb testing.TB, err error) {
	if err != nil {
		tb.Error(err)
	}
}

func sameText(got, want string) error {
	if got != want {
		return fmt.Errorf("the answer to %q is %q", want, got)
	}
	return nil
}

// linesFloor has the wire of its other pipes, in memory.
func linesFloor(tb testing.TB) func() error {
	ours, theirs := net.Pipe()
	return memoryFloor(tb, newFloorLines(ours, ours), newFloorLines(theirs, theirs))
}

func framesFloor(tb testing.TB) func() error {
	ours, theirs := newFloorFrames()
	return memoryFloor(tb, ours, theirs)
}

func memoryFloor(tb testing.TB, ours, theirs floorWire) func() error {
	var serving sync.WaitGroup
	tb.Cleanup(serving.Wait)
	serving.Go(func() { checkClosed(tb, serveFloorOn(theirs)) })
	return floorEchoes(tb, newFloorClient(ours))
}

func floorEchoes(tb testing.TB, client *floorClient) func() error {
	tb.Cleanup(func() { checkClosed(tb, client.Close()) })
	return func() error {
		text, err := client.echo(benchText)
		if err != nil {
			return err
		}
		return sameText(text, benchText)
	}
}

// A bowlineEcho calls a tool of newEchoServer.
type bowlineEcho func(*client.Session) (echo func() error)

// typedEcho encodes a Go value, as the floor does, and has it decoded.
func typedEcho(session *client.Session) func() error {
	return func() error {
		arguments, err := json.Marshal(message{benchText})
		if err != nil {
			return err
		}
		return callEcho(session, "echo", arguments, benchText)
	}
}

// rawEcho has the arguments as JSON, and gets them back as text.
func rawEcho(session *client.Session) func() error {
	text := `{"message":"` + benchText + `"}`
	arguments := json.RawMessage(text)
	return func() error { return callEcho(session, "raw", arguments, text) }
}

func callEcho(session *client.Session, tool string, arguments json.RawMessage, want string) error {
	result, err := session.CallTool(context.Background(), &protocol.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil {
		return err
	}
	return sameText(result.Content.Text(), want)
}

func openEcho(tb testing.TB, t transport.Transport, revision string) *client.Session {
	session, err := connectEcho(context.Background(), t, revision)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { checkClosed(tb, session.Close(context.Background())) })
	return session
}

func memoryBowline(revision string, echo bowlineEcho) func(testing.TB) func() error {
	return func(tb testing.TB) func() error {
		var serving sync.WaitGroup
		tb.Cleanup(serving.Wait)
		wire := inmem.New(func(link transport.Link) {
			serving.Go(func() { checkClosed(tb, newEchoServer().ServeLink(context.Background(), link)) })
		}, inmem.Options{QueueFrames: 1024}) // one for each caller: on a machine that is held up a full link refuses some (ADR-0007)
		return echo(openEcho(tb, wire, revision))
	}
}

func memoryGoSDK(tb testing.TB) func() error {
	ours, theirs := mcp.NewInMemoryTransports()
	if _, err := newGoSDKServer().Connect(context.Background(), theirs, nil); err != nil {
		tb.Fatal(err)
	}
	session, err := openGoSDK(context.Background(), ours, benchRevision)
	return sessionEcho(tb, session, err)
}

// memoryMCPGo has the wire of its stdio transport, on pipes in memory: its
// in-process transport has none.
func memoryMCPGo(tb testing.TB) func() error {
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	var serving sync.WaitGroup
	tb.Cleanup(serving.Wait)
	serving.Go(func() {
		defer out.Close()
		server := mcpgo.NewStdioServer(newMCPGoServer())
		server.SetErrorLogger(log.New(io.Discard, "", 0)) // it tells of every call that finds its queue full
		checkClosed(tb, server.Listen(context.Background(), in, out))
	})
	wire := mcpgotransport.NewIO(fromServer, toServer, io.NopCloser(nil))
	session, err := openMCPGo(context.Background(), wire, benchRevision)
	return sessionEcho(tb, session, err)
}
