package gateway_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/internal/impatient"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// These are what an impatient client sends to a gateway.
var (
	impatientRequests = []string{
		`{"jsonrpc":"2.0","id":ID,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{"listChanged":true},"elicitation":{},"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":ID,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":ID,"method":"logging/setLevel","params":{"level":"debug"}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"a__who","arguments":{"you":"me"},"_meta":{"progressToken":ID}}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"b__ask"}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"resources/subscribe","params":{"uri":"a:/one"}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"resources/unsubscribe","params":{"uri":"a:/one"}}`,
		`{"jsonrpc":"2.0","id":ID,"method":"tools/call","params":{"name":"a__who","arguments":{"you":"me"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"m","version":"1"}}}}`,
	}
	impatientOthers = []string{
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":OTHER}}`,
		`{"jsonrpc":"2.0","id":OTHER,"result":{"roots":[]}}`,
		`{"jsonrpc":"2.0","id":OTHER,"error":{"code":-32603,"message":"no"}}`,
	}
)

// Clients send to a gateway in any order, without waiting for answers, while servers end, the lists change, and people look at the gateway. Each request is
// answered once, unless the client has cancelled it or has left.
//
// Guarantees: G-0003.10, G-0088.5
func TestClientsThatDoNotWait(t *testing.T) {
	file := fileOf(t, "a", "b")
	rapid.Check(t, func(r *rapid.T) {
		rapid.SyncTest(r, func(r *rapid.T) {
			servers := two()
			server.AddTool(servers["b"], protocol.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
				_, err := server.Roots(ctx)
				return "", errors.Join(err, server.Confirm(ctx, "really?"))
			})
			f := &fleet{t: t, servers: servers, links: make(map[string]transport.Link), broken: make(map[string]bool), opened: make(map[string]int)}
			revision := rapid.SampledFrom([]string{protocol.LatestLegacy, protocol.Latest}).Draw(r, "revision of servers")
			f.Gateway = gateway.New(gateway.Options{Each: func(s *mcpjson.Server, o *client.Options) {
				o.ProtocolVersion = revision
				o.Conn.BackoffMin, o.Conn.BackoffMax = 50*time.Millisecond, time.Second
				s.Transport = &place{f, s.Name}
			}})
			_, err := f.Apply(context.Background(), file)
			failOn(t, err)
			synctest.Wait() // the servers have been reached
			ours, theirs := inmem.Pipe(inmem.Options{})
			peer := impatient.New(ours)
			f.Server().Accept(theirs)
			var meanwhile sync.WaitGroup
			for range rapid.IntRange(1, 20).Draw(r, "frames") {
				peer.Send(r, impatientRequests, impatientOthers)
				switch rapid.IntRange(0, 6).Draw(r, "meanwhile") {
				case 0:
					synctest.Wait()
				case 1:
					meanwhile.Go(func() { f.Report() })
				case 2:
					meanwhile.Go(func() { servers["a"].ListChanged(server.KindTool); servers["a"].ResourceUpdated("a:/one") })
				case 3:
					f.kill(rapid.SampledFrom([]string{"a", "b"}).Draw(r, "server"), true)
				}
			}
			if !rapid.Bool().Draw(r, "leaves at once") {
				pass(time.Hour) // what nobody answers expires
				peer.Check(r)
			}
			ours.Close(0)
			meanwhile.Wait()
			pass(time.Minute)
			if report := f.Report(); len(report.Clients) != 0 {
				r.Errorf("it has left, and there are %d clients", len(report.Clients))
			}
			if err := f.Close(context.Background()); err != nil {
				r.Errorf("Close: %v", err)
			}
			for _, s := range servers {
				s.Close(context.Background())
			}
		})
	})
}
