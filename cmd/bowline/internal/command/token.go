package command

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/bowline-mcp/bowline/auth/tokens"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/doors"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/spf13/cobra"
)

const tokenLong = `Give tokens to the users of "bowline up --auth tokens", list and revoke them. A gateway
that runs takes each change within a second.

A token is 256 random bits, which are shown once: the file has only a hash of them.`

// newToken has the commands for the tokens of users.
func newToken() *cobra.Command {
	command := &cobra.Command{Use: "token", Short: "Give tokens to the users of a gateway", Long: tokenLong, Example: "  bowline token add ada --expires 720h", Args: noArguments}
	command.AddCommand(newTokenAdd(), newTokenList(), newTokenRevoke())
	return command
}

// newTokenAdd prints the token alone, so that a script can keep it.
func newTokenAdd() *cobra.Command {
	var expires time.Duration
	command := &cobra.Command{
		Use:     "add NAME",
		Short:   "Make a token for a user, and print it",
		Long:    "Make a token for a user, and print it. It cannot be shown again.\n\nA client sends it as \"Authorization: Bearer TOKEN\".",
		Example: "  bowline token add ada --expires 720h",
		Args:    oneUser,
	}
	file := tokenFile(command)
	command.Flags().DurationVar(&expires, "expires", 0, "let it expire after a `DURATION`, such as 720h; 0: never")
	command.RunE = func(cmd *cobra.Command, args []string) error {
		if expires < 0 {
			return process.Usage(fmt.Errorf("--expires %v has passed already", expires))
		}
		path, err := file()
		if err != nil {
			return err
		}
		var at time.Time
		if expires > 0 {
			at = time.Now().Add(expires).Truncate(time.Second)
		}
		token, err := tokens.Add(path, args[0], at)
		if err != nil {
			return refusedByTokens(err)
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), token)
		return err
	}
	return command
}

// newTokenList shows no hashes: they are of no use to a person.
func newTokenList() *cobra.Command {
	command := &cobra.Command{
		Use:     "list",
		Short:   "List the users who have a token",
		Long:    "List the users who have a token, with the day on which it was made, and when it expires.",
		Example: "  bowline token list",
		Args:    noArguments,
	}
	file := tokenFile(command)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		path, err := file()
		if err != nil {
			return err
		}
		all, err := tokens.List(path)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "NAME\tMADE\tEXPIRES")
		for _, t := range all {
			fmt.Fprintf(table, "%s\t%s\t%s\n", t.Name, t.Made.Format(time.DateOnly), expiryOf(t, time.Now()))
		}
		return table.Flush()
	}
	return command
}

// expiryOf says what a person wants to know: whether the token still holds.
func expiryOf(t tokens.Token, now time.Time) string {
	switch {
	case t.Expires.IsZero():
		return "never"
	case !now.Before(t.Expires):
		return "expired"
	default:
		return t.Expires.Format(time.RFC3339)
	}
}

// newTokenRevoke takes a name and not the token, which nobody but the user has.
func newTokenRevoke() *cobra.Command {
	command := &cobra.Command{
		Use:     "revoke NAME",
		Short:   "Revoke the token of a user",
		Long:    "Revoke the token of a user. A gateway that runs refuses it within a second, and ends\nthe user's streams within five minutes.",
		Example: "  bowline token revoke ada",
		Args:    oneUser,
	}
	file := tokenFile(command)
	command.RunE = func(_ *cobra.Command, args []string) error {
		path, err := file()
		if err != nil {
			return err
		}
		return refusedByTokens(tokens.Revoke(path, args[0]))
	}
	return command
}

// tokenFile adds the flag for the file, and returns what finds its path.
func tokenFile(command *cobra.Command) func() (string, error) {
	path := command.Flags().String("file", "", "the `FILE` of the tokens; default: bowline/tokens.json beside your settings")
	return func() (string, error) {
		if *path != "" {
			return *path, nil
		}
		return doors.TokensOfUsers()
	}
}

// oneUser wants the name of a user. Whether it is a possible one is said by package tokens.
func oneUser(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return process.Usage(errors.New("name one user"))
	}
	return nil
}

// refusedByTokens says which failures are mistakes of whoever has written the command.
func refusedByTokens(err error) error {
	if errors.Is(err, tokens.ErrName) || errors.Is(err, tokens.ErrExists) || errors.Is(err, tokens.ErrUnknown) {
		return process.Refuse("%w", err)
	}
	return err
}
