package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/protocol"
)

// A record shows those values of arguments that the file names for a tool, and nothing else of them, also at the endpoint for search, and by the file that was applied last.
//
// Guarantees: G-0099.14
func TestShownArguments(t *testing.T) {
	const block = `,"bowline":{"audit":{"file":"a","show":%s}}}`
	r, servers := new(recorder), two()
	file := `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}}`
	f := newFleetFor(t, protocol.Latest, servers, gateway.Options{Audit: r.write}, load(t, file+fmt.Sprintf(block, `[{"of":["b/none"],"members":["other"]},{"of":["a/*"],"members":["you","in.line","none","Name"]}]`)))
	_, search := searchable(t, f)
	session, searching := f.client(protocol.Latest, client.Options{}), f.at(search, protocol.Latest, client.Options{})
	last := func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		for i := len(r.all) - 1; i >= 0; i-- {
			if record := r.all[i]; record.Method == protocol.MethodCallTool || record.Method == protocol.MethodGetPrompt {
				return string(record.Shown)
			}
		}
		return "no record"
	}
	long := strings.Repeat("x", 300)
	for _, c := range []struct{ tool, arguments, want string }{
		{"a__who", `{"you":"me","in":{"line":7,"other":"s3cret"},"other":"s3cret"}`, `{"in.line":7,"you":"me"}`},
		{"a__who", `{"you":"` + long + `"}`, `{"you":"(302 bytes)"}`},
		{"a__who", `{"you":"` + long[:254] + `"}`, `{"you":"` + long[:254] + `"}`},
		{"a__who", `{"you":"` + long[:255] + `"}`, `{"you":"(257 bytes)"}`},
		{"a__who", `{"other":"s3cret"}`, ""},
		{"a__who", `{"you":"x","in":"line"}`, `{"you":"x"}`},
		{"b__who", `{"you":"s3cret"}`, ""},
	} {
		_, _ = session.CallTool(timeout(t), &protocol.CallToolParams{Name: c.tool, Arguments: []byte(c.arguments)})
		if got := last(); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.tool, c.arguments, got, c.want)
		}
	}
	failOn(t, second(session.GetPrompt(timeout(t), &protocol.GetPromptParams{Name: "a__greet", Arguments: map[string]string{"Name": "me"}})))
	if got := last(); got != `{"Name":"me"}` {
		t.Errorf("of a prompt: %s", got)
	}
	use(t, searching, "call_tool", given{"name": "a__who", "arguments": given{"you": "found"}})
	if got := last(); got != `{"you":"found"}` {
		t.Errorf("at the endpoint for search: %s", got)
	}
	f.apply(load(t, file+"}"))
	_, _ = session.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__who", Arguments: []byte(`{"you":"me"}`)})
	if got := last(); got != "" {
		t.Errorf("by another file: %s", got)
	}
}

// What is shown is bounded, so that no record is too long to be read.
//
// Guarantees: G-0099.6, G-0099.14
func TestShownArgumentsAreBounded(t *testing.T) {
	var members, arguments []string
	for i := range 16 {
		members = append(members, fmt.Sprintf(`"m%d"`, i))
		arguments = append(arguments, fmt.Sprintf(`"m%d":"%s"`, i, strings.Repeat("<", 250)))
	}
	path := t.TempDir() + "/audit"
	key := []byte(strings.Repeat("k", 32))
	trail, err := audit.Open(path, audit.Options{Key: key, Sync: true})
	failOn(t, err)
	f := newFleetFor(t, protocol.Latest, map[string]*server.Server{"a": named("a")}, gateway.Options{Audit: trail.Write},
		load(t, `{"mcpServers":{"a":{"command":"/bin/a"}},"bowline":{"audit":{"file":"a","show":[{"of":["*"],"members":[`+strings.Join(members, ",")+`]}]}}}`))
	session := f.client(protocol.Latest, client.Options{})
	_, _ = session.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__who", Arguments: []byte("{" + strings.Join(arguments, ",") + "}")})
	failOn(t, f.Close(timeout(t)))
	failOn(t, trail.Close())
	records, _ := trail.Recent()
	if _, err := audit.Verify(path, key); err != nil {
		t.Error(err)
	}
	for _, record := range records {
		if n := len(record.Shown); n > 13<<10 || record.Own == "who" && n < 1<<10 {
			t.Errorf("%d bytes are shown", n)
		}
	}
}
