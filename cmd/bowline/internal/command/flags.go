package command

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/internal/header"
	"github.com/bowline-mcp/bowline/internal/suggest"
	"github.com/bowline-mcp/bowline/mcpjson"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/mattn/go-shellwords"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// configHelp explains which server a command talks to.
const configHelp = `To choose the server, use --command to start one, --url to connect to one over
HTTP, or --mcp-config to name an mcp.json file of a desktop program. If the file
has several servers, choose one with --server. Without these flags, the command
uses .mcp.json, mcp.json, .cursor/mcp.json or .vscode/mcp.json of the working
directory, after you have agreed on the terminal.

If the server asks a question, the command asks you on the terminal. Without a
terminal it declines.`

// serverFlags say which server a command uses, and how.
type serverFlags struct {
	command     string
	url         string
	headers     []string
	authorities string // the path of a file with certificates
	insecure    bool
	configPath  string // the path of an mcp.json
	name        string // the name of the entry in that file
	env         []string
	dir         string
	revision    string
	timeout     time.Duration // 0: no timeout
	initTimeout time.Duration
	verbose     bool
	recordPath  string // the path of a transcript
	logLevel    string // "" means that the server is not asked to log
}

func (f *serverFlags) addFlags(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.command, "command", "", "`command` that starts the server; it is split into words like in a shell, but nothing is expanded")
	flags.StringVar(&f.url, "url", "", "`URL` of a server over HTTP")
	flags.StringArrayVar(&f.headers, "header", nil, "send `NAME:VALUE` with every HTTP request, for instance 'Authorization: Bearer ...' (repeatable)")
	flags.StringVar(&f.authorities, "cacert", "", "PEM `file` with certificate authorities to trust for the HTTP server, in addition to the system's")
	flags.BoolVar(&f.insecure, "insecure", false, "accept any certificate of the HTTP server; somebody on the network can then read and change everything")
	flags.StringVar(&f.configPath, "mcp-config", "", "mcp.json `file` that contains the server")
	flags.StringVar(&f.name, "server", "", "`name` of the server in the mcp.json")
	flags.StringArrayVar(&f.env, "env", nil, "add `NAME=VALUE` to the server's environment (repeatable)")
	flags.StringVar(&f.dir, "cwd", "", "`directory` to start the server in")
	flags.StringVar(&f.revision, "revision", "", "protocol `revision` to use, for instance 2025-11-25; default: the newest that the server supports")
	flags.DurationVar(&f.timeout, "timeout", time.Minute, "how long to wait for answers once the session is ready; 0 means forever")
	flags.DurationVar(&f.initTimeout, "init-timeout", time.Minute, "how long to wait for the session to be ready")
	flags.StringVar(&f.recordPath, "record", "", "write a transcript of all messages to this `file`, or to standard error for -")
	flags.StringVar(&f.logLevel, "log", f.logLevel, "show the server's log messages of this `level` and above on standard error: debug, info, notice, warning, error, critical, alert or emergency")
	flags.BoolVar(&f.verbose, "verbose", false, "show what the server writes to standard error, each line marked by |")
	completions := map[string]cobra.CompletionFunc{
		"server":   f.completeServer,
		"log":      cobra.FixedCompletions(logLevels[:], cobra.ShellCompDirectiveNoFileComp),
		"revision": cobra.FixedCompletions(protocol.Versions(), cobra.ShellCompDirectiveNoFileComp),
	}
	for flag, complete := range completions {
		if err := command.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // the flags are defined above
		}
	}
}

func (f *serverFlags) check() error {
	for _, variable := range f.env {
		if strings.Index(variable, "=") < 1 {
			return fmt.Errorf("--env %q is not NAME=VALUE", variable)
		}
	}
	if info, err := os.Stat(cmp.Or(f.dir, ".")); err != nil || !info.IsDir() {
		return fmt.Errorf("--cwd %q is not a directory", f.dir)
	}
	if f.timeout < 0 || f.initTimeout <= 0 {
		return errors.New("--timeout must not be negative, and --init-timeout must be above zero")
	}
	if f.revision != "" && !slices.Contains(protocol.Versions(), f.revision) {
		return fmt.Errorf("--revision %q is none of %s", f.revision, strings.Join(protocol.Versions(), ", "))
	}
	if f.logLevel != "" && protocol.LogLevel(f.logLevel).Severity() < 0 {
		return fmt.Errorf("--log %q is none of %s", f.logLevel, strings.Join(logLevels[:], ", "))
	}
	return nil
}

