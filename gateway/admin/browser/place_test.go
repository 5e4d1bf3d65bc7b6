//go:build browser && unix

package browser

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/gateway"
	"github.com/bowline-mcp/bowline/gateway/admin"
	"github.com/bowline-mcp/bowline/gateway/audit"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/chromedp/chromedp"
)

const (
	token   = "t0ken"
	hostile = `<img src=x onerror="document.title='taken'">`
)

// A place is a page at an address.
type place struct {
	t      *testing.T
	at     string // its address
	door   *admin.Door
	server *http.Server
	served chan error
}

// serve serves the page of a gateway, at an address of this machine; "": any.
func serve(t *testing.T, g admin.Gateway, at string) *place {
	t.Helper()
	if at == "" {
		at = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, at: listener.Addr().String(), door: admin.New(g), served: make(chan error, 1)}
	p.server = &http.Server{Handler: p.door.Web(admin.Web{Token: token, Open: true, URL: "http://" + p.at + "/"})}
	go func() { p.served <- p.server.Serve(listener) }()
	t.Cleanup(p.end)
	return p
}

// end ends the page as the end of a gateway does. Once more does nothing.
func (p *place) end() {
	if p.server == nil {
		return
	}
	p.door.Close()
	_ = p.server.Close() // connections of the browser stay open otherwise
	if err := <-p.served; !errors.Is(err, http.ErrServerClosed) {
		p.t.Error(err)
	}
	p.server = nil
}

// A running gateway is one over processes of this program.
type running struct{ *gateway.Gateway }

func (running) End() {}

func (running) Records() ([]audit.Record, <-chan struct{}, bool) { return nil, nil, false }

func (running) Reload(context.Context) error { return nil }

// run serves servers by their names, each in its role.
func start(t *testing.T, roles map[string]string) running {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]any{}
	for name, role := range roles {
		servers[name] = map[string]any{"command": self, "env": map[string]string{childRole: role}}
	}
	text, err := json.Marshal(map[string]any{"mcpServers": servers})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := mcpjson.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	g := gateway.New(gateway.Options{Each: func(_ *mcpjson.Server, o *client.Options) {
		o.Conn.BackoffMin, o.Conn.BackoffMax = time.Hour, time.Hour // nothing but a person makes a server try again
	}})
	t.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := g.Apply(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	return running{g}
}

// A tab is one of a browser.
type tab struct {
	t   *testing.T
	ctx context.Context
	at  string
}

// patience is how long one step in a browser may take, on a machine that has much else to do.
const patience = time.Minute

// open starts a browser, and opens a tab in it.
func open(t *testing.T, p *place) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.NoSandbox)
	allocated, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, quit := chromedp.NewContext(allocated)
	t.Cleanup(func() { quit(); end() })
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil { // with this context the browser ends
		t.Fatalf("chromium does not start: %v", err)
	}
	return &tab{t, ctx, "http://" + p.at}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// run asks a browser for something.
func run[T any](b *tab, action chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, action)
}

// visit shows a page, once its script has said that it is live. That of a tool has none.
func (b *tab) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.at + path))
	b.await(`!document.querySelector("script") || document.getElementById("live").textContent === "● live"`)
}

// await waits until an expression is true, over the loading of pages, which ends what a browser was asked before.
func (b *tab) await(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		yes, err := run(b, chromedp.Evaluate[bool](`(() => { try { return !!(`+expression+`) } catch { return false } })()`))
		if err == nil && yes {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			b.t.Fatalf("it never became true: %s (%v)", expression, err)
		}
	}
}

// see returns the value of an expression.
func see[T any](b *tab, expression string) T {
	b.t.Helper()
	value, err := run(b, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// login enters the token, as a person does.
func (b *tab) login() {
	b.t.Helper()
	b.visit("/")
	b.do(chromedp.SendKeys(`input[name=token]`, token+"\r"))
	b.await(`document.querySelector("footer form").action.endsWith("/v1/reload") && document.getElementById("live").textContent === "● live"`)
}

// row is a selector of the row of a server.
func row(name string) string {
	return `[...document.querySelectorAll("#servers > li")].find((r) => r.querySelector("a").textContent === ` + quote(name) + `)`
}

func quote(text string) string {
	quoted, _ := json.Marshal(text)
	return strings.ReplaceAll(string(quoted), "`", "\\`")
}
