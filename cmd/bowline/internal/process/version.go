package process

import (
	"runtime/debug"
	"strings"
)

// Version is the module's version, or the commit it was built from if that is
// all that the build recorded.
func Version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok || build.Main.Version == "" {
		return "(devel)"
	}
	if commit, _ := commitOf(build); commit != "" && build.Main.Version == "(devel)" {
		return "(devel) " + commit
	}
	return build.Main.Version
}

// Build is the version, the commit if the build recorded it, and the version of Go.
//
// A command that was installed from a module proxy has no commit: its version
// names one. In a report of a fault these three say which program it was.
func Build() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return Version()
	}
	return describe(build)
}

// describe is Build of any build, so that a test can have one of each kind.
func describe(build *debug.BuildInfo) string {
	version, about := build.Main.Version, []string{}
	if version == "" {
		version = "(devel)"
	}
	if strings.HasSuffix(build.Path, "/full/bowline") { // both are called bowline
		about = append(about, "with everything")
	}
	if commit, changed := commitOf(build); commit != "" {
		if changed {
			commit += " with changes"
		}
		about = append(about, "commit "+commit)
	}
	return version + " (" + strings.Join(append(about, build.GoVersion), ", ") + ")"
}

// commitOf returns the commit that was checked out, and whether files had been changed since. Go records
// neither if it is told not to (-buildvcs=false), as in CI.
func commitOf(build *debug.BuildInfo) (commit string, changed bool) {
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			commit = setting.Value
		case "vcs.modified":
			changed = setting.Value == "true"
		}
	}
	return commit, changed
}
