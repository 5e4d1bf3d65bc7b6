package gateway_test

import (
	"context"
	"errors"
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

// A client that does not say its roots, or does not answer, does not keep those of the file from the server.
//
// Guarantees: G-0088.21
func TestRootsOfAClientThatDoesNotSayThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := two()
		f := newFleetWith(t, protocol.LatestLegacy, all, gateway.Options{Roots: []protocol.Root{{URI: "file:///file"}}})
		synctest.Wait()
		for about, c := range map[string]struct {
			says  func(context.Context, *client.Session) ([]protocol.Root, error)
			after time.Duration
		}{
			"it fails": {func(context.Context, *client.Session) ([]protocol.Root, error) { return nil, errors.New("no") }, 0},
			"it does not answer": {func(ctx context.Context, _ *client.Session) ([]protocol.Root, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}, 5 * time.Second},
		} {
			silent := f.client(protocol.LatestLegacy, client.Options{Roots: c.says})
			pass(2 * time.Second) // until the servers are told that roots may be others
			for session := range all["a"].Sessions() {
				began := time.Now()
				if roots, err := session.Roots(t.Context()); err != nil || len(roots) != 1 || roots[0].URI != "file:///file" || time.Since(began) != c.after {
					t.Errorf("%s: %v, %v after %v", about, roots, err, time.Since(began))
				}
			}
			silent.Close(context.Background())
			synctest.Wait()
		}
	})
}

// Outside of calls, a server of one user has the roots that its entry in the file says, and not those for all servers, nor those of a session.
//
// Guarantees: G-0088.8, G-0088.21
func TestRootsOfAServerOfOneUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := isolated(t, protocol.LatestLegacy, `{"share":"user","roots":["file:///own"]}`, gateway.Options{Roots: []protocol.Root{{URI: "file:///file"}}})
		i.identity = "ann"
		callKeep(t, i.client(protocol.LatestLegacy, user("ann")))
		for _, k := range i.of("x") {
			for session := range k.Sessions() {
				if roots, err := session.Roots(t.Context()); err != nil || len(roots) != 1 || roots[0].URI != "file:///own" {
					t.Errorf("%v, %v", roots, err)
				}
			}
		}
	})
}
