package gateway_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
)

// A session that has made no request yet is told of each change: nobody has decided what it sees.
//
// Guarantees: G-0098.19
func TestNewsForASessionThatHasAskedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := two()
		f := newFleetFor(t, protocol.Latest, servers, gateway.Options{}, load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"policy":[{"who":"token ada","allow":["a/*"]}]}}`))
		var told atomic.Int64
		f.identity = "token bob"
		f.client(protocol.LatestLegacy, client.Options{CacheBytes: -1, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if _, is := e.(*client.ToolsChanged); is {
				told.Add(1)
			}
		}})
		for _, name := range []string{"zero", "one"} { // with the first one comes what the servers had at their start
			told.Store(0)
			server.AddTool(servers["a"], protocol.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
			pass(10 * time.Second)
			synctest.Wait()
		}
		if n := told.Load(); n != 1 {
			t.Errorf("it was told %d times", n)
		}
	})
}

// What a session hears of lists follows its last request: the login may say something else by then. Once another policy is in force, it hears of all changes until its next request.
//
// Guarantees: G-0098.19
func TestNewsFollowTheLastRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := two()
		file := func(rules string) string {
			return fmt.Sprintf(`{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"policy":[%s]}}`, rules)
		}
		first, then := `{"who":"group:first","allow":["a/*"]}`, `{"who":"group:then","allow":["b/*"]}`
		f := newFleetFor(t, protocol.Latest, servers, gateway.Options{}, load(t, file(first+","+then)))
		var told atomic.Int64
		f.identity, f.principal = "token ada", claims{"groups": {"first"}}
		session := f.client(protocol.LatestLegacy, client.Options{CacheBytes: -1, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if _, is := e.(*client.ToolsChanged); is {
				told.Add(1)
			}
		}})
		tools := 0
		hears := func(when string, of map[string]bool) {
			t.Helper()
			for _, to := range []string{"a", "b"} {
				told.Store(0)
				tools++
				server.AddTool(servers[to], protocol.Tool{Name: fmt.Sprint("more", tools)}, func(context.Context, struct{}) (string, error) { return "", nil })
				pass(10 * time.Second)
				synctest.Wait()
				if got := told.Load() == 1; got != of[to] {
					t.Errorf("%s: after a change of %s it was told %d times", when, to, told.Load())
				}
			}
		}
		everything(t, session)
		server.AddTool(servers["a"], protocol.Tool{Name: "zero"}, func(context.Context, struct{}) (string, error) { return "", nil }) // with it comes what they had at their start
		pass(10 * time.Second)
		hears("first", map[string]bool{"a": true})
		f.who.Principal = claims{"groups": {"then"}}
		everything(t, session)
		hears("with another login", map[string]bool{"b": true})
		f.apply(load(t, file(then+","+first)))
		pass(10 * time.Second)
		hears("by another policy", map[string]bool{"a": true, "b": true})
		everything(t, session)
		hears("after a request", map[string]bool{"b": true})
	})
}

// Who has subscribed at the endpoint of a group hears of a resource for as long as the group has it.
//
// Guarantees: G-0098.19
func TestASubscriptionFollowsTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, o := two(), gateway.Options{}
		o.Server.Middleware = []server.Middleware{atOwnGroup}
		file := func(of string) string {
			return fmt.Sprintf(`{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"groups":{"ada":{"servers":[%q]}}}}`, of)
		}
		f := newFleetFor(t, protocol.Latest, servers, o, load(t, file("a")))
		var told atomic.Int64
		f.identity = "token ada"
		session := f.client(protocol.LatestLegacy, client.Options{OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if _, is := e.(*client.ResourceUpdated); is {
				told.Add(1)
			}
		}})
		everything(t, session)
		failOn(t, session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "a:/one"}))
		for _, c := range []struct {
			of   string
			want int64
		}{{"a", 1}, {"b", 0}, {"a", 1}} {
			f.apply(load(t, file(c.of)))
			pass(10 * time.Second)
			told.Store(0)
			servers["a"].ResourceUpdated("a:/one")
			pass(time.Second)
			synctest.Wait()
			if told.Load() != c.want {
				t.Errorf("while the group has %s, it is told %d times, want %d", c.of, told.Load(), c.want)
			}
		}
	})
}
