package gateway_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
)

// A server of one client's session has the roots of that client, also when it asks as soon as its session has begun, and after they have changed.
//
// Guarantees: G-0088.21
func TestRootsOfAServerOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleetFor(t, protocol.LatestLegacy, map[string]*server.Server{}, gateway.Options{Roots: []protocol.Root{{URI: "file:///file"}}}, load(t, `{"mcpServers":{}}`))
		f.each = func() *server.Server {
			k := newKeeper()
			server.AddTool(k.Server, protocol.Tool{Name: "begin"}, func(ctx context.Context, _ struct{}) (string, error) {
				s := server.RequestFrom(ctx).Session
				go func() { // outside of the call, as a server does when its session begins
					<-time.NewTimer(time.Second).C
					if roots, err := s.Roots(context.Background()); err != nil || len(roots) != 1 {
						t.Errorf("%v, %v", roots, err)
					} else {
						k.swap(roots[0].URI)
					}
				}()
				return "", nil
			})
			return k.Server
		}
		f.apply(oneWith(t, `{"share":"client"}`))
		sessions := map[string]*client.Session{}
		for _, who := range []string{"ada", "bob"} {
			sessions[who] = f.client(protocol.LatestLegacy, user(who))
			if _, err := client.Call[string](t.Context(), sessions[who], "a__begin", nil); err != nil {
				t.Fatal(err)
			}
		}
		<-time.NewTimer(3 * time.Second).C
		for who, session := range sessions {
			if got, err := client.Call[string](t.Context(), session, "a__read", nil); err != nil || got != "file:///"+who {
				t.Errorf("the server of %s has %q, %v", who, got, err)
			}
		}
	})
}
