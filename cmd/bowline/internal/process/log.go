package process

import (
	"log/slog"

	"github.com/spf13/cobra"
)

// LogAt returns the log of a command: it writes what has the level, and above, to standard error.
func LogAt(cmd *cobra.Command, level slog.Level) slog.Handler {
	return slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})
}
