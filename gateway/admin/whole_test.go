package admin

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// textOf is what a person reads on a page: each part of it in its own line, without its tags. Of a form it has where it leads and what it sends, but for the secret.
func textOf(page string) string {
	_, page, _ = strings.Cut(page, "<body")
	_, page, _ = strings.Cut(page, ">")
	page = regexp.MustCompile(`<form[^>]* action="([^"]*)"[^>]*>`).ReplaceAllString(page, "\n[$1]")
	page = regexp.MustCompile(`<input type="hidden" name="form" [^>]*>`).ReplaceAllString(page, "")
	page = regexp.MustCompile(`<input[^>]* name="([a-z]*)" value="([^"]*)"[^>]*>`).ReplaceAllString(page, "[$1=$2]")
	page = regexp.MustCompile(`<(?:div|li|p|h\d|section|header|main|footer|ul|ol|dl|dt|dd|pre|nav)\b[^>]*>`).ReplaceAllString(page, "\n")
	page = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, "")
	return strings.Trim(regexp.MustCompile(`\s*\n\s*`).ReplaceAllString(page, "\n"), "\n")
}

// wantText compares what a person reads with the lines that are wanted.
func wantText(t *testing.T, of, page, want string) {
	t.Helper()
	got, lines := strings.Split(textOf(page), "\n"), strings.Split(strings.Trim(want, "\n"), "\n")
	for i := range max(len(got), len(lines)) {
		a, b := "", ""
		if i < len(got) {
			a = got[i]
		}
		if i < len(lines) {
			b = lines[i]
		}
		if a != b {
			t.Errorf("%s: line %d is\n%s\nwant\n%s\nThe whole:\n%s", of, i, a, b, strings.Join(got, "\n"))
			return
		}
	}
}

// troubled is a gateway of a cluster in which there is something of everything.
func troubled() *fake {
	ready := files()
	ready.Calls, ready.P50, ready.P99, ready.Prompts, ready.Resources, ready.Known, ready.Connections, ready.Users = 1, 1.25, 20, 1, 3, noon, 2, []string{"ann"}
	web := ServerReport{Name: "web", State: Backoff, Reason: "exited: 3", Since: time.Date(1999, 12, 25, 12, 0, 0, 0, time.UTC), NextAttempt: noon.Add(time.Minute), Restarts: 1, LastFailure: "refused: no", Tools: 1, Known: noon, Stderr: "no browser", Notices: []string{"one", "two", "three"}}
	f := newFake(ready, web, ServerReport{Name: "odd", State: Misconfigured, Mistake: "mcp.json:3:1: no", Reason: "refused", LastFailure: "refused"}, ServerReport{Name: "maps", State: Stopped, Reason: "starts on demand", OnDemand: true, Calls: 2})
	f.report.Endpoint, f.report.Refused, f.report.StatesRefused, f.report.AuditLost = "http://here/mcp", map[string]int64{RefusedUnable: 1}, 2, 3
	f.report.Mistakes, f.report.Notices = []string{"mcp.json:1:1: broken"}, []string{"it cannot be saved"}
	f.report.Questions = []Question{{Server: "files", Method: "elicitation/create", Target: "write", Program: "editor 2", Since: noon}}
	f.report.Clients = []ClientReport{{Program: "editor 2", Revision: "2025-11-25", User: "ann", Calls: 1}, {Program: "c 1", Revision: "2024-11-05"}}
	f.report.Node, f.report.Nodes = "here", []NodeReport{
		{Name: "there", State: "ready", At: noon, NodeServers: NodeServers{More: 4, Servers: []ServerReport{
			{Name: "x", State: Backoff, Reason: "exited", NextAttempt: noon, Mistake: "none", Notices: []string{"noted"}, Calls: 2}, {Name: "y", State: Ready, Reason: "handshaken"}}}},
		{Name: "gone", State: "isolated", Silent: true}, {Name: "far", Silent: true}}
	f.detail = Detail{
		Pins:        []Pin{{Server: "files", Tool: "read", Held: true, Version: "1f", Changes: []PinChange{{"title", `"a"`, `"b"`}, {"description", "", ""}}}, {Server: "files", Tool: "write", Version: "2f"}},
		Running:     []Request{{Method: "tools/call", Target: "write", Program: "editor 2", Began: noon}},
		Connections: []Connection{{User: "ann\x7f", Name: "Ann", Program: "editor 2", State: Backoff, Reason: "exited", Since: noon, Calls: 3, Login: true}, {User: "bob", State: Ready, Since: noon}},
		Changes:     []Change{{At: noon, State: Backoff, Reason: "exited", NextAttempt: noon}, {At: noon, State: Ready}},
		Tools:       []Tool{{Name: "files__read", Title: "Read", Description: "Reads a file"}, {Name: "files__write", Description: "Writes\nmore"}, {Name: "a/b"}},
	}
	_, _ = f.tail.Write([]byte("first\nsecond\n"))
	return f
}

