package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/auth"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/internal/redact"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/sse"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/mattn/go-shellwords"
	"github.com/spf13/cobra"
)

// configHelp explains which server a command talks to.
const configHelp = `To choose the server, use --command to start one, --url to connect to one over
HTTP, or --mcp-config to name an mcp.json file of a desktop program. If the file
has several servers, choose one with --server. Without these flags, the command
uses .mcp.json, mcp.json, .cursor/mcp.json or .vscode/mcp.json of the working
directory, after you have agreed on the terminal.

If the server asks a question, the command asks you on the terminal. Without a
terminal it declines.`

// A target is the server to talk to, as flags describe it.
type target struct {
	command     string
	url         string
	headers     []string
	authorities string // a file of certificates
	insecure    bool
	configPath  string // of an mcp.json
	name        string // of the entry in it
	env         []string
	dir         string
	revision    string
	timeout     time.Duration // 0: none
	initTimeout time.Duration
	verbose     bool
	recordPath  string // of a transcript
	logLevel    string // "": the server is not asked to log

	lasting bool // the session outlives its server
	onEvent func(context.Context, *client.Session, client.Event)

	user    *user
	secrets redact.Secrets // that no message may show

	login    *login        // nil: nobody logs in now
	auth     *mcpjson.Auth // of the entry; nil: it has none
	shownURL string        // of a server over HTTP
}

// An endpoint is a way to reach a server, and what to call the server.
type endpoint struct {
	transport.Transport
	name          string
	remote        bool // reached over HTTP, and not started by us
	authenticated bool // by a header of ours
	login         *auth.Authorizer
}

func (t *target) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&t.command, "command", "", "`command` that starts the server; it is split into words like in a shell, but nothing is expanded")
	flags.StringVar(&t.url, "url", "", "`URL` of a server over HTTP")
	flags.StringArrayVar(&t.headers, "header", nil, "send `NAME:VALUE` with every HTTP request, for instance 'Authorization: Bearer ...' (repeatable)")
	flags.StringVar(&t.authorities, "cacert", "", "PEM `file` with certificate authorities to trust for the HTTP server, in addition to the system's")
	flags.BoolVar(&t.insecure, "insecure", false, "accept any certificate of the HTTP server; somebody on the network can then read and change everything")
	flags.StringVar(&t.configPath, "mcp-config", "", "mcp.json `file` that contains the server")
	flags.StringVar(&t.name, "server", "", "`name` of the server in the mcp.json")
	flags.StringArrayVar(&t.env, "env", nil, "add `NAME=VALUE` to the server's environment (repeatable)")
	flags.StringVar(&t.dir, "cwd", "", "`directory` to start the server in")
	flags.StringVar(&t.revision, "revision", "", "protocol `revision` to use, for instance 2025-11-25; default: the newest that the server supports")
	flags.DurationVar(&t.timeout, "timeout", time.Minute, "how long to wait for answers once the session is ready; 0 means forever")
	flags.DurationVar(&t.initTimeout, "init-timeout", time.Minute, "how long to wait for the session to be ready")
	flags.StringVar(&t.recordPath, "record", "", "write a transcript of all messages to this `file`, or to standard error for -")
	flags.StringVar(&t.logLevel, "log", t.logLevel, "show the server's log messages of this `level` and above on standard error: debug, info, notice, warning, error, critical, alert or emergency")
	flags.BoolVar(&t.verbose, "verbose", false, "show what the server writes to standard error, each line marked by |")
	completions := map[string]cobra.CompletionFunc{
		"server":   t.completeServer,
		"log":      cobra.FixedCompletions(logLevels[:], cobra.ShellCompDirectiveNoFileComp),
		"revision": cobra.FixedCompletions(protocol.Versions(), cobra.ShellCompDirectiveNoFileComp),
	}
	for flag, complete := range completions {
		if err := command.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // the flags stand above
		}
	}
}

func (t *target) check() error {
	for _, variable := range t.env {
		if strings.Index(variable, "=") < 1 {
			return fmt.Errorf("--env %q is not NAME=VALUE", variable)
		}
	}
	if info, err := os.Stat(cmp.Or(t.dir, ".")); err != nil || !info.IsDir() {
		return fmt.Errorf("--cwd %q is not a directory", t.dir)
	}
	if t.timeout < 0 || t.initTimeout <= 0 {
		return errors.New("--timeout must not be negative, and --init-timeout must be above zero")
	}
	if t.revision != "" && !slices.Contains(protocol.Versions(), t.revision) {
		return fmt.Errorf("--revision %q is none of %s", t.revision, strings.Join(protocol.Versions(), ", "))
	}
	if t.logLevel != "" && protocol.LogLevel(t.logLevel).Severity() < 0 {
		return fmt.Errorf("--log %q is none of %s", t.logLevel, strings.Join(logLevels[:], ", "))
	}
	return nil
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

// process completes a server that we start.
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

// remote completes a server that is reached over HTTP. Headers of flags prevail
// over those of a file.
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
	t.hide(server)
	to := &endpoint{Transport: server, name: withoutSecrets(server.URL), remote: true, authenticated: server.Header.Get("Authorization") != ""}
	login, err := t.authorize(cmd, server)
	if err != nil {
		return nil, err
	}
	if login != nil { // and not a nil Authorizer in an interface
		server.Authorizer, to.login = login, login
	}
	return to, nil
}

