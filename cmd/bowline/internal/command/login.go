package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/connect"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/spf13/cobra"
)

const loginHelp = `Logins are stored in the bowline/auth folder of your configuration, in files that
only you can read. They are encrypted with a key from your key ring, if this
machine has one and BOWLINE_KEYRING is not "off". Every command that calls a
server over HTTP uses them and renews them, unless you give it an Authorization
header.

To configure a login, add this to the server's entry in an mcp.json:

  "bowline": {"auth": {"issuer": "https://as.example.com",
                       "clientId": "...", "clientSecret": "${SECRET}"}}

The keys are grant (authorization_code, client_credentials or device), issuer,
clientId, clientSecret, clientMetadataUrl, scopes, port, offline, dpop and
allowHosts.`

const loginLong = `Log in to a server over HTTP with your browser. The server names the page, which
asks for your consent.

`

const loginExample = `  bowline login --url https://example.com/mcp

  # The browser is on another machine
  bowline login --url https://example.com/mcp --device`

// newLogin logs in. Only this command interacts with a person: the others use what it has stored, and say
// how to log in if there is nothing.
func newLogin() *cobra.Command {
	t := new(connect.Target)
	var l connect.Login
	command := &cobra.Command{
		Use:     "login",
		Short:   "Log in to a server",
		Long:    loginLong + loginHelp + "\n\n" + connect.ConfigHelp,
		Example: loginExample,
		Args:    noArguments,
	}
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		l.Interact = true
		return t.WithLogin(cmd, l, func(ctx context.Context, a *auth.Authorizer) error { return logIn(ctx, a, cmd.OutOrStdout()) })
	}
	t.Add(command)
	flags := command.Flags()
	flags.BoolVar(&l.NoBrowser, "no-browser", false, "print the address to open, and read the address at which the browser arrives")
	flags.BoolVar(&l.Device, "device", false, "print a code to enter in a browser on any machine")
	return command
}

// logIn logs in, and says where.
func logIn(ctx context.Context, a *auth.Authorizer, out io.Writer) error {
	if err := a.Login(ctx); err != nil {
		if errors.As(err, new(*auth.RegistrationError)) {
			err = process.Explain(err.Error()+"\n"+connect.AdviceRegister, err)
		}
		return &process.Failure{Status: process.ExitNoSession, Err: err}
	}
	e, err := a.Status(ctx)
	if err != nil || e == nil {
		return err
	}
	_, err = fmt.Fprintf(out, "logged in at %s\n", render.Flat(e.Issuer))
	return err
}

const logoutLong = `Delete the login to a server. The authorization server revokes its tokens, if it
supports that. If the login cannot be decrypted, because its key is missing, it
is deleted, and the command fails because nothing was revoked.

`

// newLogout fails if tokens could not be revoked: they may still be used by whoever has them.
func newLogout() *cobra.Command {
	t := new(connect.Target)
	command := &cobra.Command{
		Use:     "logout",
		Short:   "Delete a login, and revoke its tokens",
		Long:    logoutLong + connect.ConfigHelp,
		Example: "  bowline logout --url https://example.com/mcp",
		Args:    noArguments,
	}
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.WithLogin(cmd, connect.Login{}, func(ctx context.Context, a *auth.Authorizer) error {
			if err := a.Logout(ctx); err != nil {
				return &process.Failure{Status: process.ExitCallFailed, Err: err} // the tokens are still valid
			}
			return nil
		})
	}
	t.Add(command)
	return command
}

// newAuth has what is about logins and needs no server.
func newAuth() *cobra.Command {
	command := &cobra.Command{
		Use:   "auth",
		Short: "Show logins",
		Long:  "Show logins to servers over HTTP.\n\n" + loginHelp,
	}
	command.AddCommand(newAuthStatus())
	return command
}

const authStatusLong = `Show the login to a server: its issuer, client, scopes and expiry. Without a
server, show all logins. Tokens are not shown. A login that cannot be read is
shown with the reason. The exit status is 3 if no login can be read.

`

const authStatusExample = `  bowline auth status
  bowline auth status --url https://example.com/mcp --json`

