package command

import (
	"context"
	"iter"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/spf13/cobra"
)

// listing is the preparation of a command without arguments.
func listing(do connect.Action) func(*cobra.Command, []string) (connect.Action, error) {
	return func(*cobra.Command, []string) (connect.Action, error) { return do, nil }
}

// all returns a whole list. The client bounds it in pages, entries and bytes.
func all[T any](list iter.Seq2[*T, error]) ([]*T, error) {
	var found []*T
	for one, err := range list {
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, nil
}

// count counts a list without keeping it.
func count[T any](list iter.Seq2[*T, error]) (n int, err error) {
	for _, err := range list {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// first completes the first argument of a command, and nothing else.
func first(names func(context.Context, *client.Session) ([]cobra.Completion, error)) connect.Lookup {
	return func(ctx context.Context, s *client.Session, args []string, _ string) ([]cobra.Completion, error) {
		if len(args) > 0 {
			return nil, nil
		}
		return names(ctx, s)
	}
}

// names returns a list as completions for a shell.
func names[T any](list iter.Seq2[*T, error], describe func(*T) (name, about string)) ([]cobra.Completion, error) {
	found, err := all(list)
	var completions []cobra.Completion
	for _, one := range found {
		name, about := describe(one)
		completions = render.AppendCompletion(completions, name, about)
	}
	return completions, err
}
