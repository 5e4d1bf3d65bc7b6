package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/mcpconfig"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/bowline-mcp/bowline/transport/streamable"
	"github.com/mattn/go-shellwords"
	"github.com/spf13/cobra"
)

// An endpoint is a server to connect to, and what to call it.
type endpoint struct {
	transport.Transport
	name   string
	remote bool // reached over HTTP, and not started by us
}

// endpoint checks the flags, and says how to reach the server.
func (t *target) endpoint(cmd *cobra.Command) (*endpoint, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	flags := cmd.Flags()
	switch command, remote := flags.Changed("command"), flags.Changed("url"); {
	case command && remote:
		return nil, errors.New("--command starts a server and --url reaches one: give one of them")
	case (command || remote) && (t.configPath != "" || t.name != ""):
		return nil, errors.New("--command and --url say all: --mcp-config and --server do not go with them")
	case remote:
		return t.remote(t.url, nil)
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

// process is a server that we start.
func (t *target) process(cmd *cobra.Command, server *stdio.Command) (*endpoint, error) {
	if len(t.headers) > 0 {
		return nil, errors.New("--header is for a server that is reached by --url")
	}
	server.Env = append(server.Env, t.env...)
	if t.dir != "" {
		server.Dir = t.dir
	}
	if t.verbose {
		server.Stderr = cmd.ErrOrStderr()
	}
	return &endpoint{Transport: server, name: server.Path}, nil
}

// remote is a server that is reached over HTTP. What the flags say prevails
// over the header given here.
func (t *target) remote(address string, header http.Header) (*endpoint, error) {
	if len(t.env) > 0 || t.dir != "" {
		return nil, errors.New("--env and --cwd are for a server that is started, not for one that is reached over HTTP")
	}
	if header = header.Clone(); header == nil {
		header = make(http.Header)
	}
	for _, given := range t.headers {
		name, value, err := readHeader(given)
		if err != nil {
			return nil, err
		}
		header.Set(name, value)
	}
	client := &streamable.Client{URL: address, Header: header}
	if err := client.Check(); err != nil {
		var wrong *streamable.URLError
		errors.As(err, &wrong)
		return nil, fmt.Errorf("the URL is none such as http://127.0.0.1:8080/mcp: %w", wrong.Err)
	}
	return &endpoint{Transport: client, name: withoutSecrets(address), remote: true}, nil
}

// withoutSecrets is what of an address can be shown: user and query may hold
// secrets.
func withoutSecrets(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return "the server"
	}
	return (&url.URL{Scheme: parsed.Scheme, Host: parsed.Host, Path: parsed.Path}).String()
}

// readHeader takes a header as curl does. What is wrong is said without the
// value, which may be a secret.
func readHeader(given string) (name, value string, err error) {
	name, value, found := strings.Cut(given, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	switch {
	case !found || !mcpconfig.IsHeaderName(name):
		return "", "", errors.New("--header is not 'Name: value'")
	case !mcpconfig.IsHeaderValue(value):
		return "", "", fmt.Errorf("--header %s: the value holds a line break or control character", name)
	}
	return name, value, nil
}

// split reads a command as a shell would, without running anything.
func split(command string) ([]string, error) {
	parser := shellwords.NewParser()
	parser.ParseEnv, parser.ParseBacktick, parser.ParseComment = false, false, false
	words, err := parser.Parse(command)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--command %q: a quote, a backslash or a bracket has no partner", command)
	case parser.Position >= 0:
		return nil, fmt.Errorf("--command %q: no shell runs this, so ; & | < > mean nothing: quote them, or start a shell: --command \"sh -c '...'\"", command)
	case len(words) == 0:
		return nil, fmt.Errorf("--command %q holds no command", command)
	}
	return words, nil
}
