package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"

	"github.com/bowline-mcp/bowline/protocol"
)

// A contestant is an implementation in one revision, and always client and
// server of the same.
type contestant struct {
	name     string // as in the tables
	revision string
	slow     bool // a quick run has less of it
	implementation
}

// An implementation is what a contestant can do. Nil fields it cannot.
type implementation struct {
	// memory makes a server in this process.
	memory func(revision string, o serving) dial

	// stdio opens a session with a child that runs serveStdio.
	stdio      func(ctx context.Context, revision string, command []string) (*session, error)
	serveStdio func(context.Context) error

	// http opens a session with a child that serves handler, or runs serveHTTP.
	http      func(ctx context.Context, revision, url string) (*session, error)
	handler   func(revision string) http.Handler
	serveHTTP func(net.Listener) error

	// asksToken is set if the child asks for a token of the file tokensOfChild.
	asksToken bool

	// program is the command of a program of others, which listens at an address and has the server as its child.
	program func(host, port string, server []string) []string
}

// serving is what a server in memory does beyond echo.
type serving struct {
	tools    int    // to list, beside its own
	notified func() // called for each notification of the client; nil: there are none
	received func() // called by the client for each notification of the server; nil: there are none
	parks    int    // how many calls may be parked
	many     bool   // it has many clients, which are idle most of the time
}

// A dial opens a session.
type dial func(context.Context) (*session, error)

// A session is what a row works with. Its calls may overlap. Those that are nil
// its contestant cannot make.
type session struct {
	// echo prepares a call that fails if its answer is not the text.
	echo func(text string) call

	// list lists all tools.
	list func(ctx context.Context) (tools int, err error)

	// notify sends a notification, and waits while there is no room for it.
	notify func(ctx context.Context) error

	// park calls a tool that answers when its context ends.
	park func(ctx context.Context) error

	// fetch calls a tool whose result is a text of so many bytes.
	fetch func(ctx context.Context, bytes int) error

	// flood calls a tool that sends so many notifications, as fast as the
	// connection takes them, before it answers.
	flood func(ctx context.Context, notifications int) error

	close func() error
}

const (
	legacy = protocol.LatestLegacy
	modern = protocol.Latest
)

// The names of the contestants. Ratios are of the floor.
const (
	theFloor         = "floor"
	floorOfFrames    = "floor, frames handed over"
	floorByHand      = "floor, by hand"
	bowlineRaw       = "Bowline, raw arguments"
	bowlineTyped     = "Bowline"
	bowlineModern    = "Bowline, " + modern
	bowlineEvents    = "Bowline, answers as events"
	bowlineOwnHTTP   = "Bowline, with a program's own http.Server and http.Client"
	bowlineHooks     = "Bowline, hooks with metrics"
	bowlineMetrics   = "Bowline, hooks and middleware with metrics"
	bowlineUnsampled = "Bowline, trace not sampled"
	bowlineSampled   = "Bowline, trace sampled"
	bowlineInCluster = "Bowline, in a cluster"
	bowlineProxied   = "Bowline, behind a reverse proxy"
	bowlineForwarded = "Bowline, at another node"
	bowlineStdio     = "Bowline, standard input and output"
	bowlineBoth      = "Bowline, HTTP and then standard input and output"
	bowlineBothOfTen = "Bowline, HTTP and then standard input and output, ten servers"
	theRelay         = "floor, a relay"
	bowlineGateway   = "Bowline, gateway"
	gatewayModern    = "Bowline, gateway, " + modern
	gatewayUp        = "Bowline, gateway, " + legacy + " to " + modern
	gatewayDown      = "Bowline, gateway, " + modern + " to " + legacy
	gatewayGuarded   = "Bowline, gateway of a team"
	npmMCPProxy      = "npm mcp-proxy"
	goSDKLegacy      = "go-sdk"
	goSDKModern      = "go-sdk, " + modern
	mcpGoLegacy      = "mcp-go"
	mcpGoModern      = "mcp-go, " + modern
	mcpGoInside      = "mcp-go, in process"
)

// arguments are those of the tool echo.
type arguments struct {
	Message string `json:"message"`
}

type nothing struct{}

// many is the argument of the tool flood.
type many struct {
	Count int `json:"count"`
}

// foundText is a text of so many bytes, as tools find them: lines with quotes, and with letters beyond ASCII.
func foundText(bytes int) string {
	const line = "12:04:31 \"Größe\" of süden\\42 — 3,5 µm, see https://example.com/a?b=c&d=e\n"
	return strings.Repeat(line, bytes/len(line)) + strings.Repeat(".", bytes%len(line))
}

func sameText(got, want string) error {
	if got != want {
		return fmt.Errorf("the answer to a text of %d bytes is another of %d: %.80q", len(want), len(got), got)
	}
	return nil
}

// A call is made any number of times, at once too.
type call func(context.Context) error

// newPool keeps as many connections as callers need: the same for all clients in
// Go, so that none is measured by the pool it has by default.
func newPool() *http.Transport { return &http.Transport{MaxIdleConnsPerHost: 64} }

// What is listed is a thousand tools of this shape.
func toolName(i int) string { return fmt.Sprintf("tool-%04d", i) }

const (
	toolDescription = "Searches the archive for documents that match a query, newest first, and returns their titles."
	toolSchema      = `{"type":"object","properties":{` +
		`"query":{"type":"string","description":"what to look for"},` +
		`"from":{"type":"string","format":"date-time","description":"no document older than this"},` +
		`"limit":{"type":"integer","minimum":1,"maximum":100,"description":"how many documents"},` +
		`"fields":{"type":"array","items":{"type":"string"},"description":"which fields to return"}},` +
		`"required":["query"]}`
)

// missing says what has to be installed before the contestant can be measured; "" if nothing.
func (c contestant) missing() string {
	if c.program == nil {
		return ""
	}
	name := c.program("", "", nil)[0]
	if _, err := exec.LookPath(name); err != nil {
		return name + " was not in PATH"
	}
	return ""
}