// config reads the file that the flags mean.
func (f *serverFlags) config(ctx context.Context) (*mcpjson.File, error) {
	path := f.configPath
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
func (f *serverFlags) choose(file *mcpjson.File) (string, error) {
	if f.name != "" {
		return f.name, nil
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
func (f *serverFlags) completeServer(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	file, err := f.config(cmd.Context())
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveError
	}
	var completions []cobra.Completion
	for _, name := range file.Names() {
		completions = appendCompletion(completions, name, "")
	}
	return completions, cobra.ShellCompDirectiveNoFileComp
}

// secure makes the server's certificate be checked as --cacert and --insecure
// say.
func (f *serverFlags) secure(ctx context.Context, server *streamable.Client) error {
	if f.authorities == "" && !f.insecure {
		return nil
	}
	trusted, err := x509.SystemCertPool()
	if err != nil {
		trusted = x509.NewCertPool() // the system has no certificate authorities
	}
	if f.authorities != "" {
		raw, err := await(ctx, func() ([]byte, error) { return os.ReadFile(f.authorities) })
		if err != nil {
			return fmt.Errorf("--cacert: %w", err)
		}
		if !trusted.AppendCertsFromPEM(raw) {
			return fmt.Errorf("--cacert %s contains no certificate in PEM format", f.authorities)
		}
	}
	carrier := http.DefaultTransport.(*http.Transport).Clone()
	carrier.TLSClientConfig = &tls.Config{RootCAs: trusted, InsecureSkipVerify: f.insecure}
	// A Transport of one's own needs what the default pool has; see streamable.Client.HTTP.
	carrier.HTTP2 = &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second, MaxReceiveBufferPerStream: 64 << 10}
	server.HTTP = &http.Client{Transport: carrier}
	return nil
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

// adviceLogin says how to log in.
func (f *serverFlags) adviceLogin(shownURL string) string {
	return "Or log in: bowline login " + f.choice(shownURL)
}

// choice returns the flags that choose the server, for a command line that is shown. It shows no
// header and no variable, which may be secrets.
func (f *serverFlags) choice(shownURL string) string {
	switch {
	case f.command != "":
		return "--command " + inQuotes(f.command)
	case f.url != "":
		return "--url " + inQuotes(shownURL)
	case f.configPath != "":
		return "--mcp-config " + inQuotes(f.configPath) + " --server " + inQuotes(f.name)
	default:
		return "--server " + inQuotes(f.name)
	}
}

// near returns the flag that is meant: the one that is most like the name, or begins it, as log does
// log-level.
func near(name string, flags []string) (string, bool) {
	if first, _, longer := strings.Cut(name, "-"); longer && slices.Contains(flags, first) {
		return first, true
	}
	return suggest.Nearest(name, flags)
}

// explainFlag says what is meant by a flag that cannot be understood.
func explainFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case !cmd.HasParent():
		return fmt.Errorf("%w; flags come after a command, as in bowline tools --command SERVER", err)
	case errors.As(err, &unknown):
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				names = append(names, f.Name)
			}
		})
		if meant, ok := near(unknown.GetSpecifiedName(), names); ok {
			return fmt.Errorf("%w; did you mean --%s?", err, meant)
		}
	case errors.As(err, &invalid) && invalid.GetFlag().Value.Type() == "duration":
		flag, value := invalid.GetFlag().Name, invalid.GetValue()
		if _, number := strconv.ParseFloat(value, 64); number == nil {
			return fmt.Errorf("--%s %s has no unit: use %ss for seconds, or %sm for minutes", flag, value, value, value)
		}
		return fmt.Errorf("--%s %q is not a duration such as 500ms, 30s or 2m", flag, value)
	}
	return err
}
