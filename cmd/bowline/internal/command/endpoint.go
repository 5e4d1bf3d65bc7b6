package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/redact"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/spf13/cobra"
)

// A target is the server that a command uses.
type target struct {
	serverFlags

	lasting      bool // the session continues when its server is lost
	timeoutGiven bool // the file of servers has set the timeout
	onEvent      func(context.Context, *client.Session, client.Event)

	user    *user
	secrets redact.Secrets // secrets that no message may show

	login    login
	auth     *mcpjson.Auth // the auth block of the entry; nil if it has none
	shownURL string        // the URL to show for a server over HTTP
}

// An endpoint is a way to reach a server, and what to call the server.
type endpoint struct {
	transport.Transport
	name          string
	remote        bool // the server is reached over HTTP, and not started by this command
	authenticated bool // a header of the user authenticates the requests
	login         *auth.Authorizer
	personal      bool // only a person can log in, with bowline login
}

// endpoint checks the flags, and returns how to reach the server.
func (t *target) endpoint(cmd *cobra.Command) (*endpoint, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	flags := cmd.Flags()
	switch command, remote := flags.Changed("command"), flags.Changed("url"); {
	case command && remote:
		return nil, errors.New("--command and --url cannot be used together: the first starts a server, the second connects to one")
	case (command || remote) && (t.configPath != "" || t.name != ""):
		return nil, errors.New("--mcp-config and --server cannot be used with --command or --url")
	case remote:
		return t.remote(cmd, &streamable.Client{URL: t.url})
	case command:
		words, err := split(t.command)
		if err != nil {
			return nil, err
		}
		return t.process(cmd, &stdio.Command{Path: words[0], Args: words[1:]})
	default:
		return t.configured(cmd)
	}
}

// process completes a server that the command starts.
func (t *target) process(cmd *cobra.Command, server *stdio.Command) (*endpoint, error) {
	if len(t.headers) > 0 || t.authorities != "" || t.insecure {
		return nil, errors.New("--header, --cacert and --insecure are only for a server over HTTP")
	}
	server.Env = append(server.Env, t.env...)
	server.Dir = cmp.Or(t.dir, server.Dir)
	if t.verbose {
		server.Stderr = serverLog(cmd.ErrOrStderr())
	}
	return &endpoint{Transport: server, name: server.Path}, nil
}

// remote completes a server that is reached over HTTP. Headers from flags take
// precedence over those from a file.
func (t *target) remote(cmd *cobra.Command, server *streamable.Client) (*endpoint, error) {
	if len(t.env) > 0 || t.dir != "" {
		return nil, errors.New("--env and --cwd are only for a server that this command starts, not for one over HTTP")
	}
	if server.Header == nil {
		server.Header = make(http.Header)
	}
	for _, given := range t.headers {
		name, value, err := readHeader(given)
		if err != nil {
			return nil, err
		}
		server.Header.Set(name, value)
	}
	if err := t.secure(cmd.Context(), server); err != nil {
		return nil, err
	}
	if err := server.Check(); err != nil {
		var wrong *transport.URLError
		errors.As(err, &wrong)
		return nil, fmt.Errorf("the URL is not like http://127.0.0.1:8080/mcp: %w", wrong.Err)
	}
	t.secrets = append(t.secrets, credentialsOf(server)...)
	t.shownURL = withoutSecrets(server.URL)
	to := &endpoint{Transport: server, name: t.shownURL + shownQuery(server.URL), remote: true, authenticated: server.Header.Get("Authorization") != ""}
	if to.authenticated {
		return to, nil
	}
	authorizer, err := t.login.authorizer(cmd, t.user, server, t.auth)
	if err != nil {
		return nil, err
	}
	server.Authorizer, to.login = authorizer, authorizer
	to.personal = t.auth == nil || t.auth.Grant == "" || t.auth.Grant == "authorization_code"
	return to, nil
}

// remoteSSE completes a server that is reached over HTTP+SSE, as remote does.
func (t *target) remoteSSE(cmd *cobra.Command, server *sse.Client) (*endpoint, error) {
	complete := &streamable.Client{URL: server.URL, Header: server.Header}
	to, err := t.remote(cmd, complete)
	if err != nil {
		return nil, err
	}
	server.HTTP, server.Header, server.Authorizer = complete.HTTP, complete.Header, complete.Authorizer
	to.Transport = server
	return to, nil
}

// credentialsOf returns the credentials that go to a server.
func credentialsOf(server *streamable.Client) redact.Secrets {
	address, err := url.Parse(server.URL)
	if err != nil {
		address = nil
	}
	return redact.Of(server.Header, address)
}

// redact replaces the credentials of the user in a text.
func (t *target) redact(text string) string { return t.secrets.Redact(text) }

// withoutSecrets returns an address without user and query, which may contain
// secrets.
func withoutSecrets(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return "the server"
	}
	return (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
}

// shownQuery shows that a URL has a query, which may contain credentials.
func shownQuery(address string) string {
	if parsed, err := url.Parse(address); err != nil || parsed.RawQuery == "" {
		return ""
	}
	return "?..."
}

// configured returns the entry of the mcp.json that the flags select. Flags
// take precedence over the file.
func (t *target) configured(cmd *cobra.Command) (*endpoint, error) {
	ctx := cmd.Context()
	file, err := t.config(ctx)
	if err != nil {
		return nil, err
	}
	name, err := t.choose(file)
	if err != nil {
		return nil, err
	}
	if t.configPath == "" {
		if err := t.user.agree(ctx, file.Path, file.Text()); err != nil {
			return nil, err
		}
		cmd.PrintErrln(message("using " + file.Path))
	}
	file.Ask = func(in mcpjson.Input) (string, error) {
		answer, err := t.user.input(ctx, in)
		if in.Password {
			t.secrets = append(t.secrets, answer)
		}
		return answer, err
	}
	server, err := file.Server(name)
	if err != nil {
		return nil, err
	}
	for _, notice := range server.Notices {
		cmd.PrintErrln(message(flat(notice)))
	}
	if flags := cmd.Flags(); server.Timeout > 0 && !t.lasting && !flags.Changed("timeout") {
		t.timeout, t.timeoutGiven = server.Timeout, true
	}
	if flags := cmd.Flags(); server.InitTimeout > 0 && !flags.Changed("init-timeout") {
		t.initTimeout = server.InitTimeout
	}
	t.name, t.auth = name, server.Settings.Auth
	if t.auth != nil {
		t.secrets = append(t.secrets, t.auth.ClientSecret)
	}
	switch server := server.Transport.(type) {
	case *streamable.Client:
		return t.remote(cmd, server)
	case *sse.Client:
		return t.remoteSSE(cmd, server)
	default:
		return t.process(cmd, server.(*stdio.Command))
	}
}
