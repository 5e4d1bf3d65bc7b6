package process

import "runtime/debug"

// Version is the module's version, or the commit it was built from if that is
// all that the build recorded.
func Version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok || build.Main.Version == "" {
		return "(devel)"
	}
	for _, setting := range build.Settings {
		if setting.Key == "vcs.revision" && build.Main.Version == "(devel)" {
			return "(devel) " + setting.Value
		}
	}
	return build.Main.Version
}
