// Package mcpjson reads mcp.json, the file in which desktop programs list MCP servers.
// Claude Desktop, Claude Code, Cursor, Windsurf, Gemini CLI and GitHub Copilot CLI list them
// under mcpServers, VS Code under servers, and Zed under context_servers.
//
//	{
//	  // comments and trailing commas are fine
//	  "mcpServers": {
//	    "files": {
//	      "command": "npx",
//	      "args": ["-y", "@modelcontextprotocol/server-filesystem", "${userHome}"],
//	      "env": {"LEVEL": "${LEVEL:-info}", "PORT": 8080},
//	      "timeout": 60000,
//	      "bowline": {"initTimeout": "30s"},
//	    },
//	    "issues": {"type": "http", "url": "https://example.test/mcp"},
//	    "old": {"command": "old-server", "disabled": true},
//	  },
//	}
//
// A server has either a command, with args, env and cwd, or a url with headers. These are
// the keys:
//
//   - type is "stdio" or "local" for a command, and "http" for a url. "streamable-http" and
//     "streamableHttp" also mean "http". Upper and lower case are the same. By default,
//     the type follows from the other keys. "sse" means the HTTP+SSE transport of MCP
//     2024-11-05. A server of type "http" may use that transport, too: the client
//     detects it by the server's first answer.
//   - httpUrl means url, as in Gemini CLI, and so does serverUrl, as in Windsurf. If a server
//     has both, url is ignored.
//   - A command that is an object has path, args and env, as in older files of Zed. "source":
//     "extension" without a command is a mistake: only Zed knows the command.
//   - env contains strings, numbers and booleans.
//   - envFile names a file of environment variables, as in VS Code. A variable in env
//     takes precedence. A relative path starts at the project's folder. Each line is
//     NAME=value or export NAME=value, is empty, or is a comment that begins with #. A
//     value in quotes may contain # and line breaks; in double quotes, \n, \r, \t, \"
//     and \\ are escapes. Variables in the file are not replaced.
//   - cwd is the directory in which the command starts. A relative path starts at the
//     project's folder: the folder of the file, or its parent if the file is in .vscode
//     or .cursor. By default, the command starts in the directory of this process.
//   - timeout is how long to wait for an answer, in milliseconds, as in Claude Code and
//     Gemini CLI.
//   - "disabled": true or "enabled": false disables a server. The rest of its entry is
//     then not checked.
//   - includeTools, excludeTools and disabledTools say which tools a host offers, and so does
//     tools if it is an array, as in GitHub Copilot CLI, and there is no includeTools. A gateway
//     does not offer the others either (see Hosting); other programs do not look at them.
//   - bowline contains Bowline's own settings. An unknown key in it is a mistake.
//     Durations have Go's form, such as "30s". initTimeout and requestTimeout apply to
//     every program that reads the file; requestTimeout takes precedence over timeout.
//     The other settings configure a session (package sessions), and have the meaning of
//     the fields of client.Options, client.CallOptions and conn.Tuning with the same
//     names: maxTimeout, backoffMin, backoffMax, liveness (a duration, or "off"), retries
//     (a number), waitForReady, progressRestarts, trustAnnotations (true or false), and
//     toolModes (an object of tools, each "stateless" or "stateful"; for a gateway, "*" is all others). The object auth
//     says how to log in to a server over HTTP (see Auth): grant, issuer, clientId,
//     clientSecret, clientMetadataUrl, scopes, port, offline, dpop and allowHosts. With
//     "login": "user" the users of a gateway log in there, each for himself; an object in its place, with an
//     object exchange (issuer, clientId, clientSecret, audience and scopes), says how their tokens are exchanged (see Exchange), or with an object idjag (the same, and
//     provider, an object with tokenEndpoint, clientId, clientSecret and subject) by way of an identity provider. The
//     rest is for a gateway (see Hosting): prefix, start, idleStop and maxLife (a duration from one second, or "off"),
//     roots, share (all, user or client), instances (each or one), concurrency (a number), toolRates (an object of tools, each with a number of calls a minute), and tools, prompts and
//     resources, each an object with allow and deny.
//
// A key bowline beside mcpServers is for a gateway, too (see Gateway): http, admin (an object with
// socket and http), maxName, prefix, catalogue, roots, rate (an object with perMinute and inFlight), url, auth (an object with tokens, or with
// issuers, scopes and groups), trustedProxies, audit (an object with file, arguments, onFull, sync, keep and show), policy (an array of rules with who, allow and deny), personas (an object of
// those, with who, servers, allow, deny, readOnly and rate; see Policy), groups (the same without who and rate), pins (warn, block or off), and start, idleStop and maxLife of those servers that do
// not say otherwise. An unknown key in it is a mistake.
//
// A key with the value null counts as absent; in a block bowline it is a mistake where it could lift a limit. Any other key is ignored, with a notice;
// see Server.Notices. Settings of a command are ignored in a server with a url, and headers in
// one with a command.
//
// # Variables
//
// These variables are replaced in all string values of a server, but not in keys:
//
//   - ${NAME} and ${env:NAME}: an environment variable. NAME consists of letters, digits
//     and underscores. A variable with an empty value counts as set.
//   - ${NAME:-default} and ${env:NAME:-default}: the same, or the default if the
//     variable is not set. The default ends at the first closing brace.
//   - ${workspaceFolder} and ${workspaceFolderBasename}: the absolute path of the project's
//     folder, and its last element.
//   - ${userHome}: the user's home directory.
//   - ${pathSeparator} and ${/}: what stands between the elements of a path.
//   - ${input:ID}: an answer of the user; see File.Ask.
//
// Any other ${ is a mistake. A $ that no brace follows stays as it is, and so does $$; a value that is
// $NAME alone, which Gemini CLI replaces, gives a notice.
// Replaced text is not searched again, so ${NONE:-$}{x} gives ${x}.
//
// See docs/adr/0018-mcp-json.md.
package mcpjson
