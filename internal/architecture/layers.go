package architecture

import (
	"slices"
	"strings"
)

// A layer is a set of packages that may import everything below it.
type layer struct {
	patterns []string // "x" is the package x; "x/..." is x and all below it
	isolated bool     // its packages may not import one another
	about    string   // what the picture says of it; if empty, the picture leaves it out
}

// layers contains the layers, lowest first.
var layers = []layer{
	{patterns: []string{"internal/actor", "internal/header", "internal/lazyworker", "internal/network", "internal/nodename", "internal/private", "internal/redact", "internal/scan", "internal/seal", "internal/share", "internal/suggest", "internal/turn", "internal/wait"}, isolated: true},
	{patterns: []string{"telemetry"}, about: "events and samples"},
	{patterns: []string{"protocol/jsonrpc/..."}, about: "JSON-RPC messages"},
	{patterns: []string{"protocol/..."}, about: "MCP messages, JSON Schema"},
	{patterns: []string{"transport", "transport/internal/...", "internal/revision"}, about: "what a link must do"},
	{patterns: []string{"transport/sse/..."}, about: "HTTP+SSE"}, // streamable falls back to it
	{patterns: []string{"transport/..."}, isolated: true, about: "all other transports"},
	{patterns: []string{"conn/..."}, about: "one connection"},
	{patterns: []string{"internal/ledger"}},
	{patterns: []string{"supervisor/..."}, about: "start, restart, stop"},
	{patterns: []string{"features/internal/..."}},
	{patterns: []string{"features/...", "mcpjson"}, isolated: true, about: "MCP clients and servers; mcp.json files"},
	{patterns: []string{"mcpjson/...", "features/skills"}, about: "sessions with the servers of a file; skills of a server"}, // except mcpjson itself; skills stand on what package server offers to every program
	{patterns: []string{"auth/..."}, about: "OAuth"},
	{patterns: []string{"cluster/..."}, about: "many nodes"},
	{patterns: []string{"gateway/..."}, about: "one endpoint over many servers"},
	{patterns: []string{"cmd/..."}, isolated: true, about: "the command"},
	{patterns: []string{"examples/..."}, isolated: true},
	{patterns: []string{"."}},         // a page of documentation, with an example
	{patterns: []string{"peers/..."}}, // a module of its own, so that nobody depends on what it compares with
}

// Packages beside the layers, which few may import.
const (
	sinks    = "telemetry/..."            // the package telemetry itself is in a layer
	lines    = "telemetry/internal/lines" // what all sinks for logs write
	tracer   = "telemetry/otel/..."       // its middleware sees what the features see
	suites   = "proptest/..."
	stores   = "proptest/stores" // suites for the stores of all packages
	testKit  = "mcptest/..."
	tooling  = "internal/..." // except what is in a layer
	commands = "cmd/..."
	examples = "examples/..."
	peers    = "peers/..." // measures what a sink costs
)

// Packages in agnostic speak JSON-RPC and know nothing of MCP, so they import
// nothing in mcp. Some transports know MCP's headers and statuses.
var (
	agnostic = []string{"protocol/jsonrpc/...", "transport/...", "conn/...", "supervisor/..."}
	mcp      = []string{"protocol/...", "features/...", "transport/streamable/...", "transport/sse/..."}
	neutral  = []string{"protocol/jsonrpc/..."} // in mcp by its folder only
	mcpAware = []string{"transport/streamable/...", "transport/sse/..."}
)

// matches reports whether a pattern describes a package.
func matches(pattern, pkg string) bool {
	root, below := strings.CutSuffix(pattern, "/...")
	return pkg == root || below && strings.HasPrefix(pkg, root+"/")
}

func anyMatches(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, pkg) })
}

// layerOf returns the position of a package's layer, starting at 0, or -1 if the
// package is in none. An exact pattern takes precedence over all
// others, and a longer pattern over a shorter one.
func layerOf(pkg string) int {
	best, length := -1, 0
	for i, l := range layers {
		for _, pattern := range l.patterns {
			if pattern == pkg {
				return i
			}
			if matches(pattern, pkg) && len(pattern) > length {
				best, length = i, len(pattern)
			}
		}
	}
	return best
}

// oauth are the libraries that only package auth and those below it import.
var oauth = []string{"golang.org/x/oauth2/...", "github.com/go-jose/go-jose/..."}

func isOAuth(target string) bool { return anyMatches(oauth, target) }

func isTooling(pkg string) bool { return matches(tooling, pkg) && layerOf(pkg) < 0 }

func isSink(pkg string) bool { return pkg != "telemetry" && matches(sinks, pkg) }

// placed reports whether the rules know a package, in a layer or beside them.
func placed(pkg string) bool {
	return layerOf(pkg) >= 0 || isSink(pkg) || matches(suites, pkg) || matches(testKit, pkg) || isTooling(pkg)
}

func isAgnostic(pkg string) bool { return anyMatches(agnostic, pkg) && !anyMatches(mcpAware, pkg) }

func isMCP(pkg string) bool { return anyMatches(mcp, pkg) && !anyMatches(neutral, pkg) }

// subtree returns the part of a layer whose packages may import each other:
// transport/stdio and the packages below it are one subtree, transport/sse is
// another.
func subtree(pkg string) string {
	parts := strings.SplitN(pkg, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// forbidden returns why from must not import to, or "" if it may.
func forbidden(from, to string) string {
	low, high := layerOf(to), layerOf(from)
	switch {
	case matches(suites, to) && !matches(suites, from):
		return "property suites are for tests; a program must not carry them"
	case matches(testKit, to) && !matches(testKit, from):
		return "the test kit is for tests; a program must not carry it"
	case isTooling(to) && !isTooling(from) && !matches(commands, from) && !matches(testKit, from):
		return "tooling is for tests and commands, not for a library"
	case isTooling(from):
		return ""
	case matches(tracer, from):
		return ""
	case isSink(from) && to != "telemetry" && !matches(lines, to) && subtree(from) != subtree(to):
		return "a sink knows the events and its own library, nothing else"
	case isSink(from):
		return ""
	case isSink(to) && !matches(commands, from) && !matches(examples, from) && !matches(peers, from):
		return "every user would compile the sink's library"
	case matches(suites, from) && from != stores && low > layerOf("supervisor"):
		return "the suites check runtimes, so they reach up to supervisor and no further"
	case matches(suites, from), matches(testKit, from):
		return ""
	case high < 0:
		return "" // the rule place reports it
	case high < low:
		return "imports run downwards only"
	case high == low && layers[high].isolated && subtree(from) != subtree(to):
		return "packages of this layer do not import each other; what they share belongs below"
	case isAgnostic(from) && isMCP(to):
		return "this package serves any JSON-RPC peer; features hands it what is MCP's alone"
	}
	return ""
}