// newAuthStatus shows logins, and no tokens. It fails if none of them can be used.
func newAuthStatus() *cobra.Command {
	t := new(connect.Target)
	var asJSON bool
	command := &cobra.Command{
		Use:     "status",
		Short:   "Show a login, or all of them",
		Long:    authStatusLong + connect.ConfigHelp,
		Example: authStatusExample,
		Args:    noArguments,
	}
	command.RunE = func(cmd *cobra.Command, _ []string) error { return showLogins(cmd, t, asJSON) }
	t.Add(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return command
}

// showLogins shows the login to the server that the flags mean, or all of them if they mean none.
func showLogins(cmd *cobra.Command, t *connect.Target, asJSON bool) error {
	find := loginOf
	if t.Command == "" && t.URL == "" && t.ConfigPath == "" && t.Name == "" {
		find = allLogins
	}
	shown, err := find(cmd, t)
	if err != nil {
		return err
	}
	if err := printLogins(render.Writer(cmd.OutOrStdout()), shown, asJSON); err != nil {
		return err
	}
	switch {
	case slices.ContainsFunc(shown, func(s loginStatus) bool { return s.Unreadable == "" }):
		return nil
	case len(shown) > 0:
		err = errors.New("the stored login cannot be read: log in again, or log out")
	default:
		err = errors.New("there is no login")
	}
	return &process.Failure{Status: process.ExitNoSession, Err: err}
}

// A loginStatus is what is shown of a login.
type loginStatus struct {
	Server  string    `json:"server"`
	Issuer  string    `json:"issuer"`
	Client  string    `json:"clientId,omitempty"`
	Scopes  []string  `json:"scopes"`
	Expires time.Time `json:"expires,omitzero"`
	Renewed bool      `json:"renewed"`

	Unreadable string `json:"unreadable,omitempty"` // why the login cannot be read
}

// unreadable is the status of a login that is stored and cannot be read. It is shown all the same, so that
// the user knows what to delete.
func unreadable(server string, err error) loginStatus {
	return loginStatus{Server: server, Scopes: []string{}, Unreadable: err.Error()}
}

// statusOf leaves out the tokens.
func statusOf(server string, e *auth.Entry) loginStatus {
	return loginStatus{Server: server, Issuer: e.Issuer, Client: e.ClientID, Scopes: append([]string{}, e.Scopes...), Expires: e.Expires, Renewed: !e.Refresh.IsZero()}
}

// loginOf returns the login to the server that the flags mean, if there is one.
func loginOf(cmd *cobra.Command, t *connect.Target) ([]loginStatus, error) {
	shown := []loginStatus{}
	err := t.WithLogin(cmd, connect.Login{}, func(ctx context.Context, a *auth.Authorizer) error {
		e, err := a.Status(ctx)
		if e != nil {
			shown = append(shown, statusOf(t.ShownURL, e))
		} else if errors.As(err, new(*auth.StoreError)) {
			shown = append(shown, unreadable(t.ShownURL, err))
			return nil
		}
		return err
	})
	return shown, err
}

// allLogins returns the logins of all servers.
func allLogins(cmd *cobra.Command, _ *connect.Target) ([]loginStatus, error) {
	store, err := connect.OpenLogins(cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	keys, err := store.Keys()
	if err != nil {
		return nil, &process.Failure{Status: process.ExitNoSession, Err: err}
	}
	shown := []loginStatus{}
	for _, k := range keys {
		if k.Resource == "" {
			continue // the entry is a registration
		}
		if e, err := store.Load(cmd.Context(), k); err != nil {
			shown = append(shown, unreadable(k.Resource, err))
		} else if e != nil {
			shown = append(shown, statusOf(k.Resource, e))
		}
	}
	slices.SortFunc(shown, func(a, b loginStatus) int { return cmp.Compare(a.Server, b.Server) })
	return shown, nil
}

// printLogins prints each login as lines of its own. Issuers and scopes are words of servers.
func printLogins(out io.Writer, shown []loginStatus, asJSON bool) error {
	if asJSON {
		text, err := json.MarshalIndent(shown, "", "  ")
		if err == nil {
			_, err = fmt.Fprintf(out, "%s\n", text)
		}
		return err
	}
	for i, s := range shown {
		if i > 0 {
			fmt.Fprintln(out)
		}
		s.print(out)
	}
	return nil
}

// print prints what is known of a login, a line each.
func (s loginStatus) print(out io.Writer) {
	if s.Unreadable != "" {
		fmt.Fprintf(out, "server  %s\nunreadable: %s\n", render.Flat(s.Server), render.Flat(s.Unreadable))
		return
	}
	until := "unknown"
	if !s.Expires.IsZero() {
		until = s.Expires.Local().Format(time.RFC3339)
	}
	if s.Renewed {
		until += ", then renewed"
	}
	for _, line := range [][2]string{{"server", s.Server}, {"issuer", s.Issuer}, {"client", s.Client}, {"scopes", strings.Join(s.Scopes, " ")}, {"until", until}} {
		if line[1] != "" {
			fmt.Fprintf(out, "%-7s %s\n", line[0], render.Flat(line[1]))
		}
	}
}
