package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A fakeNode is a gateway of a cluster.
type fakeNode struct {
	*fake
	nodes  []NodeReport
	waited bool // somebody waits for what the others say
	moved  string
}

func (f *fakeNode) Move(_ context.Context, server, node string) error {
	if node == "gone" {
		return errors.New("the cluster has no such node")
	}
	f.moved = server + " to " + node
	return nil
}

func (f *fakeNode) Nodes(ctx context.Context) (string, []NodeReport) {
	f.waited = ctx.Err() == nil
	return "a", f.nodes
}

// The page and the report show the other gateways of a cluster, those first that need a person, with the age of what they have said. Only a report waits for them, and who
// has no token sees of them what he sees of this one.
//
// Guarantees: G-0091.21
func TestOtherGatewaysAreShown(t *testing.T) {
	f := &fakeNode{fake: newFake(files())}
	f.nodes = []NodeReport{
		{Name: "b", State: "ready", At: noon, NodeServers: NodeServers{Servers: []ServerReport{{Name: "fine", State: Ready}}, More: 3}},
		{Name: "c", State: "draining", At: noon, NodeServers: NodeServers{Servers: []ServerReport{{Name: "web", State: Backoff, Reason: "exited: secret " + hostile}}}},
		{Name: "d", Silent: true},
	}
	h := serveWeb(t, f, true)
	got := page(h, "/", token)
	if f.waited {
		t.Error("the page waits for other gateways")
	}
	_, got, _ = strings.Cut(got, "Other gateways of the cluster")
	last := 0
	for _, want := range []string{"<strong>d</strong>", "does not answer", "<strong>c</strong> draining", `as of <time datetime="2026-11-27T12:00:00Z"`, "<strong>backoff</strong> web · exited: secret &lt;img", "<strong>b</strong> ready", "<strong>ready</strong> fine", "and 3 more"} {
		at := strings.Index(got, want)
		if at < last {
			t.Errorf("%q is at %d, after %d", want, at, last)
		}
		last = max(last, at)
	}
	for _, show := range []string{page(h, "/"), page(h, "/v1/report")} {
		if strings.Contains(show, "secret") || !strings.Contains(show, "web") {
			t.Errorf("without the token: %s", show)
		}
	}
	if !strings.Contains(f.nodes[1].Servers[0].Reason, "secret") {
		t.Error("what is known of the other gateways was changed")
	}
	var r Report
	if err := json.Unmarshal([]byte(page(h, "/v1/report", token)), &r); err != nil || r.Node != "a" || len(r.Nodes) != 3 || r.Nodes[1].Servers[0].State != Backoff || !f.waited {
		t.Errorf("the report is %+v, %v", r, err)
	}
	if strings.Contains(page(serveWeb(t, f.fake, true), "/", token), "Other gateways") {
		t.Error("one of no cluster shows others")
	}
}

// silent are other gateways that never answer.
type silent struct{ *fake }

func (silent) Nodes(ctx context.Context) (string, []NodeReport) { <-ctx.Done(); return "a", nil }
func (silent) Move(context.Context, string, string) error       { return nil }

// A report waits for the other gateways for two seconds, and no longer.
//
// Guarantees: G-0091.21
func TestAReportDoesNotWaitForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if got := ask(serveWeb(t, silent{newFake(files())}, true), "GET", "/v1/report"); got.Code != 200 || time.Since(began) != 2*time.Second {
			t.Errorf("%d after %v", got.Code, time.Since(began))
		}
	})
}

// What a gateway tells the others is bounded, has those in trouble first, and says how many it has left out.
func TestWhatOtherGatewaysAreTold(t *testing.T) {
	var r Report
	for i := range 300 {
		r.Servers = append(r.Servers, ServerReport{Name: fmt.Sprint("fine", i), State: Ready, Since: noon, Stderr: strings.Repeat("é", 5000)})
	}
	r.Servers = append(r.Servers, ServerReport{Name: "web", State: Backoff, Reason: strings.Repeat("long ", 5000), NextAttempt: noon.Add(time.Hour), Notices: []string{"one", "two"}})
	told := r.Told()
	var got NodeServers
	if err := json.Unmarshal(told, &got); err != nil || len(told) > maxTold {
		t.Fatalf("%d bytes: %v", len(told), err)
	}
	if len(got.Servers) < 20 || len(got.Servers)+got.More != 301 || got.Servers[0].Name != "web" || len(got.Servers[0].Reason) > maxToldText+3 || !slices.Equal(got.Servers[0].Notices, []string{"one"}) {
		t.Errorf("it is %+v", got)
	}
	if got := string((Report{}).Told()); got != `{"servers":[]}` {
		t.Errorf("of no servers: %s", got)
	}
	long := strings.Repeat("a", maxToldText)
	short := Report{Servers: []ServerReport{{Name: long, State: Backoff}, {Name: long + "b", State: Backoff}, {Name: "odd", P50: math.NaN()}}}
	var three NodeServers
	if err := json.Unmarshal(short.Told(), &three); err != nil || len(three.Servers) != 2 || three.More != 1 || three.Servers[0].Name != long || three.Servers[1].Name != long+"…" {
		t.Errorf("of two servers with long names, and one that cannot be told: %+v, %v", three, err)
	}
}

// Who may act can move a server of the cluster through the door of any node. It needs a node by name, and a cluster.
//
// Guarantees: G-0104.9
func TestAServerIsMovedThroughTheDoor(t *testing.T) {
	f := &fakeNode{fake: newFake(files())}
	for _, c := range []struct {
		of       Gateway
		form     string
		hasToken bool
		status   int
		says     string
	}{
		{f, "node=b", false, http.StatusUnauthorized, ""},
		{f, "", true, http.StatusBadRequest, "name one node"},
		{f, "node=a&node=b", true, http.StatusBadRequest, "name one node"},
		{f, "node=gone", true, http.StatusConflict, "no such node"},
		{f.fake, "node=b", true, http.StatusNotFound, "no node of a cluster"},
		{f, "node=b", true, http.StatusSeeOther, ""},
	} {
		f.moved = ""
		change := []func(*http.Request){form(c.form)}
		if c.hasToken {
			change = append(change, token)
		}
		got := ask(serveWeb(t, c.of, false), "POST", "/v1/servers/one/move", change...)
		if got.Code != c.status || !strings.Contains(got.Body.String(), c.says) || (f.moved == "one to b") != (c.status == http.StatusSeeOther) {
			t.Errorf("%q, token %v: %d %s, moved %q; want %d %q", c.form, c.hasToken, got.Code, got.Body, f.moved, c.status, c.says)
		}
		if f.moved != "" && c.status != http.StatusSeeOther {
			t.Errorf("%q, token %v: it has moved %s", c.form, c.hasToken, f.moved)
		}
	}
}
