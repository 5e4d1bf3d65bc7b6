//go:build browser && unix

package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// A person sees that a server was killed, without a touch, and starts it again by a button. What a server has written about itself does
// nothing to the page.
//
// Guarantees: G-0091.8, G-0091.12
func TestAServerIsKilled(t *testing.T) {
	g := start(t, map[string]string{"files": "echo", "web": "broken"})
	b := open(t, serve(t, g, ""))
	b.login()
	b.await(row("files") + `.dataset.state === "ready"`)
	b.await(row("web") + `.dataset.state === "backoff" && document.querySelector("#servers > li") === ` + row("web"))
	b.await(row("web") + `.textContent.includes("\\x1b[31mbrowser\\x1b[0m is \\u202enot installed <img src=x")`)
	pid := see[int](b, "Number("+row("files")+".dataset.pid)")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.await(row("files") + `.dataset.state === "backoff" && ` + row("files") + `.querySelector("time[data-count=down]").textContent.includes("in")`)
	b.press("wake files")
	b.await(row("files") + `.dataset.state === "ready" && Number(` + row("files") + `.dataset.pid) !== ` + fmt.Sprint(pid))
	pid = see[int](b, "Number("+row("files")+".dataset.pid)")
	b.press("restart files")
	b.await(row("files") + `.dataset.state === "ready" && Number(` + row("files") + `.dataset.pid) !== ` + fmt.Sprint(pid))
	b.visit("/servers/files")
	b.await(`[...document.querySelectorAll("#foot ol li strong")].map((s) => s.textContent).join(" ").includes("ready starting")`)
	b.await(`document.body.textContent.includes("files__echo")`)
}

// A browser that opens the address of a code is logged in, and the buttons work.
//
// Guarantees: G-0091.18
func TestABrowserIsLoggedIn(t *testing.T) {
	p := serve(t, start(t, map[string]string{"files": "echo"}), "")
	b := open(t, p)
	local := httptest.NewServer(p.door.Local())
	defer local.Close()
	answer, err := http.Post(local.URL+"/v1/code", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var given struct{ URL string }
	if err := json.NewDecoder(answer.Body).Decode(&given); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(given.URL))
	b.await(`location.pathname === "/" && ` + row("files") + `.dataset.state === "ready"`)
	b.press("stop files")
	b.await(row("files") + `.dataset.state === "stopped"`)
}

// A person calls a tool by a form, and sees what it has answered.
//
// Guarantees: G-0091.17
func TestAToolIsTried(t *testing.T) {
	g := start(t, map[string]string{"files": "echo"})
	b := open(t, serve(t, g, ""))
	b.login()
	b.await(row("files") + `.textContent.includes("1 tool")`)
	b.visit("/servers/files")
	b.do(chromedp.Click(`main section a`), chromedp.SendKeys(`#a0`, hostile), chromedp.Click(`.try button`))
	b.await(`document.querySelector("#result[data-outcome=answered] pre").textContent.includes("img src=x onerror")`)
	if title := see[string](b, `document.title`); title != "files__echo · bowline" {
		t.Errorf("what was entered has made the title %q", title)
	}
}

// press presses a button by the name that a screen reader says. A form that was sent shows the page again.
func (b *tab) press(name string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		err := chromedp.Do(ctx, chromedp.Click(`button[aria-label=`+quote(name)+`]`))
		var failed *cdproto.Error
		if err == nil {
			return
		}
		if !errors.As(err, &failed) || failed.Code != replaced {
			b.t.Fatal(err)
		}
	}
}

// replaced is the error of a browser if the page has replaced what was to be clicked, as it does when a server has changed.
const replaced = -32000

// Nothing that servers and clients write runs, loads or changes the page.
//
// Guarantees: G-0091.9
func TestHostileNames(t *testing.T) {
	f := troubled()
	f.set(func(r *admin.Report) {
		r.Servers[0].Name, r.Servers[3].Stderr, r.Clients[0].Program, r.Questions[0].Target = hostile, hostile, hostile, hostile
		r.Notices = []string{hostile + "</header><script>document.title='taken'</script>"}
	})
	f.detail.Tools[0].Name, f.detail.Tools[1].Description = hostile, hostile
	f.detail.Changes[0].Reason, f.detail.Running = hostile, []admin.Request{{Method: hostile, Target: hostile, Program: hostile}}
	fmt.Fprintln(&f.tail, hostile)
	b := open(t, serve(t, f, ""))
	complaints := b.listen()
	b.login()
	for _, path := range []string{"/", "/servers/web", "/servers/" + "%3Cimg%20src=x%20onerror=%22document.title='taken'%22%3E"} {
		b.visit(path)
		f.set(func(r *admin.Report) { r.Servers[1].Stderr += hostile })
		b.await(`document.body.textContent.includes("<img src=x")`)
		if n := see[int](b, `document.querySelectorAll("img, body script, [onerror]").length`); n != 0 || strings.Contains(see[string](b, "document.title"), "taken") && path == "/" {
			t.Errorf("%s: %d elements that somebody else has written, title %s", path, n, see[string](b, "document.title"))
		}
	}
	if all := complaints(); len(all) > 0 {
		t.Errorf("the browser complains: %q", all)
	}
}

