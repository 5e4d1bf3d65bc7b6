package command

import (
	"slices"
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/spf13/cobra"
)

// TestNamesOfAPeerCannotBeHelp checks that no name of a peer is a message of the completion
// script, and that the other names stay.
func TestNamesOfAPeerCannotBeHelp(t *testing.T) {
	tools := func(yield func(*protocol.Tool, error) bool) {
		for _, name := range []string{"echo", "_activeHelp_ \x1b[2J", "\t_activeHelp_", "a\x1bdd"} {
			if !yield(&protocol.Tool{Name: name}, nil) {
				return
			}
		}
	}
	got, err := names(tools, func(tool *protocol.Tool) (string, string) { return tool.Name, "a\u202etool" })
	if want := []cobra.Completion{"echo\ta\uFFFDtool", "a\uFFFDdd\ta\uFFFDtool"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("the completions are %q, %v, want %q", got, err, want)
	}
}
