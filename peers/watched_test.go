package peers

import (
	"context"
	"testing"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/specification"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
)

// schemaContext is the context of a test. Each message that a Bowline client sends
// under it, and that does not fit the schema of its revision, fails the test. The schemas
// are compiled before any timeout starts.
func schemaContext(t *testing.T) context.Context {
	for _, version := range protocol.Versions() {
		specification.Of(version)
	}
	return withObserver(t.Context(), func(to transport.Transport) transport.Transport { return specification.WatchClient(t, to) })
}

// A watchedServer checks each of its messages against the schema of its revision.
type watchedServer struct {
	*server.Server
	watch func(transport.Link) transport.Link
}

func watchServer(t testing.TB, s *server.Server) *watchedServer {
	return &watchedServer{s, specification.WatchServer(t)}
}

func (s *watchedServer) Accept(link transport.Link) { s.Server.Accept(s.watch(link)) }