// Two hundred servers are one list. A server in trouble moves to the top, but not while somebody points at the list.
//
// Guarantees: G-0091.8, G-0091.10
func TestManyServers(t *testing.T) {
	f := troubled()
	f.set(func(r *admin.Report) {
		r.Servers = nil
		for i := range 200 {
			r.Servers = append(r.Servers, admin.ServerReport{Name: fmt.Sprintf("s%d", i), State: admin.Ready})
		}
	})
	b := open(t, serve(t, f, ""))
	b.do(chromedp.EmulateViewport(1000, 700))
	b.visit("/")
	first := func() string { return see[string](b, `document.querySelector("#servers a").textContent`) }
	fail := func(i int) {
		f.set(func(r *admin.Report) {
			r.Servers = slices.Clone(r.Servers)
			r.Servers[i].State = admin.Backoff
		})
		b.await(row(fmt.Sprintf("s%d", i)) + `.dataset.state === "backoff"`)
	}
	if n := see[int](b, `document.querySelectorAll("#servers > li").length`); n != 200 || first() != "s0" {
		t.Errorf("%d rows, the first is %s", n, first())
	}
	fail(150)
	b.await(`document.querySelector("#servers a").textContent === "s150"`)
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 300, 400))
	fail(20)
	if got := first(); got != "s150" {
		t.Errorf("while somebody points at the list, %s came to the top", got)
	}
	b.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 300, 5))
	b.await(`document.querySelector("#servers a").textContent === "s20"`)
}

// A page whose gateway ends says so, and shows the next gateway as soon as that is there.
//
// Guarantees: G-0091.15
func TestTheGatewayIsRestarted(t *testing.T) {
	f := troubled()
	p := serve(t, f, "")
	b := open(t, p)
	b.visit("/")
	p.end()
	b.await(`document.getElementById("live").textContent.startsWith("⚠")`)
	f.set(func(r *admin.Report) { r.Servers[0].State = admin.Stopped })
	serve(t, f, p.at)
	b.await(`document.getElementById("live").textContent === "● live" && ` + row("files") + `.dataset.state === "stopped"`)
}

// Without script a person sees the same.
//
// Guarantees: G-0091.10
func TestWithoutScript(t *testing.T) {
	p := serve(t, troubled(), "")
	b, without := open(t, p), open(t, p)
	b.login()
	without.login()
	without.noScript()
	const shown = `document.querySelector("header").innerText + document.querySelector("main").innerText.replaceAll(/ \((for|in) [^)]*\)/g, "")`
	for _, path := range []string{"/", "/servers/web", "/audit", "/audit?who=bob"} {
		b.visit(path)
		without.do(chromedp.Navigate(without.at + path))
		if a, other := see[string](b, shown), see[string](without, shown); a != other || len(a) < 200 {
			t.Errorf("%s: with the script\n%s\nwithout\n%s", path, a, other)
		}
		if said := see[string](without, `document.getElementById("live").textContent`); !strings.Contains(said, "load the page again") {
			t.Errorf("without the script it says %q", said)
		}
	}
}

// The records of the trail are live, and those that somebody wants to see are chosen by a form; what is being entered there stays. What clients have written is text.
//
// Guarantees: G-0091.20
func TestRecordsAreSeen(t *testing.T) {
	f := troubled()
	b := open(t, serve(t, f, ""))
	b.login()
	b.await(`document.querySelector("#top nav a").textContent === "audit"`)
	b.visit("/audit")
	const outcomes = `[...document.querySelectorAll("#records > li")].map((r) => r.dataset.outcome).join()`
	b.await(outcomes + ` === "restart,denied,not answered,tool error,answered,answered"`)
	b.do(chromedp.SendKeys(`[name=who]`, "BOB"))
	f.set(func(*admin.Report) {
		f.records = append(f.records, audit.Record{Number: 23, Time: at(12, 4, 2), Principal: "token bob", Method: "tools/call", Name: hostile, Outcome: "answered"})
	})
	b.await(outcomes + `.startsWith("answered,restart,denied") && document.querySelector("#records > li").textContent.includes("<img src=x")`)
	b.await(`document.querySelector("[name=who]").value === "BOB"`)
	b.do(chromedp.Click(`.filter button`))
	b.await(`location.search.includes("who=BOB") && ` + outcomes + ` === "answered,not answered"`)
	f.set(func(*admin.Report) {
		f.records = append(f.records, audit.Record{Number: 24, Principal: "token ada", Outcome: "answered"}, audit.Record{Number: 25, Principal: "token bob", Outcome: "denied"})
	})
	b.await(outcomes + ` === "denied,answered,not answered"`)
}

// A page that nobody sees has no stream: a browser opens six connections to a site, and with as many pages in the background the next would wait
// for ever. It is current again when somebody sees it.
//
// Guarantees: G-0091.15
func TestAHiddenPageWaits(t *testing.T) {
	f := troubled()
	b := open(t, serve(t, f, ""))
	b.visit("/")
	see[bool](b, `(() => {
		const close = EventSource.prototype.close;
		window.ended = 0;
		EventSource.prototype.close = function () { window.ended++; close.call(this); };
		window.hide = (is) => { Object.defineProperty(document, "hidden", { value: is, configurable: true }); document.dispatchEvent(new Event("visibilitychange")); };
		window.hide(true);
		return true;
	})()`)
	b.await(`window.ended === 1`)
	f.set(func(r *admin.Report) { r.Servers[0].State = admin.Starting })
	see[bool](b, `(window.hide(false), true)`)
	b.await(row("files") + `.dataset.state === "starting" && document.getElementById("live").textContent === "● live"`)
}
