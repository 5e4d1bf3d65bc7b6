package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authfile"
	"github.com/bowline-mcp/bowline/auth/keyring"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/streamable"
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

// pastedRedirect is the redirect address if the browser is on another machine.
// No program listens there.
const pastedRedirect = "http://127.0.0.1:8976/callback"

// A login is how a target logs in.
type login struct {
	interact  bool // whether a person can log in
	noBrowser bool
	device    bool
}

func newLogin() *cobra.Command {
	t := new(target)
	var l login
	command := &cobra.Command{
		Use:   "login",
		Short: "Log in to a server",
		Long: `Log in to a server over HTTP with your browser. The server names the page, which
asks for your consent.

` + loginHelp + "\n\n" + configHelp,
		Example: `  bowline login --url https://example.com/mcp

  # The browser is on another machine
  bowline login --url https://example.com/mcp --device`,
		Args: noArguments,
	}
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		l.interact = true
		return t.withLogin(cmd, l, func(ctx context.Context, a *auth.Authorizer) error {
			if err := a.Login(ctx); err != nil {
				if errors.As(err, new(*auth.RegistrationError)) {
					err = &explainedError{err.Error() + "\n" + adviceRegister, err}
				}
				return &failure{status: exitNoSession, err: err}
			}
			e, err := a.Status(ctx)
			if err != nil || e == nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "logged in at %s\n", flat(e.Issuer))
			return err
		})
	}
	t.addFlags(command)
	flags := command.Flags()
	flags.BoolVar(&l.noBrowser, "no-browser", false, "print the address to open, and read the address at which the browser arrives")
	flags.BoolVar(&l.device, "device", false, "print a code to enter in a browser on any machine")
	return command
}

func newLogout() *cobra.Command {
	t := new(target)
	command := &cobra.Command{
		Use:   "logout",
		Short: "Delete a login, and revoke its tokens",
		Long: `Delete the login to a server. The authorization server revokes its tokens, if it
supports that. If the login cannot be decrypted, because its key is missing, it
is deleted, and the command fails because nothing was revoked.

` + configHelp,
		Example: "  bowline logout --url https://example.com/mcp",
		Args:    noArguments,
	}
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		return t.withLogin(cmd, login{}, func(ctx context.Context, a *auth.Authorizer) error {
			if err := a.Logout(ctx); err != nil {
				return &failure{status: exitCallFailed, err: err} // the tokens are still valid
			}
			return nil
		})
	}
	t.addFlags(command)
	return command
}

func newAuth() *cobra.Command {
	command := &cobra.Command{
		Use:   "auth",
		Short: "Show logins",
		Long:  "Show logins to servers over HTTP.\n\n" + loginHelp,
	}
	command.AddCommand(newAuthStatus())
	return command
}

func newAuthStatus() *cobra.Command {
	t := new(target)
	var asJSON bool
	command := &cobra.Command{
		Use:   "status",
		Short: "Show a login, or all of them",
		Long: `Show the login to a server: its issuer, client, scopes and expiry. Without a
server, show all logins. Tokens are not shown. A login that cannot be read is
shown with the reason. The exit status is 3 if no login can be read.

` + configHelp,
		Example: `  bowline auth status
  bowline auth status --url https://example.com/mcp --json`,
		Args: noArguments,
	}
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		shown := []loginStatus{}
		if t.command == "" && t.url == "" && t.configPath == "" && t.name == "" {
			all, err := allLogins(cmd)
			if err != nil {
				return err
			}
			shown = all
		} else if err := t.withLogin(cmd, login{}, func(ctx context.Context, a *auth.Authorizer) error {
			e, err := a.Status(ctx)
			if e != nil {
				shown = append(shown, statusOf(t.shownURL, e))
			} else if errors.As(err, new(*auth.StoreError)) {
				shown = append(shown, unreadable(t.shownURL, err))
				return nil
			}
			return err
		}); err != nil {
			return err
		}
		if err := printLogins(terminalWriter(cmd.OutOrStdout()), shown, asJSON); err != nil {
			return err
		}
		if !slices.ContainsFunc(shown, func(s loginStatus) bool { return s.Unreadable == "" }) {
			err := errors.New("there is no login")
			if len(shown) > 0 {
				err = errors.New("the stored login cannot be read: log in again, or log out")
			}
			return &failure{status: exitNoSession, err: err}
		}
		return nil
	}
	t.addFlags(command)
	command.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return command
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

func unreadable(server string, err error) loginStatus {
	return loginStatus{Server: server, Scopes: []string{}, Unreadable: err.Error()}
}

