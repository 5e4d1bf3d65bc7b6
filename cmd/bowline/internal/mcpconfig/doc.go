// Package mcpconfig reads mcp.json, the list of servers that desktop hosts
// share: Claude Desktop, Claude Code and Cursor keep it under mcpServers, VS
// Code under servers.
//
//	{
//	  // comments and trailing commas are fine
//	  "mcpServers": {
//	    "files": {
//	      "command": "npx",
//	      "args": ["-y", "@modelcontextprotocol/server-filesystem", "${HOME}"],
//	      "timeout": 60000,
//	      "bowline": {"initTimeout": "30s"},
//	    },
//	    "issues": {"type": "http", "url": "https://example.test/mcp"},
//	  },
//	}
//
// A server has a command, with args, env and cwd; or a url, with headers and
// the type "http" (the default; "streamable-http" and "streamableHttp" are the
// same) or "sse". The type of a command is "stdio". Common to both are timeout,
// a number of milliseconds as in Claude Code and Gemini CLI; disabled; and
// bowline, where our own settings are: initTimeout and requestTimeout, as Go
// durations, the latter in place of timeout. A setting that is null is not
// there. Keys of hosts that mean nothing here are ignored with a notice; an
// unknown key under bowline is a mistake.
//
// A relative cwd is relative to the folder of the file, so that a file means
// the same wherever it is read from; for a file in .vscode or .cursor, to the
// folder around that one. Without a cwd the command runs where we do.
//
// In every string value of a server ${NAME} and ${env:NAME} stand for an
// environment variable, and ${NAME:-default} for one that may be unset. A
// variable that is set to nothing is set, as in Claude Code and unlike in sh.
// NAME is letters, digits and underscores. Defaults are taken as they are, and
// end at the first brace. Any other ${ is a mistake, ${input:NAME} among them;
// a $ without a brace is itself, and so is $$. What was put in is not looked
// at again, so ${NONE:-$}{x} gives ${x}. Keys are never expanded.
//
// Of a disabled server only the names of its keys are looked at.
//
// See docs/adr/0018-mcp-json.md.
package mcpconfig
