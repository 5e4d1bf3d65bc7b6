package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// cast adds a server with all that a server can have.
func (s *stage) cast(name string) *server.Server {
	of := named(name)
	s.servers[name] = of
	type given struct {
		Text string `json:"text,omitzero"`
		N    int    `json:"n,omitzero"`
	}
	add := func(tool protocol.Tool, serve func(context.Context, given) (string, error), o ...server.FeatureOption) {
		server.AddTool(of, tool, serve, o...)
	}
	add(protocol.Tool{Name: "fail", Description: "Fails."}, func(_ context.Context, in given) (string, error) { return "", errors.New(in.Text) })
	add(protocol.Tool{Name: "fault"}, func(_ context.Context, in given) (string, error) {
		return "", &jsonrpc.Error{Code: int64(in.N), Message: in.Text, Data: fmt.Appendf(nil, `{"of":%q}`, name)}
	})
	add(protocol.Tool{Name: "slow", Title: "Takes n seconds", Annotations: &protocol.ToolAnnotations{ReadOnlyHint: true}}, func(ctx context.Context, in given) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(in.N)*time.Second)
		defer cancel()
		<-ctx.Done()
		s.Note("tool of "+name, fmt.Sprintf("slow: %v", context.Cause(ctx)))
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return "slept", nil
		}
		return "", ctx.Err()
	})
	add(protocol.Tool{Name: "steps"}, func(ctx context.Context, in given) (string, error) {
		for i := range in.N {
			server.Progress(ctx, float64(i)+0.5, float64(in.N), fmt.Sprint(in.Text, i))
			pass(time.Second)
		}
		return "done", nil
	})
	add(protocol.Tool{Name: "log"}, func(ctx context.Context, in given) (string, error) {
		for i, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			server.Logger(ctx).Log(ctx, level, in.Text, "n", i)
		}
		return "logged", nil
	})
	return of
}

