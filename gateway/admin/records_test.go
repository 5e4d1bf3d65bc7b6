package admin

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bowline-mcp/bowline/gateway/audit"
)

func trail() []audit.Record {
	return []audit.Record{
		{Number: 7, Time: noon, Event: audit.EventStarted},
		{Number: 8, Time: noon, Principal: "token Ada", Client: "editor 2", Method: "tools/call", Name: "files__read", Own: "read", Server: "files", Outcome: "answered", Millis: 1.25},
		{Number: 9, Time: noon, Principal: "token bob", Client: "claude 1", Method: "tools/call", Name: "web__go", Own: "navigate", Server: "web", Outcome: "not answered", Delivery: "unknown", Reason: "exited", Rule: "policy 3"},
		{Number: 10, Time: noon, User: "Grace", Method: "tools/call", Name: "files__read", Outcome: "denied"},
		{Number: 11, Time: noon, Principal: "admin", Event: "restart", Server: "web", Outcome: "failed", Reason: "no such folder", Count: 1},
	}
}

// numbers are those of the records in a page or an answer, in order.
func numbers(text string) (all []string) {
	for _, found := range regexp.MustCompile(`id="r-(\d+)"|"n":(\d+)`).FindAllStringSubmatch(text, -1) {
		all = append(all, found[1]+found[2])
	}
	return all
}

// Records name people: nobody sees one, or that there are any, without the token, at a door that is open for all else.
//
// Guarantees: G-0091.20, G-0091.1
func TestRecordsNeedTheToken(t *testing.T) {
	f := newFake(files())
	f.records = trail()
	h, d := serveWeb(t, f, true), New(f)
	defer d.Close()
	for _, target := range []string{"/audit", "/audit/events", "/v1/audit", "/audit?who=ada"} {
		ctx, leave := context.WithCancel(t.Context())
		leave() // a stream ends at once
		if got := ask(h, "GET", target, func(r *http.Request) { *r = *r.WithContext(ctx) }); got.Code != 401 || strings.Contains(got.Body.String(), "Ada") {
			t.Errorf("%s: %d %s", target, got.Code, got.Body)
		}
		if got := ask(h, "POST", target, token); got.Code != 405 {
			t.Errorf("POST %s: %d", target, got.Code)
		}
	}
	if strings.Contains(page(h, "/"), `href="/audit"`) || !strings.Contains(page(h, "/", token), `href="/audit"`) {
		t.Error("the link is there without the token, or not with it")
	}
	for name, text := range map[string]string{"the page": page(h, "/audit", token), "a program": page(h, "/v1/audit", token), "the socket": page(d.Local(), "/v1/audit")} {
		if got := numbers(text); !slices.Equal(got, []string{"11", "10", "9", "8", "7"}) {
			t.Errorf("%s shows %v", name, got)
		}
	}
	f.records = nil
	for _, target := range []string{"/audit", "/v1/audit"} {
		if got := ask(h, "GET", target, token); got.Code != 404 || !strings.Contains(got.Body.String(), "no audit trail") {
			t.Errorf("%s without a trail: %d %s", target, got.Code, got.Body)
		}
	}
	if strings.Contains(page(h, "/", token), `href="/audit"`) {
		t.Error("there is a link to no trail")
	}
}

