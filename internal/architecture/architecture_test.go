package architecture

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the picture of the layers in the pages that show it")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRepository applies every rule to this repository.
func TestRepository(t *testing.T) {
	tree, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	here := func(f *file) bool { return f.path == "internal/architecture/architecture_test.go" }
	if !slices.ContainsFunc(tree.files, here) {
		t.Fatal("the tree does not contain this file: the wrong folder was read")
	}
	for _, violation := range tree.Check() {
		t.Error(violation)
	}
}

const (
	pictureBegin = "<!-- The picture is generated: make docs rewrites it. -->\n"
	pictureEnd   = "<!-- End of the picture. -->\n"
)

// TestPictureIsFresh compares the pictures of the layers with the table. With -update it rewrites them.
func TestPictureIsFresh(t *testing.T) {
	tree, err := Load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"../../README.md", "../../docs/design/MAP.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, begins := strings.Cut(string(text), pictureBegin)
		_, after, ends := strings.Cut(rest, pictureEnd)
		if !begins || !ends {
			t.Fatalf("%s does not say where the picture belongs", page)
		}
		want := before + pictureBegin + "\n" + tree.Picture() + "\n" + pictureEnd + after
		if *update {
			if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if diff := cmp.Diff(want, string(text)); diff != "" {
			t.Errorf("%s is stale; run make docs (-want +got):\n%s", page, diff)
		}
	}
}

// TestRulesFire breaks each rule in a small tree, with a similar line that is allowed beside
// each violation.
func TestRulesFire(t *testing.T) {
	fired := map[string]bool{}
	for _, fixture := range fixtures {
		t.Run(fixture.name, func(t *testing.T) {
			got := broken(t, fixture.files)
			if diff := cmp.Diff(fixture.want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
			for _, violation := range got {
				rule, _, _ := strings.Cut(violation, " ")
				fired[rule] = true
			}
		})
	}
	for _, r := range rules {
		if !fired[r.name] {
			t.Errorf("rule %q fires in no fixture", r.name)
		}
	}
}

// TestImports checks single imports with the table of layers.
func TestImports(t *testing.T) {
	for _, imported := range []struct {
		from, to string
		allowed  bool
	}{
		{"telemetry", "internal/lazyworker", true},
		{"conn", "internal/lazyworker", true},
		{"internal/lazyworker", "telemetry", false},
		{"telemetry", "protocol", false},
		{"telemetry/zaplog", "telemetry", true},
		{"telemetry/zaplog", "conn", false},
		{"telemetry/zaplog", "telemetry/metrics", false},
		{"telemetry/zaplog", "telemetry/zaplog/internal/field", true},
		{"conn", "telemetry/zaplog", false},
		{"cmd/bowline", "telemetry/zaplog", true},
		{"examples/kill", "telemetry/zaplog", true},
		{"protocol", "protocol/jsonrpc", true},
		{"protocol/jsonrpc", "protocol", false},
		{"transport", "protocol/jsonrpc", true},
		{"transport", "transport/inmem", false},
		{"transport", "conn", false},
		{"transport", "protocol", false},
		{"conn", "protocol", false},
		{"conn", "protocol/jsonrpc", true},
		{"conn", "transport/streamable", false},
		{"supervisor", "transport/sse", false},
		{"transport/stdio", "transport", true},
		{"transport/stdio", "transport/internal/frame", true},
		{"transport/internal/frame", "transport/stdio", false},
		{"transport/stdio", "transport/stdio/internal/child", true},
		{"transport/fault", "transport/inmem", false},
		{"transport/streamable", "protocol", true},
		{"transport/inmem", "conn", false},
		{"conn", "transport", true},
		{"conn", "supervisor", false},
		{"supervisor", "conn", true},
		{"features/client", "supervisor", true},
		{"features/client", "features/internal/session", true},
		{"features/internal/session", "features/client", false},
		{"features/client", "features/server", false},
		{"features/server", "features/client", false},
		{"mcpjson", "transport/stdio", true},
		{"mcpjson", "features/client", false},
		{"features/client", "mcpjson", false},
		{"cmd/bowline", "mcpjson", true},
		{"gateway", "features/server", true},
		{"gateway", "auth", true},
		{"features/server", "auth", false},
		{"transport/streamable", "auth", false},
		{"transport/stdio", "auth/guard", false},
		{"mcpjson", "auth", false},
		{"auth", "transport", true},
		{"cmd/bowline", "auth", true},
		{"features/server", "gateway", false},
		{"cmd/bowline", "gateway", true},
		{"cmd/bowline", "features/client", true},
		{"features/client", "cmd/bowline", false},
		{"cmd/bowline", "cmd/other", false},
		{"cmd/bowline", "cmd/bowline/internal/table", true},
		{"examples/kill", "features/client", true},
		{"examples/kill", "examples/other", false},
		{"proptest", "supervisor", true},
		{"proptest", "telemetry", true},
		{"proptest", "features/client", false},
		{"proptest/peer", "proptest", true},
		{"features/client", "proptest", false},
		{"cmd/bowline", "proptest", false},
		{"internal/bench", "features/client", true},
		{"cmd/bowline", "internal/bench", true},
		{"conn", "internal/bench", false},
		{"examples/kill", "internal/bench", false},
	} {
		if why := forbidden(imported.from, imported.to); (why == "") != imported.allowed {
			t.Errorf("%s imports %s: allowed is %v, but the table says %q", imported.from, imported.to, imported.allowed, why)
		}
	}
}

// TestLoadReportsWhatItCannotRead checks that a tree that cannot be read is an error.
func TestLoadReportsWhatItCannotRead(t *testing.T) {
	for name, files := range map[string]fstest.MapFS{
		"no go.mod":     {"a/a.go": {Data: []byte("package a")}},
		"no module":     {"go.mod": {Data: []byte("go 1.25\n")}},
		"broken source": {"go.mod": {Data: []byte("module m\n")}, "a/a.go": {Data: []byte("package")}},
	} {
		if _, err := Load(files); err == nil {
			t.Errorf("%s: Load reported nothing", name)
		}
	}
}

// TestLoadLeavesOutWhatTheGoCommandIgnores loads a tree whose only violations are in folders
// that are not Go source of the module.
func TestLoadLeavesOutWhatTheGoCommandIgnores(t *testing.T) {
	const bad = "package conn\n\nimport _ \"example.test/m/supervisor\"\n"
	if got := broken(t, map[string]string{"conn/bad.go": bad}); len(got) != 1 {
		t.Fatalf("the file to ignore breaks no rule: %v", got)
	}
	got := broken(t, map[string]string{
		"conn/testdata/bad.go":      bad,
		"node_modules/x/bad.go":     bad,
		"vendor/x/bad.go":           bad,
		".cache/bad.go":             bad,
		"_attic/bad.go":             bad,
		"conn/testdata/deep/bad.go": bad,
		"conn/doc.go":               "package conn",
	})
	if len(got) != 0 {
		t.Errorf("ignored folders were checked: %v", got)
	}
}

// broken lists the violations of a module example.test/m made of files, each
// as "rule place", in order.
func broken(t *testing.T, files map[string]string) []string {
	t.Helper()
	fsys := fstest.MapFS{"go.mod": {Data: []byte("module example.test/m\n")}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fsys[name] = &fstest.MapFile{Data: []byte(files[name])}
	}
	tree, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, violation := range tree.Check() {
		found = append(found, violation.Rule+" "+violation.At)
	}
	return found
}