// playLegacy is what legacy clients see.
func playLegacy(s *stage) {
	s.backs = map[string]string{"a": protocol.LatestLegacy, "b": protocol.Latest}
	s.cast("a")
	s.cast("b")
	s.options.Server.PageSize = 5
	s.open(`{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}}}`)
	s.step("Ada and Bob come")
	ada := s.enters("ada", protocol.LatestLegacy, `{}`)
	synctest.Wait()
	bob := s.enters("bob", protocol.Version20250618, `{}`)
	s.step("Ada pings, and asks for what does not exist")
	ada.asks("ping", `{}`)
	ada.asks("nothing/here", `{"x":1}`)
	s.step("Ada reads all lists, page by page, and asks for a page that nobody has given")
	for _, list := range []string{"tools", "prompts", "resources", "resources/templates"} {
		ada.asksAll(list+"/list", `{}`)
	}
	ada.asks("tools/list", `{"cursor":"!"}`)
	s.step("Ada and Bob use what both servers have")
	bob.calls("b__who", `{"you":"bob"}`)
	synctest.Wait()
	for _, of := range []string{"a", "b"} {
		ada.asksAll("tools/call", fmt.Sprintf(`{"name":"%s__who","arguments":{"you":"ada"}}`, of))
		ada.asksAll("prompts/get", fmt.Sprintf(`{"name":"%s__greet","arguments":{"Name":"ada"}}`, of))
		ada.asksAll("resources/read", fmt.Sprintf(`{"uri":"%s:/one"}`, of))
		ada.asksAll("resources/read", fmt.Sprintf(`{"uri":"%s:/all/7"}`, of))
		ada.asksAll("completion/complete", fmt.Sprintf(`{"ref":{"type":"ref/prompt","name":"%s__greet"},"argument":{"name":"Name","value":""}}`, of))
		ada.asksAll("tools/call", fmt.Sprintf(`{"name":"%s__fail","arguments":{"text":"why"}}`, of))
		ada.asksAll("tools/call", fmt.Sprintf(`{"name":"%s__fault","arguments":{"text":"why","n":-32050}}`, of))
		ada.asksAll("tools/call", fmt.Sprintf(`{"name":"%s__who","arguments":{"you":7}}`, of))
	}
	s.step("Ada asks for what nobody has")
	ada.asksAll("tools/call", `{"name":"a__none","arguments":{}}`)
	ada.asksAll("tools/call", `{"name":"who"}`)
	ada.asksAll("tools/call", `{}`)
	ada.asksAll("prompts/get", `{"name":"c__greet"}`)
	ada.asksAll("resources/read", `{"uri":"c:/one"}`)
	ada.asksAll("resources/subscribe", `{"uri":"c:/one"}`)
	ada.asksAll("completion/complete", `{"ref":{"type":"ref/prompt","name":"none"},"argument":{"name":"Name","value":""}}`)
	s.metrics()
	s.step("Both have calls with progress, which Bob cancels")
	ada.calls("a__steps", `{"text":"step ","n":2}`, `"progressToken":"of ada"`)
	bob.calls("b__steps", `{"text":"step ","n":3}`, `"progressToken":7`)
	bob.calls("b__slow", `{"n":60}`, `"progressToken":8`)
	pass(1500 * time.Millisecond)
	bob.tells("notifications/cancelled", fmt.Sprintf(`{"requestId":%d,"reason":"enough"}`, bob.next))
	pass(10 * time.Second)
	s.step("Ada wants log messages, and then fewer")
	ada.asksAll("logging/setLevel", `{"level":"debug"}`)
	ada.asksAll("tools/call", `{"name":"a__log","arguments":{"text":"of ada"}}`)
	ada.asksAll("tools/call", `{"name":"b__log","arguments":{"text":"of ada"}}`)
	bob.asksAll("tools/call", `{"name":"a__log","arguments":{"text":"of bob"}}`)
	ada.asksAll("logging/setLevel", `{"level":"error"}`)
	ada.asksAll("tools/call", `{"name":"a__log","arguments":{"text":"of ada again"}}`)
	ada.asksAll("logging/setLevel", `{"level":"loud"}`)
	s.step("Ada and Bob subscribe to resources, which change; Bob does so no more")
	for _, of := range []string{"a", "b"} {
		ada.asksAll("resources/subscribe", fmt.Sprintf(`{"uri":"%s:/one"}`, of))
	}
	bob.asksAll("resources/subscribe", `{"uri":"a:/one"}`)
	s.updates("a", "b")
	bob.asksAll("resources/unsubscribe", `{"uri":"a:/one"}`)
	s.updates("a", "b")
	s.step("Server a gets a tool, and b loses its prompt")
	server.AddTool(s.servers["a"], protocol.Tool{Name: "new"}, func(context.Context, struct{}) (string, error) { return "new", nil })
	s.servers["b"].RemovePrompts("greet")
	pass(10 * time.Second)
	s.step("Ada leaves in the middle of a call")
	ada.calls("a__slow", `{"n":60}`)
	ada.leaves()
	pass(10 * time.Second)
	s.metrics()
}

// updates has resources of servers change.
func (s *stage) updates(names ...string) {
	for _, name := range names {
		s.servers[name].ResourceUpdated(name + ":/one")
		synctest.Wait()
	}
	pass(time.Second)
}