// The whole page says of each server, each question, each client and each other gateway what a person has to know, and of one server what was changed, what waits and what was before.
//
// Guarantees: G-0091.8, G-0095.6, G-0097.11, G-0098.10
func TestAllThatAPersonReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := troubled()
		h := serveWeb(t, f, true)
		head := `
as of 12:00:00; load the page again for newer
✖ 2 servers in trouble
1 of 4 servers ready · 2 clients · 3 calls in flight · 1 question refused · ⚠ 3 records of the audit trail lost · ⚠ requests denied: 2 whose requestState does not hold · mcp.json applied 12:00:00 · http://here/mcp
✖ not reloaded: mcp.json:1:1: broken
⚠ it cannot be saved`
		files := `
● files
ready since 12:00:00 · pid 4711 · 2 connections of clients%s
1 call
p50 1.2 ms
p99 20 ms
12 tools
1 prompt
3 resources
[/v1/servers/files/restart]restart
[/v1/servers/files/stop]stop`
		wantText(t, "all servers", page(h, "/", token), `
bowline`+head+`
✖ odd
misconfigured · refused
mistake: mcp.json:3:1: no
✖ web
backoff since 25 Dec 12:00 · exited: 3 · next try at 12:01:00 · 1 restart
last failure: refused: no
stderr: no browser
⚠ one and 2 more
1 tool
as of 12:00:00
[/v1/servers/web/wake]wake
[/v1/servers/web/restart]restart
[/v1/servers/web/stop]stop`+fmt.Sprintf(files, "\nstderr: secret argument")+`
○ maps
stopped · starts on demand
2 calls
[/v1/servers/maps/start]start
Waiting questions
editor 2 is asked by files · elicitation/create · for write · since 12:00:00
Other gateways of the cluster
far ✖ does not answer
gone ✖ does not answer
there ready as of 12:00:00
backoff x · exited · mistake: none · next try at 12:00:00 · ⚠ noted · 2 calls
ready y
and 4 more
Clients
editor 2 2025-11-25 · ann · 1 call
c 1 2024-11-05
[/v1/reload]reload the file`)
		wantText(t, "one server", page(h, "/servers/files", token), `
bowline
all servers`+head+fmt.Sprintf(files, "")+`
Changed tools
read is not as it was approved, and is not offered
title
&#34;a&#34;
&#34;b&#34;
description
not known
gone
[/v1/pins/files][tool=read@1f]approve
write is not as it was approved
[/v1/pins/files][tool=write@2f]approve
In flight
tools/call write · editor 2 · since 12:00:00
Connections
backoff · Ann ann\x7f · editor 2 · 3 calls · since 12:00:00 · exited
[/v1/logout/files][user=ann`+"\x7f"+`]log out
ready · bob · since 12:00:00
States
12:00:00 backoff · exited · next try at 12:00:00
12:00:00 ready
Standard error
first
second
Tools
files__read Read
files__write Writes…
a/b
[/v1/reload]reload the file`)
		wantText(t, "another one, for everybody", page(h, "/servers/web"), `
bowline
all servers`+head+`
✖ web
backoff since 25 Dec 12:00 · exited · next try at 12:01:00 · 1 restart
last failure: refused
⚠ shown with the token only
1 tool
as of 12:00:00
In flight
tools/call · editor 2 · since 12:00:00
Connections
backoff · a user · editor 2 · 3 calls · since 12:00:00
ready · a user · since 12:00:00
States
12:00:00 backoff · exited · next try at 12:00:00
12:00:00 ready
[/login]admin token  log in to act, and to see what servers write`)
		if one := page(h, "/servers/web", token); !strings.Contains(textOf(one), "\n⚠ one\n⚠ two\n⚠ three\n") || !strings.Contains(one, "<title>web · bowline</title>") {
			t.Errorf("of one server all notices are shown: %s", textOf(one))
		}
		if links := regexp.MustCompile(`href="(/servers[^"]*)"`).FindAllStringSubmatch(page(h, "/servers/files", token), -1); len(links) != 4 || links[3][1] != "/servers/files/tools/a%2Fb" {
			t.Errorf("it leads to %q", links)
		}
	})
}

