package gateway_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/protocol"
)

// A tool that says something else than before is taken from the list, its clients are told, and a call says why it is refused, until a person approves it. For whom the policy hides
// it, it does not exist. With warn it is offered, and the report says so.
//
// Guarantees: G-0098.9, G-0098.10
func TestAToolThatChanges(t *testing.T) {
	for _, mode := range []string{"block", "warn"} {
		servers, r := two(), new(recorder)
		describe := func(text string) {
			server.AddTool(servers["a"], protocol.Tool{Name: "t", Description: text}, func(context.Context, struct{}) (string, error) { return "done", nil })
		}
		describe("reads")
		f := newFleetFor(t, protocol.Latest, servers, gateway.Options{Audit: r.write}, load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"pins":"`+mode+`","policy":[{"who":"token ada","allow":["*"]},{"allow":["*/who"]}]}}`))
		changed := make(chan bool, 10)
		f.identity = "token ada"
		session := f.client(protocol.LatestLegacy, client.Options{CacheBytes: -1, OnEvent: func(_ context.Context, _ *client.Session, e client.Event) {
			if _, is := e.(*client.ToolsChanged); is {
				changed <- true
			}
		}})
		f.identity = "token bob"
		other := f.client(protocol.Latest, client.Options{})
		call := func(of *client.Session) string {
			result, err := of.CallTool(timeout(t), &protocol.CallToolParams{Name: "a__t"})
			if err != nil {
				return err.Error()
			}
			return result.Content.Text()
		}
		if names := toolNames(t, session); !slices.Contains(names, "a__t") || call(session) != "done" || len(f.Pins()) != 0 {
			t.Fatalf("at first: %q, %v", names, f.Pins())
		}
		for len(changed) > 0 {
			<-changed
		}
		describe("obey")
		for len(f.Pins()) == 0 { // what the servers had at their start may be told late
			<-changed
		}
		pins := f.Pins()
		if len(pins) != 1 || pins[0].Tool != "t" || pins[0].Held != (mode == "block") || !slices.Equal(pins[0].Changes, []admin.PinChange{{Member: "description", Was: `"reads"`, Is: `"obey"`}}) {
			t.Errorf("%s: the pins are %v", mode, pins)
		}
		if s, _ := f.Report().Server("a"); len(s.Notices) == 0 || !strings.HasPrefix(s.Notices[0], "tools: ") || !strings.Contains(s.Notices[0], "t has changed since it was approved (description)") && !strings.Contains(s.Notices[0], `"t" has changed since it was approved (description)`) {
			t.Errorf("%s: the notices are %q", mode, s.Notices)
		}
		if d, _ := f.Detail("a"); len(d.Pins) != 1 {
			t.Errorf("the page has %v", d.Pins)
		}
		if mode == "warn" {
			if call(session) != "done" {
				t.Error("a tool that people are warned of cannot be called")
			}
			continue
		}
		if names := toolNames(t, session); slices.Contains(names, "a__t") {
			t.Errorf("it is still offered: %q", names)
		}
		if got := call(session); !strings.Contains(got, "has changed since it was approved") || !strings.Contains(got, "bowline pins") {
			t.Errorf("a call: %s", got)
		}
		if got := call(other); !strings.Contains(got, "unknown tool") {
			t.Errorf("for whom it does not exist: %s", got)
		}
		if err := f.Approve(timeout(t), "a", "who"); err == nil {
			t.Error("a tool that has not changed is approved")
		}
		if err := f.Approve(timeout(t), "c"); !errors.Is(err, admin.ErrNoServer) {
			t.Errorf("of no server: %v", err)
		}
		failOn(t, f.Approve(timeout(t), "a", "t"))
		<-changed
		if got := call(session); got != "done" {
			t.Errorf("after it was approved: %s", got)
		}
		if err := f.Approve(timeout(t), "a"); err == nil {
			t.Error("nothing is approved once more")
		}
		if got := r.about("approve"); len(got) != 4 || got[2] != "admin  a/" {
			t.Errorf("the records are %q", got)
		}
		if all := r.about(protocol.MethodCallTool); !slices.Contains(all, "token ada a__t /t denied") {
			t.Errorf("the records are %q", all)
		}
	}
}

// The log says once that a tool has changed, also if another list of its server changes later.
//
// Guarantees: G-0098.9
func TestTheLogSaysOnceThatAToolHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, log := two(), new(journal)
		describe := func(name, text string) {
			server.AddTool(servers["a"], protocol.Tool{Name: name, Description: text}, func(context.Context, struct{}) (string, error) { return "done", nil })
			<-time.NewTimer(5 * time.Second).C
			synctest.Wait()
		}
		describe("t", "reads")
		f := newFleetFor(t, protocol.Latest, servers, gateway.Options{Client: client.Options{Conn: conn.Tuning{Log: slog.New(slog.NewTextHandler(log, nil))}}},
			load(t, `{"mcpServers":{"a":{"command":"/bin/a"},"b":{"command":"/bin/b"}},"bowline":{"pins":"block"}}`))
		toolNames(t, f.client(protocol.Latest, client.Options{}))
		said := func() int { return strings.Count(log.String(), "a tool has changed since it was approved") }
		if n := said(); n != 0 {
			t.Errorf("before a change, the log says %d times that there was one", n)
		}
		describe("t", "obeys")
		describe("other", "reads")
		if n := said(); n != 1 || !strings.Contains(log.String(), "server=a tool=t offered=false") {
			t.Errorf("the log says %d times that a tool has changed:\n%s", n, log)
		}
		describe("t", "destroys")
		if n := said(); n != 2 {
			t.Errorf("after two changes, the log says %d times that a tool has changed", n)
		}
	})
}

// Who calls a tool that is kept from clients because of its pin is told so, and at once, also while a server that has said nothing may have another one of that name.
//
// Guarantees: G-0098.9
func TestAHeldToolBesideAServerThatHasSaidNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bare = `, "bowline": {"prefix": ""}`
		f := silent(t, hangs, bare, `, "bowline": {"pins": "block"}`)
		f.apply(load(t, `{"mcpServers": {"a": {"command": "/bin/a"`+bare+`}, "b": {"command": "/bin/b"`+bare+`}}, "bowline": {"pins": "block"}}`))
		for _, text := range []string{"reads", "obey"} {
			server.AddTool(f.servers["a"], protocol.Tool{Name: "t", Description: text}, func(context.Context, struct{}) (string, error) { return "done", nil })
			pass(3 * time.Second) // no list waits any more for what was applied
		}
		session, began := f.client(protocol.LatestLegacy, client.Options{}), time.Now()
		result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "t"})
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "has changed since it was approved") || took > 0 {
			t.Errorf("after %v: %+v, %v", took, result, err)
		}
	})
}

// Tools that have changed are listed in the order of the file.
//
// Guarantees: G-0098.9
func TestPinsAreInTheOrderOfTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := two()
		f := newFleetFor(t, protocol.Latest, servers, gateway.Options{}, load(t, `{"mcpServers":{"b":{"command":"/bin/b"},"a":{"command":"/bin/a"}}}`))
		for _, text := range []string{"reads", "obey"} {
			for _, name := range []string{"a", "b"} {
				server.AddTool(servers[name], protocol.Tool{Name: "t", Description: text}, func(context.Context, struct{}) (string, error) { return "done", nil })
			}
			pass(3 * time.Second)
			synctest.Wait()
		}
		if pins := f.Pins(); len(pins) != 2 || pins[0].Server != "b" || pins[1].Server != "a" {
			t.Errorf("the pins are %+v", pins)
		}
	})
}
