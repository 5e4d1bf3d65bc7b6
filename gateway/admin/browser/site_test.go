//go:build browser && unix

package browser

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

var site = flag.String("site", "", "the `FOLDER` of the site, as npm has built it")

// overflow names what cannot be seen at the right without moving the page. What scrolls by itself can.
const overflow = `(() => {
	const scrolls = (e) => e && e !== document.body && (["auto", "scroll"].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement))
	const wide = [...document.querySelectorAll("main *, header *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e) && getComputedStyle(e).visibility === "visible")
	if (document.documentElement.scrollWidth > innerWidth) wide.push(document.documentElement)
	return wide.slice(0, 3).map((e) => e.tagName + "." + e.className + " " + e.textContent.trim().slice(0, 60))
})()`

// Every page of the site can be read on a phone, without a script, and has a title and a navigation.
func TestSiteOnAPhone(t *testing.T) {
	b := open(t, serveSite(t))
	b.noScript() // which takes time; and nobody needs one to read
	b.do(chromedp.EmulateViewport(360, 740))
	seen := 0
	err := filepath.WalkDir(*site, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".html" || entry.Name() == "404.html" {
			return err
		}
		seen++
		path = filepath.ToSlash(strings.TrimPrefix(path, filepath.Clean(*site)))
		b.do(chromedp.Navigate(b.at + path))
		for _, bad := range see[[]string](b, overflow) {
			t.Errorf("%s at 360 px: cut off: %s", path, bad)
		}
		if title := see[string](b, `document.title`); !strings.HasSuffix(title, "Bowline") {
			t.Errorf("%s has the title %q", path, title)
		}
		if !see[bool](b, `!!document.querySelector("header .VPNavBarHamburger") && !!document.querySelector("main h1")`) {
			t.Errorf("%s has no navigation, or no heading", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 100 {
		t.Errorf("the site has %d pages", seen)
	}
}

// The kinds of pages in both colour schemes, wide and narrow.
func TestSiteInBothSchemes(t *testing.T) {
	b := open(t, serveSite(t))
	complaints := b.listen()
	background := map[string]string{}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		for _, width := range []int64{1280, 360} {
			b.do(chromedp.EmulateViewport(width, 900))
			for name, path := range map[string]string{"first": "/", "guide": "/docs/guide/server.html", "documentation": "/docs/", "record": "/docs/adr/0001-state-machine.html"} {
				b.do(chromedp.Navigate(b.at + path))
				b.await(`document.querySelector("#app").__vue_app__ && (location.pathname !== "/" || document.querySelector(".diagram svg"))`)
				for _, bad := range see[[]string](b, overflow) {
					t.Errorf("%s at %d px, %s: cut off: %s", path, width, scheme, bad)
				}
				if width == 1280 && !see[bool](b, `[...document.querySelectorAll("aside.VPSidebar a")].length > 20 && !!document.querySelector('.VPNavBarMenu a[href^="https://pkg.go.dev/"]')`) {
					t.Errorf("%s has no sidebar, or no link to the API", path)
				}
				background[scheme] = see[string](b, `getComputedStyle(document.body).backgroundColor`)
				picture(b, fmt.Sprintf("site-%s-%d-%s", name, width, scheme))
			}
		}
	}
	b.do(chromedp.Navigate(b.at + "/404.html"))
	b.await(`document.querySelector(".NotFound h1") && document.querySelector('.NotFound a[href="/"]')`)
	if background["light"] == background["dark"] {
		t.Errorf("light and dark pages are %s", background["light"])
	}
	if all := complaints(); len(all) > 0 {
		t.Errorf("the browser complains: %q", all)
	}
}

// The search of the site finds a page, without a server that searches.
func TestSiteSearch(t *testing.T) {
	b := open(t, serveSite(t))
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate(b.at+"/"))
	b.await(`document.querySelector("#app").__vue_app__`)
	b.do(chromedp.Click(`#local-search button`))
	b.await(`document.querySelector(".VPLocalSearchBox input")`)
	b.do(chromedp.SendKeys(`.VPLocalSearchBox input`, "systemd"))
	b.await(`document.querySelector('.VPLocalSearchBox a.result[href*="/docs/guide/up-operate.html"]')`)
}

// serveSite serves the folder of the site.
func serveSite(t *testing.T) *place {
	t.Helper()
	if *site == "" {
		t.Fatal("-site is missing: .ci/run site builds the site, and gives it")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, served := &http.Server{Handler: http.FileServer(http.Dir(*site))}, make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close() // connections of the browser stay open otherwise
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return &place{t: t, at: listener.Addr().String()}
}

// picture draws what the tab shows into the folder of -keep, or one that is removed.
func picture(b *tab, name string) {
	b.t.Helper()
	picture, err := run(b, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	folder := *keep
	if folder == "" {
		folder = b.t.TempDir()
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
