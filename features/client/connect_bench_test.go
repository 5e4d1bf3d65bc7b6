package client_test

import (
	"context"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
)

// BenchmarkConnect opens a session in memory and closes it, in both eras, with a server
// that waits for each session (ServeLink) and with one that does not (Accept).
func BenchmarkConnect(b *testing.B) {
	for _, era := range []struct{ name, version string }{{"legacy", protocol.LatestLegacy}, {"modern", protocol.Latest}} {
		s := echoServer(false)
		for _, serving := range []struct {
			name   string
			accept func(transport.Link)
		}{
			{"serve", func(link transport.Link) { go s.ServeLink(context.Background(), link) }},
			{"accept", s.Accept},
		} {
			b.Run(era.name+"/"+serving.name, func(b *testing.B) {
				over := inmem.New(serving.accept, inmem.Options{})
				c := client.New(clientInfo, client.Options{ProtocolVersion: era.version})
				b.ReportAllocs()
				for b.Loop() {
					session, err := c.Connect(context.Background(), over)
					if err == nil {
						err = session.Close(context.Background())
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		if err := s.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
