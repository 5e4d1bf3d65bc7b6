package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
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
		var told, toldOfPrompts atomic.Int64
		f.identity, f.principal = "token ada", claims{"groups": {"first"}}
		session := f.client(protocol.LatestLegacy, client.Options{CacheBytes: -1, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			switch e.(type) {
			case *client.ToolsChanged:
				told.Add(1)
			case *client.PromptsChanged:
				toldOfPrompts.Add(1)
			}
		}})
		tools := 0
		hears := func(when string, of map[string]bool) {
			t.Helper()
			for _, to := range []string{"a", "b"} {
				told.Store(0)
				toldOfPrompts.Store(0)
				tools++
				server.AddTool(servers[to], protocol.Tool{Name: fmt.Sprint("more", tools)}, func(context.Context, struct{}) (string, error) { return "", nil })
				server.AddPrompt(servers[to], protocol.Prompt{Name: fmt.Sprint("more", tools)}, func(context.Context, struct{}) (string, error) { return "", nil })
				pass(10 * time.Second)
				synctest.Wait()
				if tools, prompts := told.Load() == 1, toldOfPrompts.Load() == 1; tools != of[to] || prompts != of[to] {
					t.Errorf("%s: after a change of %s it was told %d times of tools, and %d times of prompts", when, to, told.Load(), toldOfPrompts.Load())
				}
			}
		}
		everything(t, session)
		server.AddTool(servers["a"], protocol.Tool{Name: "zero"}, func(context.Context, struct{}) (string, error) { return "", nil }) // with it comes what they had at their start
		server.AddPrompt(servers["a"], protocol.Prompt{Name: "zero"}, func(context.Context, struct{}) (string, error) { return "", nil })
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
		told.Store(0)
		f.apply(load(t, file("")[:strings.LastIndex(file(""), `,"bowline"`)]+"}"))
		pass(10 * time.Second)
		if synctest.Wait(); told.Load() != 1 {
			t.Errorf("when the file had no policy any more, it was told %d times", told.Load())
		}
		hears("without a policy", map[string]bool{"a": true, "b": true})
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

// A subscription that its server refuses is none: the client hears why, and nobody asks for it again when the server is back. The other ones of the server stay, also when one of them has ended.
//
// Guarantees: G-0088.7
func TestWhichSubscriptionsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		s := server.New(protocol.Implementation{Name: "s", Version: "1"}, server.Options{OnSubscribe: func(_ context.Context, uri string) error {
			if asked = append(asked, uri); uri == "a:/no" {
				return &jsonrpc.Error{Code: -32050, Message: "not this one"}
			}
			return nil
		}})
		for _, name := range []string{"no", "one", "two"} {
			server.AddResource(s, protocol.Resource{URI: "a:/" + name, Name: name}, func(context.Context) (string, error) { return name, nil })
		}
		f := newFleetWith(t, protocol.LatestLegacy, map[string]*server.Server{"a": s}, gateway.Options{})
		session := f.client(protocol.LatestLegacy, client.Options{})
		var refused *jsonrpc.Error
		if err := session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: "a:/no"}); !errors.As(err, &refused) || !strings.Contains(refused.Message, "not this one") {
			t.Errorf("refused: %v", err)
		}
		for _, uri := range []string{"a:/one", "a:/two"} {
			failOn(t, session.Subscribe(t.Context(), &protocol.SubscribeParams{URI: uri}))
		}
		failOn(t, session.Unsubscribe(t.Context(), &protocol.UnsubscribeParams{URI: "a:/one"}))
		synctest.Wait()
		asked = nil
		failOn(t, f.Do(t.Context(), "a", admin.Restart)) // the next session knows nothing of them, but from the gateway
		pass(5 * time.Second)
		if synctest.Wait(); !slices.Equal(asked, []string{"a:/two"}) {
			t.Errorf("the next connection was asked for %q", asked)
		}
	})
}
