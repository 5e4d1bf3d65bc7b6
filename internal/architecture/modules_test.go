package architecture

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const ours = "github.com/bowline-mcp/bowline"

// TestRootRequiresNoTelemetry checks go.sum, which also lists indirect requirements.
//
// Guarantees: G-0053.1
func TestRootRequiresNoTelemetry(t *testing.T) {
	root := os.DirFS("../..")
	for _, name := range []string{"go.mod", "go.sum"} {
		text := read(t, root, name)
		for _, unwanted := range []string{"opentelemetry", "prometheus"} {
			if strings.Contains(text, unwanted) {
				t.Errorf("%s has %s", name, unwanted)
			}
		}
	}
	if !strings.Contains(read(t, root, "telemetry/otel/go.sum"), "opentelemetry") {
		t.Error("telemetry/otel requires no OpenTelemetry: this test looks for the wrong thing")
	}
}

var (
	useLine     = regexp.MustCompile(`(?m)^\t\./?(.*)$`)
	requireLine = regexp.MustCompile(`(?m)^\s*(?:require )?(` + ours + `\S*) v`)
)

// Guarantees: G-0053.2
func TestWorkspaceHasEveryModule(t *testing.T) {
	root := os.DirFS("../..")
	var used []string
	for _, line := range useLine.FindAllStringSubmatch(read(t, root, "go.work"), -1) {
		used = append(used, path.Clean(line[1]))
	}
	modules := modules(t, root)
	if diff := cmp.Diff(modules, used); diff != "" {
		t.Errorf("go.work does not use the modules there are (-there are +used):\n%s", diff)
	}
	for _, module := range modules {
		text := read(t, root, path.Join(module, "go.mod"))
		required := requireLine.FindAllStringSubmatch(text, -1)
		if module != "." && len(required) == 0 {
			t.Errorf("%s requires no module of this repository", module)
		}
		for _, line := range required {
			if !strings.Contains(text, line[1]+" => ../") {
				t.Errorf("%s/go.mod does not replace %s by its folder", module, line[1])
			}
		}
	}
}

// modules lists the folders with a go.mod, in order.
func modules(t *testing.T, root fs.FS) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && ignored(name):
			return fs.SkipDir
		case path.Base(name) == "go.mod":
			found = append(found, path.Dir(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

func read(t *testing.T, root fs.FS, name string) string {
	t.Helper()
	text, err := fs.ReadFile(root, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
