package architecture

import (
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const ours = "github.com/bowline-mcp/bowline"

// Who embeds a client compiles neither nodes nor NATS, and the lean command no NATS.
func TestClientsCompileNoCluster(t *testing.T) {
	compiled := func(folder, pkg string) string {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", pkg)
		list.Dir = filepath.Join("../..", folder)
		text, err := list.Output()
		if err != nil || !strings.Contains(string(text), ours+"/transport\n") {
			t.Fatalf("go list -deps %s has no package of ours: %v", pkg, err)
		}
		return string(text)
	}
	for _, c := range []struct{ folder, pkg, unwanted string }{
		{".", "./features/client", ours + "/cluster"},
		{".", "./mcpjson/sessions", ours + "/cluster"},
		{".", "./transport/streamable", ours + "/cluster"},
		{"cmd/bowline", ".", "nats"},
		{"cmd/bowline", ".", "opentelemetry.io/otel/exporters/otlp"},
	} {
		if strings.Contains(compiled(c.folder, c.pkg), c.unwanted) {
			t.Errorf("%s in %s compiles %s", c.pkg, c.folder, c.unwanted)
		}
	}
	if !strings.Contains(compiled("cmd/bowline/full/bowline", "."), "nats-server") {
		t.Error("the full command compiles no NATS: this test looks for the wrong thing")
	}
}

// TestRootRequiresNoTelemetry checks go.sum, which also lists indirect requirements.
//
// Guarantees: G-0053.1
func TestRootRequiresNoTelemetry(t *testing.T) {
	root := os.DirFS("../..")
	for _, name := range []string{"go.mod", "go.sum"} {
		text := read(t, root, name)
		for _, unwanted := range []string{"opentelemetry", "prometheus", "nats"} {
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
	requireLine = regexp.MustCompile(`(?m)^\s*(?:require )?(` + ours + `\S*) (v\S+)`)
	replaceLine = regexp.MustCompile(`(?m)^\s*(?:replace )?(\S+)(?: v\S+)? => `)
)

// unreleased are the modules that nobody installs: they compare Bowline with others, look at its page with a browser,
// show how it is used, or release it.
var unreleased = []string{"examples/chi", "examples/sqltasks", "gateway/admin/browser", "internal/tools/release", "peers"}

// TestWorkspaceHasEveryModule also checks that go install takes every command: it refuses a module that replaces anything.
//
// Guarantees: G-0053.2, G-0105.1
func TestWorkspaceHasEveryModule(t *testing.T) {
	root := os.DirFS("../..")
	work := read(t, root, "go.work")
	var used []string
	for _, line := range useLine.FindAllStringSubmatch(work, -1) {
		used = append(used, path.Clean(line[1]))
	}
	modules := modules(t, root)
	if diff := cmp.Diff(modules, used); diff != "" {
		t.Errorf("go.work does not use the modules there are (-there are +used):\n%s", diff)
	}
	version := ""
	for _, module := range modules {
		text := read(t, root, path.Join(module, "go.mod"))
		required := requireLine.FindAllStringSubmatch(text, -1)
		if module != "." && module != "internal/tools/release" && len(required) == 0 {
			t.Errorf("%s requires no module of this repository", module)
		}
		for _, line := range required {
			if version == "" {
				version = line[2]
			}
			folder := strings.TrimPrefix(strings.TrimPrefix(line[1], ours), "/")
			if line[2] != version {
				t.Errorf("%s/go.mod requires %s %s, and another one %s", module, line[1], line[2], version)
			}
			if want := "\t" + line[1] + " " + version + " => ./" + folder + "\n"; !strings.Contains(work, want) {
				t.Errorf("go.work has no line %q", want)
			}
			if slices.Contains(unreleased, folder) {
				t.Errorf("%s/go.mod requires %s, which is not released", module, line[1])
			}
		}
		for _, line := range replaceLine.FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(line[1], ours) || !slices.Contains(unreleased, module) {
				t.Errorf("%s/go.mod replaces %s", module, line[1])
			}
		}
	}
}

var (
	startedProgram = regexp.MustCompile(`exec\.Command(?:Context)?\((?:[\w.]+(?:\(\))?, )?"([a-z]+)"`)
	fromNPM        = regexp.MustCompile(`\bBuildPrograms\(|\.install\(\)`) // of peers
	buildTag       = regexp.MustCompile(`^//go:build (?:unix && )?(npm|prometheus|cluster|install)\n`)
)

// TestTestsNeedOnlyGo looks for programs that tests start by name. A test with a build tag is one
// that a step of .ci/run runs with this tag.
//
// Guarantees: G-0053.6
func TestTestsNeedOnlyGo(t *testing.T) {
	root, tagged := os.DirFS("../.."), map[string]int{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && ignored(name):
			return fs.SkipDir
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text := read(t, root, name)
		if tag := buildTag.FindStringSubmatch(text); tag != nil {
			tagged[tag[1]]++
			return nil
		}
		if fromNPM.MatchString(text) {
			t.Errorf("%s installs from npm, want it behind the build tag npm", name)
		}
		for _, started := range startedProgram.FindAllStringSubmatch(text, -1) {
			if !slices.Contains([]string{"go", "sh", "cat", "x"}, started[1]) {
				t.Errorf("%s starts %s, want it behind a build tag", name, started[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ci := read(t, root, ".ci/run")
	for step, body := range map[string]string{
		"test":      "step_test() { go test work; }",
		"npm":       `(cd peers && go vet -tags "$tags" . && go test -tags "$tags" .)`,
		"browser":   `go test -tags "$tags" -count=1 -skip '^TestSite' . `,
		"site":      `go test -tags "$tags" -count=1 -run '^TestSite' . `,
		"telemetry": "go test -tags prometheus ",
		"nodes":     "go test -tags cluster ",
		"install":   "go test -tags install ",
		"crowd":     "-args -crowd",
	} {
		if !slices.Contains(steps(ci), step) {
			t.Errorf(".ci/run has no %s among its steps: %v", step, steps(ci))
		}
		_, found, _ := strings.Cut(ci, "\nstep_"+step+"()")
		found, _, _ = strings.Cut("step_"+step+"()"+found, "}\n\n")
		if !strings.Contains(found+"}", body) {
			t.Errorf("step %s of .ci/run has no %q", step, body)
		}
	}
	if all := steps(ci); len(all) == 0 || all[0] != "test" {
		t.Errorf(".ci/run begins with %v, want test", all)
	}
	if !strings.Contains(ci, "\nreadonly tags=npm,browser\n") {
		t.Error(".ci/run does not say that tags are npm")
	}
	if tagged["npm"] < 5 || tagged["prometheus"] == 0 || tagged["cluster"] == 0 || tagged["install"] == 0 {
		t.Errorf("files of tests by their tags: %v", tagged)
	}
}

// steps returns what .ci/run does if it is not told what to do.
func steps(ci string) (all []string) {
	for _, name := range []string{"first", "computing", "waiting", "alone", "leases", "randomized", "last"} {
		_, list, _ := strings.Cut(ci, "\nreadonly "+name+"=(")
		list, _, _ = strings.Cut(list, ")\n")
		all = append(all, strings.Fields(list)...)
	}
	return all
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
