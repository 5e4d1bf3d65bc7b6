package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/mcpconfig"
	"github.com/bowline-mcp/bowline/transport/stdio"
	"github.com/spf13/cobra"
)

// configHelp is what the commands that talk to a server say of it.
const configHelp = `The server is a --command to start, a --url to reach over streamable HTTP, or an
entry of an mcp.json as desktop hosts have it: --mcp-config names the file, and
--server the entry if there are several. With none of these .mcp.json, mcp.json, .cursor/mcp.json or .vscode/mcp.json of the
working directory is used, and named on standard error.`

// configured reads the entry of the mcp.json that the flags mean, and lets
// flags that were given prevail over it.
func (t *target) configured(cmd *cobra.Command) (*endpoint, error) {
	config, err := t.config(cmd)
	if err != nil {
		return nil, err
	}
	server, err := choose(config, t.name)
	if err != nil {
		return nil, err
	}
	if server.Kind == mcpconfig.SSE {
		return nil, fmt.Errorf("%s: server %q is reached by HTTP+SSE, which is not supported: only stdio and streamable HTTP are", config.Path, line(server.Name))
	}
	if flags := cmd.Flags(); server.Timeout > 0 && !flags.Changed("timeout") {
		t.timeout = server.Timeout
	}
	if server.InitTimeout > 0 && !cmd.Flags().Changed("init-timeout") {
		t.initTimeout = server.InitTimeout
	}
	if server.Kind == mcpconfig.HTTP {
		return t.remote(server.URL, server.Headers)
	}
	return t.process(cmd, &stdio.Command{Path: server.Command, Args: server.Args, Env: server.Env, Dir: server.Dir})
}

// config reads the file, and shows its notices.
func (t *target) config(cmd *cobra.Command) (*mcpconfig.Config, error) {
	path := t.configPath
	if path == "" {
		found, ok := mcpconfig.Discover(".")
		if !ok {
			return nil, errors.New("say which server: start one with --command, for example --command 'bowline serve --stdio', reach one with --url, or name an mcp.json with --mcp-config")
		}
		path = found
		cmd.PrintErrln("bowline: using " + line(path))
	}
	config, err := mcpconfig.Load(path, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	for _, notice := range config.Notices {
		cmd.PrintErrln("bowline: " + line(notice))
	}
	return config, nil
}

// choose finds the entry called name, or the only one when no name is given.
func choose(config *mcpconfig.Config, name string) (*mcpconfig.Server, error) {
	if name != "" {
		return config.Server(name)
	}
	switch names := enabled(config); len(names) {
	case 0:
		return nil, fmt.Errorf("%s has no server that is not disabled", config.Path)
	case 1:
		return config.Server(names[0])
	default:
		return nil, fmt.Errorf("%s has several servers: say which with --server: %s", config.Path, line(strings.Join(names, ", ")))
	}
}

func enabled(config *mcpconfig.Config) []string {
	var names []string
	for _, server := range config.Servers {
		if !server.Disabled {
			names = append(names, server.Name)
		}
	}
	return names
}

// completeServer completes --server from the file that the flags mean.
func (t *target) completeServer(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	config, err := t.config(cmd)
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil, cobra.ShellCompDirectiveError
	}
	return enabled(config), cobra.ShellCompDirectiveNoFileComp
}