// older completes a server that is reached over HTTP+SSE, as remote does.
func (t *target) older(cmd *cobra.Command, server *sse.Client) (*endpoint, error) {
	complete := &streamable.Client{URL: server.URL, Header: server.Header}
	to, err := t.remote(cmd, complete)
	if err != nil {
		return nil, err
	}
	server.HTTP, server.Header, server.Authorizer = complete.HTTP, complete.Header, complete.Authorizer
	to.Transport = server
	return to, nil
}

// secure makes the server's certificate be checked as --cacert and --insecure
// say.
func (t *target) secure(ctx context.Context, server *streamable.Client) error {
	if t.authorities == "" && !t.insecure {
		return nil
	}
	trusted, err := x509.SystemCertPool()
	if err != nil {
		trusted = x509.NewCertPool() // a system without authorities
	}
	if t.authorities != "" {
		raw, err := await(ctx, func() ([]byte, error) { return os.ReadFile(t.authorities) })
		if err != nil {
			return fmt.Errorf("--cacert: %w", err)
		}
		if !trusted.AppendCertsFromPEM(raw) {
			return fmt.Errorf("--cacert %s contains no certificate in PEM format", t.authorities)
		}
	}
	carrier := http.DefaultTransport.(*http.Transport).Clone()
	carrier.TLSClientConfig = &tls.Config{RootCAs: trusted, InsecureSkipVerify: t.insecure}
	server.HTTP = &http.Client{Transport: carrier}
	return nil
}

// hide remembers the credentials that go to a server, so that no message repeats
// them.
func (t *target) hide(server *streamable.Client) {
	address, err := url.Parse(server.URL)
	if err != nil {
		address = nil
	}
	t.secrets = append(t.secrets, redact.Of(server.Header, address)...)
}

// redact replaces credentials of ours in a text.
func (t *target) redact(text string) string { return t.secrets.Redact(text) }

// withoutSecrets is what of an address can be shown: user and query may be
// secrets.
func withoutSecrets(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return "the server"
	}
	return (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
}

// readHeader reads a header as curl does. Its errors do not show the value, which
// may be a secret.
func readHeader(given string) (name, value string, err error) {
	name, value, found := strings.Cut(given, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	switch {
	case !found || !header.IsName(name):
		return "", "", errors.New("--header is not 'Name: value'")
	case !header.IsValue(value):
		return "", "", fmt.Errorf("--header %s: the value contains a line break or control character", name)
	}
	return name, value, nil
}

// split splits a command into words as a shell does, without running anything.
func split(command string) ([]string, error) {
	parser := shellwords.NewParser()
	parser.ParseEnv, parser.ParseBacktick, parser.ParseComment = false, false, false
	words, err := parser.Parse(command)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--command %q: a quote, backslash or bracket is not closed", command)
	case parser.Position >= 0:
		return nil, fmt.Errorf("--command %q: ; & | < > have no meaning, because no shell runs the command: quote them, or start a shell: --command \"sh -c '...'\"", command)
	case len(words) == 0:
		return nil, fmt.Errorf("--command %q contains no command", command)
	}
	return words, nil
}

// configured returns the entry of the mcp.json that the flags mean. Flags
// prevail over the file.
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
		t.timeout = server.Timeout
	}
	if flags := cmd.Flags(); server.InitTimeout > 0 && !flags.Changed("init-timeout") {
		t.initTimeout = server.InitTimeout
	}
	t.name, t.auth = name, server.Settings.Auth
	switch server := server.Transport.(type) {
	case *streamable.Client:
		return t.remote(cmd, server)
	case *sse.Client:
		return t.older(cmd, server)
	default:
		return t.process(cmd, server.(*stdio.Command))
	}
}

// config reads the file that the flags mean.
func (t *target) config(ctx context.Context) (*mcpjson.File, error) {
	path := t.configPath
	if path == "" {
		found, ok := mcpjson.Find(".")
		if !ok {
			return nil, errors.New("no server given: start one with --command, for example --command 'bowline serve --stdio', connect to one with --url, or name an mcp.json with --mcp-config")
		}
		path = found
	}
	return await(ctx, func() (*mcpjson.File, error) { return mcpjson.Load(path) })
}

// choose returns the name of the entry that --server means, or of the only one.
func (t *target) choose(file *mcpjson.File) (string, error) {
	if t.name != "" {
		return t.name, nil
	}
	switch names := file.Names(); len(names) {
	case 0:
		return "", fmt.Errorf("%s has no enabled server", file.Path)
	case 1:
		return names[0], nil
	default:
		return "", fmt.Errorf("%s has several servers: choose one with --server: %s", file.Path, flat(strings.Join(names, ", ")))
	}
}

// completeServer completes --server from the file that the flags mean.
func (t *target) completeServer(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	file, err := t.config(cmd.Context())
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveError
	}
	return file.Names(), cobra.ShellCompDirectiveNoFileComp
}
