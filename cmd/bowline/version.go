package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long:  "Print the version of this command, as its build recorded it.",
		Example: `  bowline version
  bowline --version`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "bowline version "+version())
			return err
		},
	}
}

// version is the module's version, and the commit it was built from if the
// build has recorded one.
func version() string {
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