// The sentence at the top names what is worst. One notice is enough that not all is well, whether it is of a server or of the gateway.
//
// Guarantees: G-0091.8
func TestTheVerdictIsOfWhatIsWorst(t *testing.T) {
	ready, noted, starting, stopped := ServerReport{State: Ready}, ServerReport{State: Ready, Notices: []string{"x"}}, ServerReport{State: Starting}, ServerReport{State: Stopped}
	mistaken := ServerReport{State: Ready, Mistake: "x"}
	for _, c := range []struct {
		want string
		r    Report
	}{
		{"bad ✖ 1 server in trouble", Report{Mistakes: []string{"x"}, Servers: []ServerReport{{State: Backoff}, starting, ready}}},
		{"bad ✖ 2 servers in trouble", Report{Servers: []ServerReport{{State: Backoff}, {State: Misconfigured}}}},
		{"bad ✖ The file was changed, and is not applied", Report{Mistakes: []string{"x"}, Servers: []ServerReport{starting, noted}}},
		{"warn ◌ 1 server starting", Report{Servers: []ServerReport{starting, noted}}},
		{"warn ⚠ Working, with notices", Report{Servers: []ServerReport{ready, noted, stopped}}},
		{"warn ⚠ Working, with notices", Report{Servers: []ServerReport{ready, mistaken}}},
		{"warn ⚠ Working, with notices", Report{Notices: []string{"x"}, Servers: []ServerReport{ready}}},
		{"ok ● All servers are ready", Report{Servers: []ServerReport{ready, ready}}},
		{"ok ● No server is in trouble", Report{Servers: []ServerReport{ready, stopped}}},
		{"ok ● No server is in trouble", Report{}},
	} {
		if of := headOf(c.r); of.Class+" "+of.Sign+" "+of.Verdict != c.want {
			t.Errorf("%s %s %s, want %s", of.Class, of.Sign, of.Verdict, c.want)
		}
	}
}

// A program names a server by whatever letters its name has, in each of its requests.
//
// Guarantees: G-0091.3
func TestNamesOfServersInRequests(t *testing.T) {
	const odd = "a/b?c d%2F"
	f := newFake(ServerReport{Name: odd, State: Ready})
	path, end := serve(t, f)
	defer end()
	c := Dial(path)
	for _, err := range []error{c.Do(t.Context(), odd, Restart), c.Approve(t.Context(), odd, "t"), c.Logout(t.Context(), odd, "ann")} {
		if err != nil {
			t.Error(err)
		}
	}
	if err := c.Stderr(t.Context(), odd, false, func([]string) error { return nil }); err == nil || err.Error() != ErrNoServer.Error() {
		t.Errorf("a server without a standard error: %v", err)
	}
	if did := f.did(); !slices.Equal(did, []string{"restart " + odd, "approve " + odd + " t", "logout " + odd + ` "ann"`}) {
		t.Errorf("did %q", did)
	}
}

// A line of a standard error is kept up to 4 KiB, also if it comes in parts, and who has read all gets no line again.
//
// Guarantees: G-0091.6
func TestLinesThatComeInParts(t *testing.T) {
	var tail Tail
	for range 3 {
		_, _ = tail.Write([]byte(strings.Repeat("x", TailLine/2+1)))
	}
	_, _ = tail.Write([]byte("y\nnext\r\n"))
	lines, last, changed := tail.Read(0)
	if len(lines) != 2 || lines[0] != strings.Repeat("x", TailLine) || lines[1] != "next" || last != 2 {
		t.Errorf("%d lines until %d, the first of %d bytes", len(lines), last, len(lines[0]))
	}
	for _, after := range []uint64{last, last + 1} { // a number of an earlier process may be larger
		if again, until, _ := tail.Read(after); len(again) != 0 || until != last {
			t.Errorf("after line %d: %q until %d", after, again, until)
		}
	}
	_, _ = tail.Write([]byte("z\n"))
	<-changed
}
