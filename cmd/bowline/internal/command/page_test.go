package command

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/internal/testenv"
	"github.com/spf13/cobra"
)

var updatePage = flag.Bool("update", false, "rewrite docs/command.md")

// TestPageOfTheCommand compares docs/command.md with the help of the command. With
// -update it rewrites the page.
func TestPageOfTheCommand(t *testing.T) {
	testenv.Page(t, "../../../../docs/command.md", pageOf(newRoot(Extras{})), *updatePage)
}

func pageOf(root *cobra.Command) string {
	page := new(strings.Builder)
	fmt.Fprintf(page, "# The bowline command\n\n<!-- Generated from the help of the command: make docs rewrites it. -->\n\n")
	fmt.Fprintf(page, "```text\n%s\n```\n\n", root.Long)
	fmt.Fprintf(page, "A gateway answers a call of a tool itself when the tool's server is away, or was lost: that is the result of a tool that failed, so status 1, and its text says whether the call may have been executed.\n\n[Install](../README.md#install) says how to get the command. `bowline completion --help` explains how to\ncomplete commands, flags and names in your shell.\n\n")
	commands := subcommands(root)
	fmt.Fprintf(page, "| Command | What it does |\n| --- | --- |\n")
	for _, c := range commands {
		fmt.Fprintf(page, "| [%s](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), c.Short)
	}
	fmt.Fprintf(page, "\n## Choose the server\n\n```text\n%s\n```\n\nThese flags are the same for every command that talks to a server:\n", connect.ConfigHelp)
	example := new(cobra.Command)
	new(connect.Target).Add(example)
	common := flagsOf(example)
	writeFlags(page, common)
	for _, c := range commands {
		writeCommand(page, c, common)
	}
	return strings.TrimRight(page.String(), "\n") + "\n"
}

// subcommands returns the commands that can be run, in the order of their names.
func subcommands(of *cobra.Command) (all []*cobra.Command) {
	for _, c := range of.Commands() {
		if c.Name() == "completion" || c.Name() == "help" {
			continue
		}
		all = append(append(all, c), subcommands(c)...)
	}
	return all
}

func writeCommand(page *strings.Builder, c *cobra.Command, common [][2]string) {
	long := strings.TrimSpace(strings.TrimSuffix(c.Long, connect.ConfigHelp))
	fmt.Fprintf(page, "\n## %s\n\n```text\n%s\n\nUsage:\n  %s\n", c.CommandPath(), long, c.UseLine())
	if c.Example != "" {
		fmt.Fprintf(page, "\nExamples:\n%s\n", c.Example)
	}
	fmt.Fprintf(page, "```\n")
	own, shared := flagsOf(c), []string(nil)
	own = slices.DeleteFunc(own, func(f [2]string) bool {
		if !slices.Contains(common, f) {
			return false
		}
		shared = append(shared, "`"+strings.Fields(f[0])[0]+"`")
		return true
	})
	writeFlags(page, own)
	switch {
	case len(shared) == 0:
	case len(shared) == len(common):
		fmt.Fprintf(page, "\nIt also has all [flags to choose the server](#choose-the-server).\n")
	default:
		fmt.Fprintf(page, "\nOf the [flags to choose the server](#choose-the-server) it has %s.\n", strings.Join(shared, ", "))
	}
}

func writeFlags(page *strings.Builder, flags [][2]string) {
	if len(flags) == 0 {
		return
	}
	fmt.Fprintf(page, "\n| Flag | What it does |\n| --- | --- |\n")
	for _, f := range flags {
		fmt.Fprintf(page, "| `%s` | %s |\n", f[0], strings.ReplaceAll(f[1], "|", `\|`))
	}
}

var flagLine = regexp.MustCompile(`^\s+((?:-\w, )?--\S+(?: \S+)?)\s{2,}(\S.*)$`)

// flagsOf returns the flags of a command that its help shows, with their descriptions.
func flagsOf(c *cobra.Command) (flags [][2]string) {
	for line := range strings.Lines(c.LocalFlags().FlagUsages()) {
		if found := flagLine.FindStringSubmatch(strings.TrimRight(line, "\n")); found != nil && !strings.Contains(found[1], "--help") {
			flags = append(flags, [2]string{found[1], found[2]})
		}
	}
	return flags
}
