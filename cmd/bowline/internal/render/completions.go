package render

import (
	"strings"

	"github.com/spf13/cobra"
)

// AppendCompletion appends a name of a peer or of a file. It leaves out a name that the scripts
// of cobra would print as a message.
func AppendCompletion(to []cobra.Completion, name, about string) []cobra.Completion {
	name, about = Line(name), Line(about)
	switch {
	case strings.HasPrefix(name, "_activeHelp_"):
		return to
	case about == "":
		return append(to, name)
	default:
		return append(to, cobra.CompletionWithDesc(name, about))
	}
}
