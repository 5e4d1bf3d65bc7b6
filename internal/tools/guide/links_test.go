package guide

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	code = regexp.MustCompile("(?ms)^```.*?^```")
)

// TestLinksLeadSomewhere checks that each link of a page to a file or to a heading of a page
// leads to one that exists.
func TestLinksLeadSomewhere(t *testing.T) {
	files, checked := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"), filepath.Join(root, "SECURITY.md")}, 0
	for _, dir := range []string{"docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".md") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(string(page), ""), -1) {
			path, heading, _ := strings.Cut(found[1], "#")
			if strings.Contains(path, "://") || strings.HasPrefix(path, "mailto:") {
				continue
			}
			to := file
			if path != "" {
				to = filepath.Join(filepath.Dir(file), filepath.FromSlash(path))
			}
			checked++
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %v", file, err)
			} else if heading != "" && strings.HasSuffix(to, ".md") && !hasHeading(t, to, heading) {
				t.Errorf("%s: %s has no heading %s", file, to, heading)
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d links were checked", checked)
	}
}

var noLetter = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// hasHeading reports whether a page has a heading with this anchor, as GitHub makes it.
func hasHeading(t *testing.T, file, anchor string) bool {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if text, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); is && strings.HasPrefix(line, "#") {
			text = noLetter.ReplaceAllString(strings.ToLower(strings.TrimSpace(text)), "")
			if strings.ReplaceAll(text, " ", "-") == anchor {
				return true
			}
		}
	}
	return strings.Contains(string(page), `<a id="`+anchor+`"`) || strings.Contains(string(page), `<a name="`+anchor+`"`)
}
