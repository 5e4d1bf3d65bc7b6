//go:build browser && unix

package browser

import (
	"context"
	_ "embed" // the script of the contrasts
	"encoding/json"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/chromedp"
)

//go:embed contrast.js
var contrastJS string

// pages are all kinds of pages.
var pages = []string{"/", "/servers/web", "/servers/database", "/servers/web/tools/web__navigate", "/audit"}

// Every text can be read, in light and in dark, and on a phone nothing is cut off or must be moved sideways. Every control has a name that says
// what it does, and to what.
//
// Guarantees: G-0091.16
func TestEverybodyCanUseThePage(t *testing.T) {
	p := serve(t, troubled(), "")
	b, outside := open(t, p), open(t, p)
	b.login()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{360, 1180} {
			for _, who := range []*tab{b, outside} {
				who.scheme(scheme)
				who.do(chromedp.EmulateViewport(width, 740))
				for _, path := range pages {
					who.visit(path)
					for _, bad := range see[[]string](who, contrastJS) {
						t.Errorf("%s, %s, %d px: too little contrast: %s", path, scheme, width, bad)
					}
					if wide := see[int64](who, `document.documentElement.scrollWidth`); wide > width {
						t.Errorf("%s at %d px is %d px wide", path, width, wide)
					}
				}
			}
		}
	}
	for _, who := range []*tab{b, outside} {
		for _, path := range pages {
			who.visit(path)
			who.checkNames(path)
		}
	}
}

// checkNames looks at what a screen reader is told.
func (b *tab) checkNames(path string) {
	b.t.Helper()
	tree, err := run(b, func(ctx context.Context, target *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	if err != nil {
		b.t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, node := range tree.Nodes {
		role, name := text(node.Role), text(node.Name)
		switch role {
		case "button", "link", "textbox", "combobox", "checkbox", "spinbutton", "region":
		default:
			continue
		}
		switch {
		case node.Ignored:
		case name == "":
			b.t.Errorf("%s: a %s has no name", path, role)
		case role == "button" && seen[name]:
			b.t.Errorf("%s: two buttons are called %q", path, name)
		}
		seen[name] = true
	}
	if len(seen) < 2 {
		b.t.Errorf("%s has %d controls", path, len(seen))
	}
}

// text returns the text of a value of the tree.
func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var s string
	_ = json.Unmarshal([]byte(v.Value), &s) // which is no string if it is no text
	return s
}

// noScript makes the tab run no script of a page.
func (b *tab) noScript() {
	b.t.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// scheme makes the browser prefer light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, command, params); err != nil {
		b.t.Fatal(err)
	}
}

// listen returns a function that says what the browser has complained about since.
func (b *tab) listen() func() []string {
	b.t.Helper()
	var mu sync.Mutex
	var all []string
	err := chromedp.Listen(b.ctx, func(event any) {
		if e, ok := event.(*log.EventEntryAdded); ok {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, e.Entry.Text)
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return func() []string { mu.Lock(); defer mu.Unlock(); return all }
}
