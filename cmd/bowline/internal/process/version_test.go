package process

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBuildNamesCommitAndGo describes builds of a tag, of changed files, and from a module proxy.
func TestBuildNamesCommitAndGo(t *testing.T) {
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "0123abcd"}
	for _, c := range []struct {
		path     string
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"", "v0.1.0", []debug.BuildSetting{commit, {Key: "vcs.modified", Value: "false"}}, "v0.1.0 (commit 0123abcd, go1.26.8)"},
		{"", "(devel)", []debug.BuildSetting{commit, {Key: "vcs.modified", Value: "true"}}, "(devel) (commit 0123abcd with changes, go1.26.8)"},
		{"", "v0.1.0", nil, "v0.1.0 (go1.26.8)"},
		{"", "", nil, "(devel) (go1.26.8)"},
		{"github.com/bowline-mcp/bowline/cmd/bowline/full/bowline", "v0.1.0", nil, "v0.1.0 (with everything, go1.26.8)"},
	} {
		build := &debug.BuildInfo{GoVersion: "go1.26.8", Path: c.path, Main: debug.Module{Version: c.version}, Settings: c.settings}
		if got := describe(build); got != c.want {
			t.Errorf("a build of %q with %v is %q, want %q", c.version, c.settings, got, c.want)
		}
	}
}