// Who, server, tool and outcome select records, alone and together, in the page as in what programs get.
//
// Guarantees: G-0091.20
func TestRecordsAreSelected(t *testing.T) {
	f := newFake(files())
	f.records = trail()
	h := serveWeb(t, f, true)
	for query, want := range map[string]string{
		"": "11 10 9 8 7", "who=ADA": "8", "who=claude": "9", "who=grace": "10", "who=admin": "11", "server=web": "11 9", "server=we": "", "tool=READ": "10 8", "tool=go": "9", "tool=navig": "9", "outcome=denied": "10",
		"outcome=restart": "11", "outcome=started": "7", "server=web&outcome=not+answered": "9", "who=ada&server=web": "", "other=x": "11 10 9 8 7",
	} {
		for _, target := range []string{"/audit?", "/v1/audit?"} {
			if got := strings.Join(numbers(page(h, target+query, token)), " "); got != want {
				t.Errorf("%s%s shows %q, want %q", target, query, got, want)
			}
		}
	}
	if got := page(h, "/v1/audit?who=nobody", token); got != `{"records":[]}`+"\n" {
		t.Errorf("of nobody: %s", got)
	}
	got := page(h, "/audit?who=ada%22&server=gone&outcome=denied", token)
	for _, want := range []string{`name="who" value="ada&#34;"`, `<option value="gone" selected>`, `<option value="denied" selected>`, `<option value="web">`, "no record is like that", "0 of the last 5 records",
		`data-events="/audit/events?outcome=denied&amp;server=gone&amp;tool=&amp;who=ada%22"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the form does not have %q: %s", want, got)
		}
	}
	if a, b := strings.Index(got, `<option value="gone"`), strings.Index(got, `<option value="web"`); strings.Index(got, `<option value="files"`) > a || a > b {
		t.Errorf("the servers to choose from are in no order: %s", got)
	}
	for outcome, want := range map[string]string{"answered": "ok ●", "tool error": "warn ⚠", "cancelled": "warn ⚠", "denied": "bad ✖", "": "bad ✖"} {
		if row := rowOfRecord(audit.Record{Outcome: outcome}); row.Class+" "+row.Sign != want {
			t.Errorf("a request that was %q looks %s %s, want %s", outcome, row.Class, row.Sign, want)
		}
	}
	all := page(h, "/audit", token)
	for _, want := range []string{"<strong>not answered</strong> · token bob · <code>tools/call</code> web__go · at web · unknown · exited · by policy 3", `class="ok" data-outcome="answered"><span class="sign" aria-hidden="true">●`,
		"1.2 ms", "<strong>restart</strong> · admin · at web · 1 · no such folder", `class="idle" data-outcome="started"`, `class="bad" data-outcome="restart"`, `class="bad" data-outcome="denied"`} {
		if !strings.Contains(all, want) {
			t.Errorf("the page does not have %q: %s", want, all)
		}
	}
}

// A new record comes by itself, if it is selected, and those that are there already do not come again. It is drawn once for all viewers.
//
// Guarantees: G-0091.20, G-0091.10
func TestRecordsAreLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(files())
		f.records = trail()
		d := New(f)
		defer d.Close()
		h := d.Local()
		all, some := look(t, h, "/audit/events"), look(t, h, "/audit/events?who=bob")
		all.sees(t, 1, `"order":["r-11","r-10","r-9","r-8","r-7"]`)
		some.sees(t, 1, `"order":["r-9"]`)
		pass(time.Second)
		f.mu.Lock()
		f.records = append(f.records[1:], audit.Record{Number: 12, Principal: "token bob", Outcome: "answered"})
		f.mu.Unlock()
		f.set(files())
		pass(pace)
		all.sees(t, 2, `"order":["r-12","r-11","r-10","r-9","r-8"]`)
		some.sees(t, 2, `"order":["r-12","r-9"]`)
		if n := strings.Count(all.text(), `{"id":"r-9"`); n != 1 {
			t.Errorf("a record has come %d times", n)
		}
	})
	f := newFake()
	for i := range audit.RecentRecords {
		f.records = append(f.records, audit.Record{Number: uint64(i + 1), Name: fmt.Sprint("tool", i)})
	}
	e := New(f).entrance(guard{local: true})
	for range 3 {
		if page, err := e.recordsNow(selection{}); err != nil || len(page.rows) != audit.RecentRecords {
			t.Fatalf("%d rows, %v", len(page.rows), err)
		}
		f.records = append(f.records[1:], audit.Record{Number: f.records[audit.RecentRecords-1].Number + 1})
	}
	if n := len(e.records.rows); n != audit.RecentRecords {
		t.Errorf("%d rows are kept", n)
	}
}

// A record that comes while the page is drawn is shown with the next event.
//
// Guarantees: G-0091.20
func TestARecordThatComesWhileThePageIsDrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(files())
		f.records = trail()
		f.writes = func() {
			f.records = append(trail(), audit.Record{Number: 12, Principal: "token bob", Outcome: "answered"})
			close(f.changed)
			f.changed = make(chan struct{})
		}
		d := New(f)
		defer d.Close()
		s := look(t, d.Local(), "/audit/events")
		s.sees(t, 1, `"order":["r-11","r-10","r-9","r-8","r-7"]`)
		pass(pace)
		s.sees(t, 2, `"order":["r-12","r-11","r-10","r-9","r-8","r-7"]`)
	})
}
