package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/auth/authfile"
	"github.com/bowline-mcp/bowline/auth/keyring"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/ask"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

// A Login is how a target logs in.
type Login struct {
	Interact  bool // whether a person can log in
	NoBrowser bool
	Device    bool
}

// authorizer returns the Authorizer for a server over HTTP. Entry is the auth block
// of an mcp.json; nil: there is none.
func (l *Login) authorizer(cmd *cobra.Command, u *ask.User, server *streamable.Client, entry *mcpjson.Auth) (*auth.Authorizer, error) {
	var store auth.Store
	if files, err := OpenLogins(cmd.ErrOrStderr()); err == nil {
		store = files
	} else if l.Interact {
		return nil, err
	}
	configured := &mcpjson.Server{Transport: server, Settings: mcpjson.Settings{Auth: entry}}
	options := authfile.Options{Defaults: auth.Options{ClientName: "bowline", Store: store, Log: loginLog(cmd.ErrOrStderr())}}
	if l.Interact {
		options.ShowCode = func(_ context.Context, c auth.DeviceCode) error {
			_, err := fmt.Fprintf(cmd.ErrOrStderr(), "Open %s and enter the code %s\n", cmp.Or(c.Whole, c.URL), c.Code)
			return err
		}
		options.Loopback = &auth.LoopbackOptions{Open: func(ctx context.Context, address *url.URL) error {
			cmd.PrintErrln(render.Message("open this page to log in, if your browser does not: " + address.String()))
			if err := auth.Browse(ctx, address); err != nil {
				cmd.PrintErrln(render.Message(render.Flat(err.Error())))
			}
			return nil
		}}
	}
	if l.Interact && l.NoBrowser {
		options.Loopback, options.Defaults.Interact = nil, pasted(cmd, u)
	}
	o, err := options.For(configured)
	if err != nil {
		return nil, err
	}
	if l.Device && o.Grant == nil {
		o.Grant = auth.Device{Show: options.ShowCode}
	}
	return auth.New(o), nil
}

// pastedRedirect is the redirect address if the browser is on another machine.
// No program listens there.
const pastedRedirect = "http://127.0.0.1:8976/callback"

// pasted is a login whose browser is on another machine: the person copies the address
// at which it ends.
func pasted(cmd *cobra.Command, u *ask.User) func(context.Context, auth.Interaction) (*url.URL, error) {
	return func(ctx context.Context, i auth.Interaction) (*url.URL, error) {
		address, err := i.Start(ctx, cmp.Or(i.Redirect, pastedRedirect))
		if err != nil {
			return nil, err
		}
		cmd.PrintErrln(render.Message("open this page to log in: " + address.String()))
		text, err := u.Read(ctx, "  Then copy the address of the page that cannot be reached, and paste it here: ", false)
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

// OpenLogins returns the logins of this user. They are sealed with a key of the key ring, unless the
// environment says otherwise.
func OpenLogins(notices io.Writer) (*auth.Files, error) {
	dir, err := auth.DefaultDir()
	if err != nil {
		return nil, err
	}
	return LoginsIn(dir, notices), nil
}

// LoginsIn returns the logins in a folder, sealed as those of OpenLogins are.
func LoginsIn(dir string, notices io.Writer) *auth.Files {
	if os.Getenv(KeyringVariable) == "off" {
		return auth.NewFiles(dir, loginLog(notices))
	}
	return auth.NewSealedFiles(dir, keyring.Key("bowline"), loginLog(notices))
}

// KeyringVariable is "off" if logins are not to be sealed.
const KeyringVariable = "BOWLINE_KEYRING"

func loginLog(out io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// WithLogin does something with the login to the server that the flags mean.
func (t *Target) WithLogin(cmd *cobra.Command, l Login, do func(context.Context, *auth.Authorizer) error) error {
	t.User, t.login = ask.New(cmd.InOrStdin(), cmd.ErrOrStderr()), l
	server, err := t.Endpoint(cmd)
	if err != nil {
		return process.Usage(errors.New(t.Redact(err.Error())))
	}
	if server.login == nil {
		return process.Usage(errors.New("logins are only for servers over HTTP without an Authorization header"))
	}
	defer server.login.Close()
	if err := do(cmd.Context(), server.login); err != nil {
		return process.Explain(t.Redact(err.Error()), err)
	}
	return nil
}
