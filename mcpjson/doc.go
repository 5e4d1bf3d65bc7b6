// Package mcpjson reads mcp.json, the file in which desktop hosts list MCP
// servers: Claude Desktop, Claude Code, Cursor and Gemini CLI keep them under
// mcpServers, VS Code under servers.
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
// A server has a command, with args, env and cwd, or a url with headers. What a
// key means:
//
//   - type is "stdio" with a command, and "http" with a url; "streamable-http"
//     and "streamableHttp" mean "http". Letter case does not matter. Without a
//     type it follows from the other keys. "sse" with a url is the HTTP+SSE
//     transport of MCP 2024-11-05; a server of type "http" may speak it too, and
//     is then found by its answer.
//   - httpUrl means url, as in Gemini CLI. If both are given, url is ignored.
//   - env holds strings, numbers and booleans.
//   - envFile, as in VS Code, names a file of variables. What env says prevails. A
//     relative path begins at the project's folder. Each line is NAME=value, empty,
//     or a comment after #; export may come first. A value in quotes may span lines
//     and hold #; between double quotes \n, \r, \t, \" and \\ are escapes. Nothing
//     is expanded.
//   - cwd is the directory to start the command in. A relative one begins at the
//     project's folder: the folder of the file, or the one around it if the file
//     is in .vscode or .cursor. Without a cwd the command starts in the directory
//     of this process.
//   - timeout is how long to wait for an answer, a number of milliseconds as in
//     Claude Code and Gemini CLI.
//   - "disabled": true and "enabled": false switch a server off. Nothing else of
//     it is looked at then.
//   - bowline holds settings of this project, in which an unknown key is a mistake.
//     Durations are Go's, such as "30s". initTimeout and requestTimeout, which takes
//     precedence over timeout, are for every reader of the file. The others say how
//     a program keeps its session, see package sessions: maxTimeout, backoffMin and
//     backoffMax, liveness (a duration, or "off"), retries (a number), waitForReady,
//     progressRestarts and trustAnnotations (true or false), and toolModes (an object
//     of tools, "stateless" or "stateful"). They are client.Options,
//     client.CallOptions and conn.Options of the same names. auth says how to log in
//     to a server over HTTP, see Auth: grant, issuer, clientId, clientSecret,
//     clientMetadataUrl, scopes, port, offline, dpop and allowHosts.
//
// A key whose value is null counts as absent. Other keys are ignored with a
// notice, see Server.Notices.
//
// # Variables
//
// These are replaced in every string value of a server, and in no key:
//
//   - ${NAME} and ${env:NAME}: an environment variable. NAME has letters, digits
//     and underscores. A variable that is set to nothing is set.
//   - ${NAME:-default} and ${env:NAME:-default}: the same, or the default if the
//     variable is not set. The default ends at the first brace.
//   - ${workspaceFolder}: the absolute path of the project's folder.
//   - ${userHome}: the home directory of the user.
//   - ${input:ID}: an answer of the user, see File.Ask.
//
// Any other ${ is a mistake. A $ without a brace is itself, and so is $$. What
// was put in is not looked at again, so that ${NONE:-$}{x} gives ${x}.
//
// See docs/adr/0018-mcp-json.md.
package mcpjson
