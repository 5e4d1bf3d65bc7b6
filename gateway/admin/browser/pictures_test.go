//go:build browser && unix

package browser

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

const maxPicture = 150_000 // bytes

// The pictures of the guide are what the page looks like.
func TestPictures(t *testing.T) {
	f := troubled()
	b := open(t, serve(t, f, ""))
	b.login()
	folder := *keep
	if *update {
		folder = "../../../docs/guide/pictures"
	}
	for _, p := range []struct {
		name, path, scheme string
		width, height      int64
	}{
		{"page-light", "/", "light", 1180, 640}, {"page-dark", "/", "dark", 1180, 640}, {"page-phone", "/", "light", 360, 740}, {"page-phone-dark", "/", "dark", 360, 740},
		{"server-light", "/servers/web", "light", 1180, 640}, {"server-phone", "/servers/web", "dark", 360, 740},
		{"tool-light", "/servers/web/tools/web__navigate", "light", 1180, 780}, {"audit-light", "/audit", "light", 1180, 480},
	} {
		b.scheme(p.scheme)
		b.do(chromedp.EmulateViewport(p.width, p.height))
		b.visit(p.path)
		picture, err := run(b, chromedp.CaptureScreenshot())
		if err != nil || len(picture) > maxPicture {
			t.Fatalf("%s has %d bytes: %v", p.name, len(picture), err)
		}
		if folder == "" {
			continue
		}
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, p.name+".png"), picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
