package gateway_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
)

// ruled returns what the records of calls say: what was called, what became of it, and by which line of the file.
func (r *recorder) ruled() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range r.all {
		if record.Method == protocol.MethodCallTool {
			_, rule, _ := strings.Cut(record.Rule, "bowline.")
			all = append(all, fmt.Sprintf("%s %s/%s %s %s %s", record.Name, record.Server, record.Own, record.Outcome, rule, record.Arguments))
		}
	}
	return all
}

// A request at the endpoint for search that names a tool which is hidden has the record of one that calls it by its name.
//
// Guarantees: G-0098.4
func TestWhatIsHiddenFromSearchIsRecorded(t *testing.T) {
	r := new(recorder)
	f := newFleetFor(t, protocol.Latest, two(), gateway.Options{Audit: r.write}, load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"policy":[{"deny":["b/*"]},{"allow":["a/*"]}]}}`))
	_, search := searchable(t, f)
	session := f.at(search, protocol.Latest, client.Options{})
	for _, tool := range []string{"call_tool", "describe_tool", "call_read_only_tool"} {
		use(t, session, tool, given{"name": "b__who"})
	}
	use(t, session, "call_tool", given{"name": "c__who"})
	use(t, session, "call_tool", given{"name": "a__who"})
	want := []string{
		"call_tool /who denied policy[0].deny[0] ", "describe_tool /who denied policy[0].deny[0] ", "call_read_only_tool /who denied policy[0].deny[0] ",
		"call_tool / answered  ", "call_tool a/who answered policy[1].allow[0] ",
	}
	if got := r.ruled(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A call for which the gateway waits, since its client knows no tasks, has one record: that of the call, with the line of the policy.
//
// Guarantees: G-0098.4, G-0099.7
func TestTheRecordOfACallThatIsATask(t *testing.T) {
	r := new(recorder)
	s, _ := taskServer()
	o := gateway.Options{Audit: r.write, Digest: func(arguments []byte) string { return string(arguments) }}
	f := newFleetFor(t, protocol.LatestLegacy, map[string]*server.Server{"a": s}, o, load(t, `{"mcpServers":{"a":{"command":"/bin/a"}},"bowline":{"policy":[{"allow":["a/must"]}]}}`))
	session := f.client(protocol.Latest, client.Options{})
	toolNames(t, session) // it is known then which tools are tasks
	result, err := session.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__must", Arguments: []byte(`{}`)})
	if outcome(result, err) != "done" {
		t.Fatal(outcome(result, err))
	}
	if got, want := r.ruled(), []string{"a__must a/must answered policy[0].allow[0] {}"}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Who asks at the endpoint for search for a tool that is kept from clients because of its pin is told so, if the policy shows it to them.
//
// Guarantees: G-0098.9
func TestSearchSaysThatAToolIsHeld(t *testing.T) {
	servers, r := two(), new(recorder)
	describe := func(text string) {
		server.AddTool(servers["a"], protocol.Tool{Name: "t", Description: text}, func(context.Context, struct{}) (string, error) { return "done", nil })
	}
	describe("reads")
	f := newFleetFor(t, protocol.Latest, servers, gateway.Options{Audit: r.write}, load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"pins":"block"}}`))
	_, search := searchable(t, f)
	session := f.at(search, protocol.Latest, client.Options{})
	if got, failed := use(t, session, "call_tool", given{"name": "a__t"}); failed || got != "done" {
		t.Fatal(got)
	}
	describe("obey")
	ctx := timeout(t)
	for len(f.Pins()) == 0 {
		changed := f.Changed()
		if len(f.Pins()) > 0 {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("it has not changed")
		}
	}
	if got, failed := use(t, session, "call_tool", given{"name": "a__t"}); !failed || !strings.Contains(got, "has changed since it was approved") {
		t.Error(got)
	}
	if got := r.ruled(); !strings.HasPrefix(got[len(got)-1], "call_tool /t denied pins") {
		t.Errorf("%q", got)
	}
}
