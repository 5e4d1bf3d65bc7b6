package guide

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
)

// limited are the options whose limits the page of limits lists.
var limited = []struct{ heading, dir, name string }{
	{"A connection, of client or server", "conn", "Tuning"},
	{"A client", "features/client", "Options"},
	{"A call", "features/client", "CallOptions"},
	{"A server", "features/server", "Options"},
	{"A server that asks its clients", "features/server", "AskingOptions"},
	{"Tasks of a server", "features/server", "TaskOptions"},
	{"Tasks that are kept in memory", "features/server", "MemoryTaskStore"},
	{"Files as resources", "features/server", "FilesOptions"},
	{"Child processes", "transport/stdio", "Command"},
	{"Standard input and output", "transport/stdio", "Server"},
	{"Streamable HTTP, client", "transport/streamable", "Client"},
	{"Streamable HTTP, server", "transport/streamable", "HandlerOptions"},
	{"Events that are kept for clients that come back", "transport/streamable", "MemoryStore"},
	{"HTTP+SSE, client", "transport/sse", "Client"},
	{"HTTP+SSE, server", "transport/sse", "HandlerOptions"},
	{"In memory", "transport/inmem", "Options"},
	{"A server protected by OAuth", "auth/resource", "Options"},
	{"Fetching URLs that a server names", "auth/guard", "Options"},
	{"A supervisor", "supervisor", "Options"},
	{"A child of a supervisor", "supervisor", "ChildSpec"},
}

const limitsIntro = `# Limits and defaults

<!-- Generated from the comments in the code: make docs rewrites it. -->

Every queue, timeout and size in Bowline has a limit. This page lists those that you can set, with their defaults. A test
compares most of them with the code. [The end of the page](#limits-that-you-cannot-set) names others. [Which timeout to
set](guide/timeouts.md) says which of them a call meets.
`

// Limits returns the page of limits, and says where a comment states another default
// than the code has.
func Limits(root string) (page string, problems []string, err error) {
	var out strings.Builder
	out.WriteString(limitsIntro)
	for _, l := range limited {
		p, err := parsePackage(filepath.Join(root, filepath.FromSlash(l.dir)))
		if err != nil {
			return "", nil, err
		}
		fmt.Fprintf(&out, "\n## %s\n\n`%s.%s`:\n\n| Option | Default | What it limits |\n| --- | --- | --- |\n", l.heading, l.dir, l.name)
		rows := 0
		for _, f := range p.fields(l.name) {
			if f.preset == "" {
				continue
			}
			rows++
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", f.names, f.preset, strings.ReplaceAll(f.what, "|", `\|`))
			for name := range strings.SplitSeq(f.names, ", ") {
				if value, found := p.presets[l.name+"."+name]; found && !states(f.preset, value, f.isDuration) {
					problems = append(problems, fmt.Sprintf("%s.%s.%s: the comment says %q, the code %v", l.dir, l.name, name, f.preset, value))
				}
			}
		}
		if rows == 0 {
			problems = append(problems, fmt.Sprintf("%s.%s has no limits", l.dir, l.name))
		}
	}
	gateway, more, err := boundsOfGateway(root)
	if err != nil {
		return "", nil, err
	}
	out.WriteString(gateway)
	problems = append(problems, more...)
	table, more, err := shared(root)
	if err != nil {
		return "", nil, err
	}
	out.WriteString(table)
	problems = append(problems, more...)
	fixed, err := fixedLimits(filepath.Join(root, "protocol", "list.go"))
	if err != nil {
		return "", nil, err
	}
	out.WriteString(limitsFixed + fixed)
	return out.String(), problems, nil
}

const limitsFixed = `
## Limits that you cannot set

- OAuth of a server: how many tokens, proofs and keys are remembered, and how often an issuer is asked, is in
  [ADR-0046](adr/0046-resource-server.md), G-0046.4, .5, .10 and .11.
- Fetching URLs that a server names: [ADR-0045](adr/0045-guarded-fetching.md).
- One client of an HTTP endpoint: [ADR-0038](adr/0038-bounds-of-an-http-endpoint.md).
- mcp.json files: [ADR-0018](adr/0018-mcp-json.md).
- The URI of a resource that a client reads or subscribes to: 8 KiB.

One message may contain at most:

| Constant | Limit | Of what |
| --- | --- | --- |
`

// fixedLimits lists the exported constants Max… of a file.
func fixedLimits(file string) (rows string, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	for _, declaration := range parsed.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			constants := spec.(*ast.ValueSpec)
			value := new(source).eval(constants.Values[0])
			if name := constants.Names[0].Name; strings.HasPrefix(name, "Max") && value != nil {
				n, _ := constant.Int64Val(value)
				rows += fmt.Sprintf("| `protocol.%s` | %s | %s |\n", name, grouped(n), oneLine(constants.Comment.Text()))
			}
		}
	}
	return rows, nil
}
