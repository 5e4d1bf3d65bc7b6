package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// Each record names the line of the file that has decided, whatever the request is about: a persona that only reads may use all prompts and resources, and of the tools those that only
// read. What is about a task was decided when that began.
//
// Guarantees: G-0098.4
func TestTheRecordNamesTheLineOfEachKind(t *testing.T) {
	r := new(recorder)
	s, release := taskServer()
	close(release)
	server.AddTool(s, protocol.Tool{Name: "reads", Annotations: &protocol.ToolAnnotations{ReadOnlyHint: true}}, func(context.Context, struct{}) (string, error) { return "", nil })
	all := map[string]*server.Server{"a": named("a"), "t": s}
	f := newFleetFor(t, protocol.LatestLegacy, all, gateway.Options{Audit: r.write}, load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"t":{"command":"/bin/t"}},"bowline":{"personas":{
		"reader":{"who":["token ada"],"readOnly":true,"deny":["a/a:/all/*"]},"worker":{"who":["token bob"],"allow":["t/hold"]},"more":{"who":["token ada"],"allow":["t/fail"]}}}}`))
	f.identity = "token bob"
	task := start(t, f.client(protocol.LatestLegacy, taskUser("bob")), "t__hold")
	failOn(t, second(task.Status(timeout(t))))
	f.identity = "token ada"
	session, ctx := f.client(protocol.Latest, client.Options{}), timeout(t)
	everything(t, session)
	for _, tool := range []string{"t__reads", "t__fail", "t__plain", "t__none"} {
		_, _ = session.CallTool(ctx, &protocol.CallToolParams{Name: tool})
	}
	for _, prompt := range []string{"a__greet", "a__none"} {
		_, _ = session.GetPrompt(ctx, &protocol.GetPromptParams{Name: prompt, Arguments: map[string]string{"Name": "x"}})
	}
	for _, uri := range []string{"a:/one", "a:/all/7", "a:/none"} {
		_, _ = session.ReadResource(ctx, &protocol.ReadResourceParams{URI: uri})
	}
	_, _ = session.Complete(ctx, &protocol.CompleteParams{Ref: protocol.CompleteReference{Name: "a__greet"}, Argument: protocol.CompleteArgument{Name: "Name"}})
	_, _ = session.Complete(ctx, &protocol.CompleteParams{Ref: protocol.CompleteReference{Type: protocol.ReferenceResource, URI: "a:/all/{N}"}, Argument: protocol.CompleteArgument{Name: "N"}})
	want := []string{
		"tools/call t__hold t/hold answered personas.worker.allow[0]", "tasks/get ID t/OWN answered ",
		"tools/call t__reads t/reads answered personas.reader", "tools/call t__fail t/fail failed personas.more.allow[0]", "tools/call t__plain /plain denied personas: no persona of this user allows it", "tools/call t__none / failed ",
		"prompts/get a__greet a/greet answered personas.reader", "prompts/get a__none / failed ",
		"resources/read a:/one a/a:/one answered personas.reader", "resources/read a:/all/7 /a:/all/7 denied personas.reader.deny[0]", "resources/read a:/none / failed ",
		"completion/complete  a/ answered personas.reader", "completion/complete  /a:/all/{N} denied personas.reader.deny[0]",
	}
	var got []string
	for _, record := range r.records() {
		if _, rule, _ := strings.Cut(record.Rule, "bowline."); strings.Contains(record.Method, "/") && !strings.HasSuffix(record.Method, "/list") && record.Method != protocol.MethodDiscover {
			if record.Name == task.ID() && record.Own != task.ID() {
				record.Name, record.Own = "ID", "OWN"
			}
			got = append(got, fmt.Sprintf("%s %s %s/%s %s %s", record.Method, record.Name, record.Server, record.Own, record.Outcome, rule))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A record has all that the gateway knows of a request: who has sent it and with which program, what it was called and what its server calls it, by which line, how large it was, and what became of it.
//
// Guarantees: G-0099.7, G-0088.24
func TestAllThatARecordSays(t *testing.T) {
	for front, revision := range map[string]string{protocol.LatestLegacy: protocol.LatestLegacy, protocol.Latest: protocol.Latest} {
		synctest.Test(t, func(t *testing.T) {
			r := new(recorder)
			o := gateway.Options{Audit: r.write, Digest: func(arguments []byte) string { return string(arguments) }}
			f := silentWith(t, o, fails(errors.New("out of order")), `, "bowline": {"prefix": "x"}`, `, "bowline": {"auth": {"issuers": [{"url": "https://a.example"}], "name": "email"}, "policy": [{"allow": ["*"]}], "audit": {"file": "a", "show": [{"of": ["*"], "members": ["you"]}]}}`)
			f.identity, f.principal = "iss 1", claims{"email": {"ada@a.example"}}
			session := f.client(front, client.Options{})
			call := func(name, arguments string, isError bool) string {
				t.Helper()
				before := len(r.records())
				result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name, Arguments: []byte(arguments)})
				if failOn(t, err); result.IsError != isError {
					t.Errorf("%s: %+v", name, result)
				}
				all := r.records()[before:]
				if len(all) != 1 {
					t.Fatalf("%s has %d records: %+v", name, len(all), all)
				}
				record := all[0]
				_, record.Rule, _ = strings.Cut(record.Rule, "bowline.")
				if record.Bytes < 30 || record.ID == "" || record.Time.IsZero() || (record.Out > 0) == isError {
					t.Errorf("%s: %+v", name, record)
				}
				record.Bytes, record.Out, record.ID, record.Time = 0, 0, "", time.Time{}
				text, err := json.Marshal(record)
				failOn(t, err)
				return string(text)
			}
			who := `{"v":0,"n":0,"time":"0001-01-01T00:00:00Z","principal":"iss 1","user":"ada@a.example","client":"c 1","revision":"` + revision + `","method":"tools/call",`
			if got, want := call("a__who", `{"you":"me"}`, false), who+`"name":"a__who","server":"a","own":"who","rule":"policy[0].allow[0]","outcome":"answered","shown":{"you":"me"},"args":"{\"you\":\"me\"}","prev":""}`; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			// Nobody knows yet whether b has it. It was asked for ten seconds whether it starts.
			if got, want := call("x__who", `{"you":"me"}`, true), who+`"name":"x__who","server":"b","own":"x__who","rule":"policy[0].allow[0]","outcome":"not answered","delivery":"not sent","reason":"open failed: out of order","ms":10000,"shown":{"you":"me"},"args":"{\"you\":\"me\"}","prev":""}`; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
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
