package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/transport"
)

// playAway is what clients see of servers in trouble.
func playAway(s *stage) {
	s.loose = true
	s.backs = map[string]string{"a": protocol.LatestLegacy, "b": protocol.Latest}
	s.cast("a")
	s.cast("b")
	var answer atomic.Pointer[string]
	s.others = map[string]transport.Transport{"c": script(func(m jsonrpc.Message, send func(string)) string {
		if m.Method == protocol.MethodListTools {
			return `{"tools":[{"name":"say","inputSchema":{"type":"object"}},{"name":7},{"inputSchema":{}}]}`
		}
		send(`this is no message`)
		send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"nobody's","progress":1}}`)
		if text := answer.Load(); text != nil {
			return *text
		}
		pass(20 * time.Second)
		return `{}`
	})}
	s.breaks("b", true)
	s.open(`{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"},"c":{"command":"/bin/c","bowline":{"requestTimeout":"10s"}}}}`)
	s.step("Ada and Bob come; b has never answered")
	ada := s.enters("ada", protocol.LatestLegacy, `{}`)
	bob := s.enters("bob", protocol.Latest, `{}`)
	ada.asks("tools/list", `{}`)
	bob.asks("resources/read", `{"uri":"b:/one"}`)
	bob.calls("b__who", `{}`)
	pass(20 * time.Second)
	s.detail("b")
	s.step("b comes")
	s.breaks("b", false)
	pass(time.Minute)
	bob.calls("b__who", `{}`)
	s.detail("b")
	s.step("c answers what it must not, is late, and answers then")
	for _, text := range []string{`7`, `{"content":"x"}`, `{}`, `{"content":[{"type":"text","text":"ok"}]}`} {
		synctest.Wait()
		answer.Store(&text)
		ada.calls("c__say", `{}`)
		bob.calls("c__say", `{}`)
	}
	synctest.Wait()
	answer.Store(nil)
	bob.calls("c__say", `{}`)
	pass(30 * time.Second)
	s.step("a dies in two calls, and comes back with the next one")
	ada.calls("a__slow", `{"n":60}`)
	bob.calls("a__slow", `{"n":60}`)
	synctest.Wait()
	s.kill("a", true)
	synctest.Wait()
	s.report()
	ada.calls("a__who", `{}`)
	pass(5 * time.Second)
	s.step("a dies, and does not come back: all that needs it says so")
	s.kill("a", false)
	ada.calls("a__who", `{}`)
	for _, who := range []*actor{ada, bob} {
		for _, request := range []string{
			`tools/call {"name":"a__who"}`, `resources/read {"uri":"a:/one"}`, `prompts/get {"name":"a__greet","arguments":{"Name":"x"}}`,
			`completion/complete {"ref":{"type":"ref/prompt","name":"a__greet"},"argument":{"name":"Name","value":""}}`, `tools/list {}`,
		} {
			method, params, _ := strings.Cut(request, " ")
			who.asks(method, params)
			pass(10 * time.Second)
		}
	}
	ada.asks("resources/subscribe", `{"uri":"a:/one"}`)
	pass(time.Minute)
	s.step("A person restarts, stops, starts and wakes servers")
	s.does("a", admin.Wake)
	s.breaks("a", false)
	s.does("a", admin.Wake)
	s.does("a", admin.Restart)
	s.does("a", admin.Stop)
	ada.calls("a__who", `{}`)
	s.does("a", admin.Wake)
	s.does("a", admin.Start)
	ada.calls("a__who", `{}`)
	s.does("a", "dance")
	s.does("d", admin.Stop)
	s.step("b says why it ends, and cannot be reached for another reason")
	s.reach(fails(errors.New("the disk is full")))
	s.kill("b", true)
	pass(10 * time.Second)
	bob.calls("b__who", `{}`)
	s.detail("b")
	s.reach(nil)
	pass(time.Minute)
	s.metrics()
	s.step("A person calls a tool, and one that is not there")
	for _, tool := range []string{"a__who", "a__none"} {
		result, err := s.Call(context.Background(), tool, []byte(`{"you":"person"}`))
		s.Note("gateway", fmt.Sprintf("%s %s", result, reasonOf(err)))
	}
}

// playFiles is what other files change.
func playFiles(s *stage) {
	s.loose = true
	s.backs = map[string]string{"a": protocol.LatestLegacy, "b": protocol.Latest, "c": protocol.Latest}
	for _, name := range []string{"a", "b", "c"} {
		s.cast(name)
	}
	s.options.IsOwn = func(url string) bool { return strings.Contains(url, "own") }
	s.open(`{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}}}`)
	s.step("Ada and Bob come, and listen")
	ada := s.enters("ada", protocol.LatestLegacy, `{}`)
	bob := s.enters("bob", protocol.Latest, `{}`)
	bob.asks("subscriptions/listen", `{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["b:/one"]}}`)
	ada.asks("resources/subscribe", `{"uri":"b:/one"}`)
	pass(5 * time.Second)
	s.step("c is added, a runs another command, and b has another name for its tools")
	s.applies(`{"mcpServers":{"a":{"command":"/bin/other"},"b":{"command":"/bin/b","bowline":{"prefix":"bee"}},"c":{"command":"/bin/c"}}}`)
	pass(5 * time.Second)
	ada.asks("tools/list", `{}`)
	bob.calls("bee__who", `{}`)
	bob.calls("b__who", `{}`)
	s.step("b is disabled in the middle of a call, and c is gone")
	ada.calls("bee__slow", `{"n":2}`)
	synctest.Wait()
	s.applies(`{"mcpServers":{"a":{"command":"/bin/other"},"b":{"command":"/bin/b","disabled":true}}}`)
	pass(5 * time.Second)
	bob.calls("bee__who", `{}`)
	s.step("Files with mistakes")
	for _, file := range []string{
		`{"mcpServers":{"a":{"command":"/bin/other","bowline":{"start":"never"}},"d":{"url":"http://own/mcp"},"e":{"command":"/bin/e","bowline":{"instances":"one","share":"user"}}}}`,
		`{"mcpServers":{"a":{"command":"/bin/other"}},"bowline":{"policy":[{"allow":["nobody/*"]}],"maxName":7}}`,
		`{"mcpServers":{"a":{"command":"/bin/other","bowline":{"prefix":""}},"b":{"command":"/bin/b","bowline":{"prefix":""}}}}`,
		`{"mcpServers":{"f":{"url":"http://f/mcp","bowline":{"login":"user"}}}}`,
	} {
		s.applies(file)
		pass(5 * time.Second)
		s.report()
	}
	s.NotApplied(errors.New("line 3: it is no JSON\nline 4: nor is this"))
	s.report()
	s.step("a starts on demand and stops when it is idle; b lives for an hour")
	s.applies(`{"mcpServers":{"a":{"command":"/bin/other","bowline":{"start":"demand","idleStop":"5m"}},"b":{"command":"/bin/b","bowline":{"maxLife":"1h"}}}}`)
	pass(6 * time.Minute)
	s.report()
	ada.calls("a__who", `{}`)
	ada.calls("a__slow", `{"n":600}`)
	pass(8 * time.Minute)
	s.report()
	pass(8 * time.Minute)
	s.report()
	s.step("a cannot be started when it is needed")
	s.breaks("a", true)
	bob.calls("a__who", `{}`)
	pass(20 * time.Minute)
	s.breaks("a", false)
	bob.calls("a__who", `{}`)
	s.does("a", admin.Stop)
	bob.calls("a__who", `{}`)
	s.does("a", admin.Start)
	s.step("Ada and Bob leave, and an hour passes")
	ada.leaves()
	bob.leaves()
	pass(time.Hour)
	pass(10 * time.Second)
	s.metrics()
}

// playNames is what becomes of names, descriptions and lists.
func playNames(s *stage) {
	s.loose = true
	s.backs = map[string]string{"a": protocol.LatestLegacy, "b": protocol.Latest}
	a := s.cast("a")
	s.cast("b")
	server.AddTool(a, protocol.Tool{Name: strings.Repeat("long", 20)}, func(context.Context, struct{}) (string, error) { return "long", nil })
	server.AddTool(a, protocol.Tool{Name: "talk", Description: strings.Repeat("word ", 5000)}, func(context.Context, struct{}) (string, error) { return "talked", nil })
	server.AddResource(s.servers["b"], protocol.Resource{URI: "a:/one", Name: "another's"}, func(context.Context) (string, error) { return "b's", nil })
	many := func(m jsonrpc.Message, _ func(string)) string {
		if m.Method != protocol.MethodListTools {
			return `{"content":[]}`
		}
		all := []string{
			`{"name":"tool007","inputSchema":{"type":"object"}}`, `{"name":"","inputSchema":{"type":"object"}}`, `{"name":"no-schema"}`, `7`,
			`{"name":"refers","inputSchema":{"$ref":"http://x/"}}`, `{"name":"with space & <signs>","inputSchema":{"type":"object"}}`,
		}
		for i := range 200 {
			all = append(all, fmt.Sprintf(`{"name":"tool%03d","inputSchema":{"type":"object"}}`, i))
		}
		return `{"tools":[` + strings.Join(all, ",") + `]}`
	}
	s.others = map[string]transport.Transport{"c": script(many)}
	s.options.Catalogue = filepath.Join(s.t.TempDir(), "catalogue.json")
	s.open(`{"mcpServers":{
		"a":{"command":"/bin/a","bowline":{"tools":{"rename":{"who":"whoami"},"describe":{"fail":"It always fails."},"deny":["st*"]},"roots":["file:///a"]}},
		"b":{"command":"/bin/b","bowline":{"prefix":"","tools":{"allow":["who","slow"]},"prompts":{"deny":["*"]},"resources":{"allow":["b:/*"]}}},
		"c":{"command":"/bin/c"}},"bowline":{"maxName":40}}`)
	s.step("Ada reads all lists, Bob calls by names")
	ada := s.enters("ada", protocol.LatestLegacy, `{}`)
	bob := s.enters("bob", protocol.Latest, `{}`)
	for _, list := range []string{"tools", "prompts", "resources", "resources/templates"} {
		ada.asksAll(list+"/list", `{}`)
	}
	for _, tool := range []string{"a__whoami", "a__who", "a__steps", "who", "slow", "b__who", "fail", "c__tool199", "c__with_space____signs_"} {
		bob.calls(tool, `{}`)
	}
	s.detail("a")
	s.detail("b")
	s.step("The gateway ends, and another one knows the lists, while no server can be reached")
	s.metrics()
	if err := s.Close(context.Background()); err != nil {
		s.Note("gateway", err.Error())
	}
	s.reach(fails(errors.New("out of order")))
	s.open(`{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"},"c":{"command":"/bin/c"}}}`)
	s.step("Ada comes again")
	ada = s.enters("ada", protocol.LatestLegacy, `{}`)
	ada.asks("tools/list", `{}`)
	pass(10 * time.Second)
	ada.asks("resources/list", `{}`)
	ada.calls("a__who", `{}`)
	pass(time.Minute)
	s.reach(nil)
	pass(time.Minute)
	ada.calls("a__who", `{}`)
}
