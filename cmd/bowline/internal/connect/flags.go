package connect

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/render"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/mattn/go-shellwords"
	"github.com/spf13/cobra"
)

// ConfigHelp explains which server a command talks to.
const ConfigHelp = `To choose the server, use --command to start one, --url to connect to one over
HTTP, or --mcp-config to name an mcp.json file of a desktop program. If the file
has several servers, choose one with --server. Without these flags, the command
uses .mcp.json, mcp.json, .cursor/mcp.json or .vscode/mcp.json of the working
directory, after you have agreed on the terminal.

If the server asks a question, the command asks you on the terminal. Without a
terminal it declines.`

// Flags say which server a command uses, and how.
type Flags struct {
	Command     string
	URL         string
	headers     []string
	authorities string // the path of a file with certificates
	insecure    bool
	ConfigPath  string // the path of an mcp.json
	Name        string // the name of the entry in that file
	env         []string
	dir         string
	Revision    string
	Timeout     time.Duration // 0: no timeout
	initTimeout time.Duration
	verbose     bool
	RecordPath  string // the path of a transcript
	LogLevel    string // "" means that the server is not asked to log
}

// Add adds the flags to a command.
func (f *Flags) Add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.Command, "command", "", "`command` that starts the server; it is split into words like in a shell, but nothing is expanded")
	flags.StringVar(&f.URL, "url", "", "`URL` of a server over HTTP")
	flags.StringArrayVar(&f.headers, "header", nil, "send `NAME:VALUE` with every HTTP request, for instance 'Authorization: Bearer ...' (repeatable)")
	flags.StringVar(&f.authorities, "cacert", "", "PEM `file` with certificate authorities to trust for the HTTP server, in addition to the system's")
	flags.BoolVar(&f.insecure, "insecure", false, "accept any certificate of the HTTP server; somebody on the network can then read and change everything")
	flags.StringVar(&f.ConfigPath, "mcp-config", "", "mcp.json `file` that contains the server")
	flags.StringVar(&f.Name, "server", "", "`name` of the server in the mcp.json")
	flags.StringArrayVar(&f.env, "env", nil, "add `NAME=VALUE` to the server's environment (repeatable)")
	flags.StringVar(&f.dir, "cwd", "", "`directory` to start the server in")
	flags.StringVar(&f.Revision, "revision", "", "protocol `revision` to use, for instance 2025-11-25; default: the newest that the server supports")
	flags.DurationVar(&f.Timeout, "timeout", time.Minute, "how long to wait for answers once the session is ready; 0 means forever")
	flags.DurationVar(&f.initTimeout, "init-timeout", time.Minute, "how long to wait for the session to be ready")
	flags.StringVar(&f.RecordPath, "record", "", "write a transcript of all messages to this `file`, or to standard error for -")
	flags.StringVar(&f.LogLevel, "log", f.LogLevel, "show the server's log messages of this `level` and above on standard error: debug, info, notice, warning, error, critical, alert or emergency")
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

func (f *Flags) check() error {
	for _, variable := range f.env {
		if strings.Index(variable, "=") < 1 {
			return fmt.Errorf("--env %q is not NAME=VALUE", variable)
		}
	}
	if info, err := os.Stat(cmp.Or(f.dir, ".")); err != nil || !info.IsDir() {
		return fmt.Errorf("--cwd %q is not a directory", f.dir)
	}
	if f.Timeout < 0 || f.initTimeout <= 0 {
		return errors.New("--timeout must not be negative, and --init-timeout must be above zero")
	}
	if f.Revision != "" && !slices.Contains(protocol.Versions(), f.Revision) {
		return fmt.Errorf("--revision %q is none of %s", f.Revision, strings.Join(protocol.Versions(), ", "))
	}
	if f.LogLevel != "" && protocol.LogLevel(f.LogLevel).Severity() < 0 {
		return fmt.Errorf("--log %q is none of %s", f.LogLevel, strings.Join(logLevels[:], ", "))
	}
	return nil
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
func (f *Flags) adviceLogin(shownURL string) string {
	return "Or log in: bowline login " + f.Choice(shownURL)
}

// Choice returns the flags that choose the server, for a command line that is shown. It shows no
// header and no variable, which may be secrets.
func (f *Flags) Choice(shownURL string) string {
	switch {
	case f.Command != "":
		return "--command " + render.InQuotes(f.Command)
	case f.URL != "":
		return "--url " + render.InQuotes(shownURL)
	case f.ConfigPath != "":
		return "--mcp-config " + render.InQuotes(f.ConfigPath) + " --server " + render.InQuotes(f.Name)
	default:
		return "--server " + render.InQuotes(f.Name)
	}
}

var logLevels = [...]string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
