package gateway_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
)

// A keeper is a server that remembers what it is told, for each of its processes.
func keeper() func() *server.Server {
	return func() *server.Server {
		var mu sync.Mutex
		kept := ""
		s := server.New(protocol.Implementation{Name: "keeper", Version: "1"}, server.Options{OnSubscribe: func(context.Context, string) error { return nil }})
		server.AddTool(s, protocol.Tool{Name: "keep"}, func(ctx context.Context, in struct{ What string }) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			before := kept
			kept = in.What
			return before, nil
		})
		server.AddTool(s, protocol.Tool{Name: "read"}, func(context.Context, struct{}) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return kept, nil
		})
		server.AddResource(s, protocol.Resource{URI: "kept:/it", Name: "it"}, func(context.Context) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			return kept, nil
		})
		return s
	}
}

// isolated starts a gateway over one server, which is another one on each connection, as a process would be.
func isolated(t *testing.T, version, block string, o gateway.Options) *fleet {
	t.Helper()
	made := keeper()
	f := newFleetFor(t, version, map[string]*server.Server{"a": made()}, o, load(t, `{"mcpServers":{"a":{"command":"/bin/a","bowline":`+block+`}}}`))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.each = made
	return f
}

func (f *fleet) clientOf(identity, version string) *client.Session {
	f.t.Helper()
	f.identity = identity
	return f.client(version, client.Options{})
}

// Users who do not share a connection never get what another one has said to the server, whatever they do in whatever order.
//
// Guarantees: G-0095.1
func TestIsolation(t *testing.T) {
	for _, share := range []string{"user", "client"} {
		for _, front := range []string{protocol.LatestLegacy, protocol.Latest} {
			t.Run(share+" "+front, func(t *testing.T) {
				f := isolated(t, protocol.LatestLegacy, `{"share":"`+share+`"}`, gateway.Options{})
				sessions := map[string]*client.Session{}
				owners := []string{"ann 1", "ann 2", "bob 1"}
				for _, who := range owners {
					sessions[who] = f.clientOf(who[:3], front)
				}
				ownerOf := func(who string) string {
					if share == "client" && protocol.IsLegacy(front) {
						return who
					}
					return who[:3]
				}
				kept, said := map[string]string{}, 0
				ctx := timeout(t)
				rapid.Check(t, func(t *rapid.T) {
					who := rapid.SampledFrom(owners).Draw(t, "who")
					before, session := kept[ownerOf(who)], sessions[who]
					var got string
					var err error
					switch rapid.SampledFrom([]string{"keep", "read", "resource", "restart"}).Draw(t, "what") {
					case "keep":
						said++
						kept[ownerOf(who)] = fmt.Sprint(who, said)
						got, err = client.Call[string](ctx, session, "a__keep", map[string]string{"What": kept[ownerOf(who)]})
					case "read":
						got, err = client.Call[string](ctx, session, "a__read", struct{}{})
					case "resource":
						var result *protocol.ReadResourceResult
						if result, err = session.ReadResource(ctx, &protocol.ReadResourceParams{URI: "kept:/it"}); err == nil {
							got = *result.Contents[0].Text
						}
					case "restart":
						if rapid.IntRange(0, 4).Draw(t, "really") > 0 {
							return
						}
						err = f.Do(ctx, "a", "restart")
						clear(kept)
						before = ""
					}
					if err != nil || got != before {
						t.Fatalf("%s gets %q, %v; want %q", who, got, err, before)
					}
				})
			})
		}
	}
}
