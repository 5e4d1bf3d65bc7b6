package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
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

// A tool that is hidden has the record of one also while another server may have one of that name, and has not said so: the client is told that this server is away, as it
// would be of a tool that does not exist.
//
// Guarantees: G-0098.4
func TestWhatIsHiddenBesideAServerThatHasSaidNothingIsRecorded(t *testing.T) {
	for deny, want := range map[string]string{"a/who": "who /who denied policy[0].deny[0] ", "a/why": "who a/who answered policy[1].allow[0] "} {
		synctest.Test(t, func(t *testing.T) {
			r := new(recorder)
			bare := `, "bowline": {"prefix": ""}}`
			f := silentWith(t, gateway.Options{Audit: r.write}, hangs, `, "bowline": {"prefix": ""}`, "")
			f.apply(load(t, `{"mcpServers": {"a": {"command": "/bin/a"`+bare+`, "b": {"command": "/bin/b"`+bare+`}, "bowline": {"policy": [{"deny": ["`+deny+`"]}, {"allow": ["*"]}]}}`))
			session := f.client(protocol.LatestLegacy, client.Options{})
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "who"})
			if err != nil || strings.Contains(result.Content.Text(), `the server "b" is away`) != (deny == "a/who") {
				t.Errorf("%s is denied: %+v, %v", deny, result, err)
			}
			if got := r.ruled(); !slices.Equal(got, []string{want}) {
				t.Errorf("%s is denied: got %q, want %q", deny, got, want)
			}
		})
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

// The record of a request has the trace and the span that its client names, also if no server was asked, or those in which this program serves it. What is no trace context is left out.
//
// Guarantees: G-0099.17
func TestTheRecordOfATrace(t *testing.T) {
	const trace, span, served = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "1111111111111111"
	texts := map[string]string{
		"00-" + trace + "-" + span + "-01": trace + " " + span,
		"00-" + trace + "-" + span + "-00": trace + " " + span,
		"":                                 " ",
		"00-" + trace + "-" + span:         " ",
		"01-" + trace + "-" + span + "-01": " ",
		"00-" + strings.ToUpper(trace) + "-" + span + "-01":   " ",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01":  " ",
		"00-" + trace + "-" + strings.Repeat("0", 16) + "-01": " ",
		"00-" + trace + "-" + span + "-0x":                    " ",
		"00-" + trace + "_" + span + "-01":                    " ",
		"00-" + trace + "-" + span + "_01":                    " ",
		"00-" + trace[:31] + `"-` + span + "-01":              " ",
		strings.Repeat("x", 1000):                             " ",
	}
	for _, version := range []string{protocol.LatestLegacy, protocol.Latest} {
		for _, traces := range []bool{false, true} {
			r := new(recorder)
			o := gateway.Options{Audit: r.write}
			if traces {
				o.Server.Middleware = []server.Middleware{func(next server.Handler) server.Handler {
					return func(ctx context.Context, r *server.Request) (any, error) {
						return next(telemetry.WithTrace(ctx, telemetry.Trace{Parent: "00-" + trace + "-" + served + "-01"}), r)
					}
				}}
			}
			f := newFleetWith(t, protocol.Latest, two(), o)
			session := f.client(version, client.Options{})
			for text, want := range texts {
				raw, err := json.Marshal(text)
				failOn(t, err)
				meta := protocol.RequestParams{Meta: protocol.Meta{protocol.MetaTraceparent: raw}}
				_, err = session.CallTool(timeout(t), &protocol.CallToolParams{RequestParams: meta, Name: "a__who", Arguments: []byte(`{}`)})
				failOn(t, err)
				_, _ = session.CallTool(timeout(t), &protocol.CallToolParams{RequestParams: meta, Name: "a__none"})
				_, err = session.ListTools(timeout(t), &protocol.ListToolsParams{RequestParams: meta})
				failOn(t, err)
				r.mu.Lock()
				for i, record := range r.all[len(r.all)-3:] {
					want := want
					if traces && i == 0 { // what goes on to a server has a span of its own
						want = trace + " " + served
					}
					if got := record.Trace + " " + record.Span; got != want {
						t.Errorf("%s %s of %q: %q, want %q", record.Method, record.Name, text, got, want)
					}
				}
				r.mu.Unlock()
			}
			_, err := session.CallTool(timeout(t), &protocol.CallToolParams{RequestParams: protocol.RequestParams{Meta: protocol.Meta{protocol.MetaTraceparent: []byte(`{"a":1}`)}}, Name: "a__none"})
			if last := r.all[len(r.all)-1]; err == nil || last.Trace+last.Span != "" {
				t.Errorf("%+v, %v", last, err)
			}
		}
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
