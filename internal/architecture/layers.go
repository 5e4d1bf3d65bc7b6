package architecture

import "strings"

// A layer is a set of packages that may import everything below it.
type layer struct {
	patterns []string // "x" is the package x; "x/..." is x and all below it
	apart    bool     // its packages may not import one another
}

// stack is the house, lowest floor first.
var stack = []layer{
	{patterns: []string{"internal/ondemand"}},
	{patterns: []string{"telemetry"}},
	{patterns: []string{"protocol/jsonrpc/..."}},
	{patterns: []string{"protocol/..."}},
	{patterns: []string{"transport", "transport/internal/..."}},
	{patterns: []string{"transport/..."}, apart: true},
	{patterns: []string{"conn/..."}},
	{patterns: []string{"supervisor/..."}},
	{patterns: []string{"features/internal/..."}},
	{patterns: []string{"features/..."}, apart: true},
	{patterns: []string{"cmd/..."}, apart: true},
	{patterns: []string{"examples/..."}, apart: true},
	{patterns: []string{"peers/..."}}, // a module of its own, so that what it measures against is nobody's dependency
}

// What stands beside the stack, and is imported by few.
const (
	sinks    = "telemetry/..." // the package telemetry itself is in the stack
	suites   = "proptest/..."
	tooling  = "internal/..." // but for what is in the stack
	commands = "cmd/..."
	shown    = "examples/..."
)

// agnostic packages speak JSON-RPC and know nothing of MCP; mcp is what they
// must not reach. The HTTP transports know MCP's headers and statuses.
var (
	agnostic   = []string{"protocol/jsonrpc/...", "transport/...", "conn/...", "supervisor/..."}
	mcpAware   = []string{"transport/streamable/...", "transport/sse/..."}
	mcp        = []string{"protocol/...", "features/..."}
	mcpNeutral = []string{"protocol/jsonrpc/..."}
)

// matches reports whether a package is one of those a pattern describes.
func matches(pattern, pkg string) bool {
	root, below := strings.CutSuffix(pattern, "/...")
	return pkg == root || below && strings.HasPrefix(pkg, root+"/")
}

func anyMatches(patterns []string, pkg string) bool {
	for _, pattern := range patterns {
		if matches(pattern, pkg) {
			return true
		}
	}
	return false
}

// floor is the position of a package in the stack, lowest 0, or -1 when it
// stands beside it. An exact pattern decides before a longer one, and that
// before a shorter one.
func floor(pkg string) int {
	best, length := -1, 0
	for i, l := range stack {
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

func isTooling(pkg string) bool { return matches(tooling, pkg) && floor(pkg) < 0 }

func isSink(pkg string) bool { return pkg != "telemetry" && matches(sinks, pkg) }

// house is the part of a layer that keeps together: transport/stdio and what
// is below it are one house, transport/sse is another.
func house(pkg string) string {
	parts := strings.SplitN(pkg, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// forbidden says why from may not import to, or "".
func forbidden(from, to string) string {
	low, high := floor(to), floor(from)
	switch {
	case matches(suites, to) && !matches(suites, from):
		return "property suites are for tests; a program must not carry them"
	case isTooling(to) && !isTooling(from) && !matches(commands, from):
		return "tooling is for tests and commands, not for a library"
	case isTooling(from):
		return ""
	case isSink(from) && to != "telemetry" && house(from) != house(to):
		return "a sink knows the events and its own library, nothing else"
	case isSink(from):
		return ""
	case isSink(to) && !matches(commands, from) && !matches(shown, from):
		return "whoever imports it would make every user compile the sink's library"
	case matches(suites, from) && low > floor("supervisor"):
		return "the suites check runtimes, so they reach up to supervisor and no further"
	case matches(suites, from):
		return ""
	case high < 0:
		return "" // the rule place reports it
	case high < low:
		return "imports run downwards only"
	case high == low && stack[high].apart && house(from) != house(to):
		return "packages of this layer stand beside each other; what they share belongs below"
	}
	return ""
}
