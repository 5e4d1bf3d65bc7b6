package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/arguments"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/internal/suggest"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// showHelp is for commands that only have subcommands.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// knownCommand refuses the name of an unknown command, and suggests similar ones.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	problem := fmt.Sprintf("unknown command %q", args[0])
	if close := cmd.SuggestionsFor(args[0]); len(close) > 0 {
		problem += fmt.Sprintf("; did you mean %s?", strings.Join(close, " or "))
	}
	return errors.New(problem)
}

// oneFile is for a command whose only argument is an mcp.json file.
func oneFile(_ *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return errors.New("name one file" + anyFileIn("."))
}

// anyFileIn proposes a file of a folder, or a name.
func anyFileIn(folder string) string {
	if path, ok := mcpjson.Find(folder); ok {
		return ", such as " + path
	}
	return ", such as mcp.json"
}

// noArguments is for commands that take flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	problem := fmt.Sprintf("unexpected argument %q", args[0])
	if cmd.Flags().Lookup("command") != nil {
		problem += arguments.WhereServersAre
	}
	return errors.New(problem)
}

// atLeast requires one argument for each name. Its error names the first that is missing.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return fmt.Errorf("name %s", names[len(args)])
		}
		return nil
	}
}

// atMost is for commands that take no more than n arguments.
func atMost(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return noArguments(cmd, args[min(n, len(args)):]) }
}

// checkArguments makes wrong arguments a usage failure, in every command. A
// command that does nothing by itself shows its help.
func checkArguments(cmd *cobra.Command) {
	if !cmd.Runnable() {
		cmd.RunE = showHelp
		if cmd.Args == nil {
			cmd.Args = knownCommand
		}
	}
	if valid := cmd.Args; valid != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := valid(cmd, args); err != nil {
				return process.Usage(err)
			}
			return nil
		}
	}
	for _, child := range cmd.Commands() {
		checkArguments(child)
	}
}

// explainFlag says what is meant by a flag that cannot be understood.
func explainFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case !cmd.HasParent():
		return fmt.Errorf("%w; flags come after a command, as in bowline tools --command SERVER", err)
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if meant, ok := near(unknown.GetSpecifiedName(), names); ok {
			return fmt.Errorf("%w; did you mean --%s?", err, meant)
		}
	case errors.As(err, &invalid) && invalid.GetFlag().Value.Type() == "duration":
		flag, value := invalid.GetFlag().Name, invalid.GetValue()
		if _, number := strconv.ParseFloat(value, 64); number == nil {
			return fmt.Errorf("--%s %s has no unit: use %ss for seconds, or %sm for minutes", flag, value, value, value)
		}
		return fmt.Errorf("--%s %q is not a duration such as 500ms, 30s or 2m", flag, value)
	}
	return err
}

// near returns the flag that is meant: the one that is most like the name, or begins it, as log does
// log-level.
func near(name string, flags []string) (string, bool) {
	if first, _, longer := strings.Cut(name, "-"); longer && slices.Contains(flags, first) {
		return first, true
	}
	return suggest.Nearest(name, flags)
}