func statusOf(server string, e *auth.Entry) loginStatus {
	return loginStatus{Server: server, Issuer: e.Issuer, Client: e.ClientID, Scopes: append([]string{}, e.Scopes...), Expires: e.Expires, Renewed: !e.Refresh.IsZero()}
}

// allLogins returns the logins of all servers.
func allLogins(cmd *cobra.Command) ([]loginStatus, error) {
	store, err := openLogins(cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	keys, err := store.Keys()
	if err != nil {
		return nil, &failure{status: exitNoSession, err: err}
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
		if s.Unreadable != "" {
			fmt.Fprintf(out, "server  %s\nunreadable: %s\n", flat(s.Server), flat(s.Unreadable))
			continue
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
				fmt.Fprintf(out, "%-7s %s\n", line[0], flat(line[1]))
			}
		}
	}
	return nil
}

// withLogin does something with the login to the server that the flags mean.
func (t *target) withLogin(cmd *cobra.Command, l login, do func(context.Context, *auth.Authorizer) error) error {
	t.user, t.login = newUser(cmd.InOrStdin(), cmd.ErrOrStderr()), l
	server, err := t.endpoint(cmd)
	if err != nil {
		return usageFailure(errors.New(t.redact(err.Error())))
	}
	if server.login == nil {
		return usageFailure(errors.New("logins are only for servers over HTTP without an Authorization header"))
	}
	defer server.login.Close()
	if err := do(cmd.Context(), server.login); err != nil {
		return &explainedError{t.redact(err.Error()), err}
	}
	return nil
}

func openLogins(notices io.Writer) (*auth.Files, error) {
	dir, err := auth.DefaultDir()
	if err != nil {
		return nil, err
	}
	if os.Getenv(keyringVariable) == "off" {
		return auth.NewFiles(dir, loginLog(notices)), nil
	}
	return auth.NewSealedFiles(dir, keyring.Key("bowline"), loginLog(notices)), nil
}

// keyringVariable is "off" if logins are not to be sealed.
const keyringVariable = "BOWLINE_KEYRING"

func loginLog(out io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// authorizer returns the Authorizer for a server over HTTP. Entry is the auth block
// of an mcp.json; nil: there is none.
func (l *login) authorizer(cmd *cobra.Command, u *user, server *streamable.Client, entry *mcpjson.Auth) (*auth.Authorizer, error) {
	var store auth.Store
	if files, err := openLogins(cmd.ErrOrStderr()); err == nil {
		store = files
	} else if l.interact {
		return nil, err
	}
	configured := &mcpjson.Server{Transport: server, Settings: mcpjson.Settings{Auth: entry}}
	options := authfile.Options{Defaults: auth.Options{ClientName: "bowline", Store: store, Log: loginLog(cmd.ErrOrStderr())}}
	if l.interact {
		options.ShowCode = func(_ context.Context, c auth.DeviceCode) error {
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "Open %s and enter the code %s\n", cmp.Or(c.Whole, c.URL), c.Code)
			return err
		}
		options.Loopback = &auth.LoopbackOptions{Open: func(ctx context.Context, address *url.URL) error {
			cmd.PrintErrln(message("open this page to log in, if your browser does not: " + address.String()))
			if err := auth.Browse(ctx, address); err != nil {
				cmd.PrintErrln(message(flat(err.Error())))
			}
			return nil
		}}
	}
	if l.interact && l.noBrowser {
		options.Loopback, options.Defaults.Interact = nil, pasted(cmd, u)
	}
	o, err := options.For(configured)
	if err != nil {
		return nil, err
	}
	if l.device && o.Grant == nil {
		o.Grant = auth.Device{Show: options.ShowCode}
	}
	return auth.New(o), nil
}

// pasted is a login whose browser is on another machine: the person copies the address
// at which it ends.
func pasted(cmd *cobra.Command, u *user) func(context.Context, auth.Interaction) (*url.URL, error) {
	return func(ctx context.Context, i auth.Interaction) (*url.URL, error) {
		address, err := i.Start(ctx, cmp.Or(i.Redirect, pastedRedirect))
		if err != nil {
			return nil, err
		}
		cmd.PrintErrln(message("open this page to log in: " + address.String()))
		text, err := u.read(ctx, "  Then copy the address of the page that cannot be reached, and paste it here: ", false)
		if err != nil {
			return nil, err
		}
		redirected, err := url.Parse(text)
		if err != nil {
			return nil, errors.New("that is not an address")
		}
		return redirected, nil
	}
}

// isLoginMissing reports whether an error says that a login is missing.
func isLoginMissing(err error) bool {
	return errors.As(err, new(*auth.LoginError)) || errors.Is(err, transport.ErrAuthRequired)
}
