package gateway_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// BenchmarkCall calls a tool in memory, directly and through a gateway, for each pair of revisions. What the gateway adds is the
// difference between two lines.
func BenchmarkCall(b *testing.B) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		b.Run("direct/"+version, func(b *testing.B) { call(b, version, echoServer(b), "echo") })
		for _, behind := range []string{protocol.LatestLegacy, protocol.Latest} {
			b.Run("gateway/"+version+"-to-"+behind, func(b *testing.B) { call(b, version, benchGateway(b, behind), "a__echo") })
		}
	}
}

// BenchmarkList lists a thousand tools, directly and through a gateway.
func BenchmarkList(b *testing.B) {
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		b.Run("direct/"+version, func(b *testing.B) { list(b, version, echoServer(b)) })
		b.Run("gateway/"+version, func(b *testing.B) { list(b, version, benchGateway(b, version)) })
		b.Run("policy/"+version, func(b *testing.B) { list(b, version, benchGateway(b, version, allowingAll)) })
	}
}

func call(b *testing.B, version string, s *server.Server, tool string) {
	session := benchClient(b, version, s)
	params := &protocol.CallToolParams{Name: tool, Arguments: json.RawMessage(`{"message":"0123456789012345678901234567890123456789"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := session.CallTool(b.Context(), params); err != nil {
			b.Fatal(err)
		}
	}
}

func list(b *testing.B, version string, s *server.Server) {
	session := benchClient(b, version, s)
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range session.Tools(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != 1001 {
			b.Fatalf("%d tools", n)
		}
	}
}

func benchClient(b testing.TB, version string, s *server.Server) *client.Session {
	return benchClientOver(b, version, s.Accept)
}

func benchClientOver(b testing.TB, version string, accept func(transport.Link)) *client.Session {
	c := client.New(protocol.Implementation{Name: "client", Version: "1"}, client.Options{ProtocolVersion: version, FailFast: true, CacheBytes: -1})
	session, err := c.Connect(b.Context(), inmem.New(accept, inmem.Options{}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { session.Close(context.Background()) })
	return session
}

// echoServer has an echo, and a thousand other tools.
func echoServer(b testing.TB) *server.Server {
	s := server.New(protocol.Implementation{Name: "a", Version: "1"}, server.Options{})
	raw := json.RawMessage(`{"type":"object","properties":{"message":{"type":"string"}}}`)
	server.AddTool(s, protocol.Tool{Name: "echo", InputSchema: raw},
		func(_ context.Context, p *protocol.CallToolParams) (string, error) { return string(p.Arguments), nil })
	for i := range 1000 {
		server.AddTool(s, protocol.Tool{Name: toolNumber(i), InputSchema: raw, Description: "does nothing, and is there to be listed"},
			func(context.Context, *protocol.CallToolParams) (string, error) { return "", nil })
	}
	b.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func toolNumber(i int) string {
	return "tool-" + string([]byte{byte('0' + i/100), byte('0' + i/10%10), byte('0' + i%10)})
}

// allowingAll is a policy that has to be asked about everything.
const allowingAll = `,"bowline":{"policy":[{"who":"token ada","deny":["a/*"]},{"deny":["a/delete_*"]},{"allow":["a/*"]}]}`

// benchGateway serves an echoServer. A block follows the servers in its file.
func benchGateway(b testing.TB, version string, block ...string) *server.Server {
	s := echoServer(b)
	g := gateway.New(gateway.Options{Each: func(of *mcpjson.Server, o *client.Options) {
		o.ProtocolVersion = version
		of.Transport = inmem.New(s.Accept, inmem.Options{})
	}})
	file, err := mcpjson.Parse("mcp.json", []byte(`{"mcpServers":{"a":{"command":"/bin/a"}}`+strings.Join(block, "")+`}`))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := g.Apply(b.Context(), file); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { g.Close(context.Background()) })
	return g.Server()
}