// playModern is what modern clients see.
func playModern(s *stage) {
	s.backs = map[string]string{"a": protocol.LatestLegacy, "b": protocol.Latest}
	s.cast("a")
	s.cast("b")
	s.options.Server.PageSize = 2
	s.open(`{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}}}`)
	s.step("Ada and Bob come, and ask what the gateway is")
	ada, bob := s.enters("ada", protocol.Latest, `{}`), s.enters("bob", protocol.Latest, `{"roots":{}}`)
	ada.asksAll("server/discover", `{}`)
	bob.asksAll("server/discover", `{}`)
	bob.asksAll("ping", `{}`)
	bob.asksAll("initialize", `{}`)
	s.step("Ada reads all lists, page by page, and Bob one of them")
	for _, list := range []string{"tools", "prompts", "resources", "resources/templates"} {
		ada.asksAll(list+"/list", `{}`)
	}
	bob.asksAll("prompts/list", `{}`)
	bob.asksAll("prompts/list", `{"cursor":"MQ"}`)
	s.step("Ada and Bob use what both servers have")
	for _, of := range []string{"a", "b"} {
		bob.asksAll("tools/call", fmt.Sprintf(`{"name":"%s__who","arguments":{"you":"bob"}}`, of), `"own/x":1`)
		ada.asksAll("prompts/get", fmt.Sprintf(`{"name":"%s__greet","arguments":{"Name":"ada"}}`, of))
		ada.asksAll("resources/read", fmt.Sprintf(`{"uri":"%s:/one"}`, of))
		ada.asksAll("completion/complete", fmt.Sprintf(`{"ref":{"type":"ref/resource","uri":"%s:/all/{N}"},"argument":{"name":"N","value":""}}`, of))
		ada.asksAll("tools/call", fmt.Sprintf(`{"name":"%s__fail","arguments":{"text":"why"}}`, of))
		ada.asksAll("tools/call", fmt.Sprintf(`{"name":"%s__fault","arguments":{"text":"why","n":-32050}}`, of))
	}
	s.step("Ada asks for what nobody has, and without what each request must say")
	ada.asksAll("tools/call", `{"name":"a__none","arguments":{}}`)
	ada.asksAll("prompts/get", `{"name":"c__greet"}`)
	ada.asksAll("resources/read", `{"uri":"c:/one"}`)
	ada.asksAll("logging/setLevel", `{"level":"debug"}`)
	ada.asksAll("resources/subscribe", `{"uri":"a:/one"}`)
	ada.send(`{"jsonrpc":"2.0","id":"plain","method":"tools/list","params":{}}`)
	s.step("Both have calls with progress, which Bob cancels")
	ada.calls("a__steps", `{"text":"step ","n":2}`, `"progressToken":"of ada"`)
	bob.calls("b__steps", `{"text":"step ","n":3}`, `"progressToken":7`)
	bob.calls("b__slow", `{"n":60}`)
	pass(1500 * time.Millisecond)
	bob.tells("notifications/cancelled", fmt.Sprintf(`{"requestId":%d,"reason":"enough"}`, bob.next))
	pass(10 * time.Second)
	s.step("Ada wants log messages of single calls")
	for _, of := range []string{"a", "b"} {
		ada.asksAll("tools/call", fmt.Sprintf(`{"name":"%s__log","arguments":{"text":"of ada"}}`, of), `"io.modelcontextprotocol/logLevel":"info"`)
		ada.asksAll("tools/call", fmt.Sprintf(`{"name":"%s__log","arguments":{"text":"of ada"}}`, of))
	}
	ada.asksAll("tools/call", `{"name":"a__log","arguments":{"text":"of ada"}}`, `"io.modelcontextprotocol/logLevel":"loud"`)
	s.step("Ada and Bob listen: Ada to all, Bob to tools and to one resource that nobody has")
	ada.asks("subscriptions/listen", `{"notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["a:/one","b:/one"]}}`)
	bob.asks("subscriptions/listen", `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["c:/one"]}}`)
	pass(2 * time.Second)
	s.updates("a", "b")
	s.step("Server a gets a tool and a resource, and b loses its template")
	server.AddTool(s.servers["a"], protocol.Tool{Name: "new"}, func(context.Context, struct{}) (string, error) { return "new", nil })
	pass(5 * time.Second)
	server.AddResource(s.servers["a"], protocol.Resource{URI: "a:/two", Name: "two"}, func(context.Context) (string, error) { return "2", nil })
	s.servers["b"].RemoveTemplates("b:/all/{N}")
	pass(10 * time.Second)
	s.step("Ada listens no more; a resource changes once more")
	ada.tells("notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, ada.next))
	pass(2 * time.Second)
	s.updates("a", "b")
	s.step("Bob leaves in the middle of a call")
	bob.calls("b__slow", `{"n":60}`)
	bob.leaves()
	pass(10 * time.Second)
	s.metrics()
}
