package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"

	"github.com/bowline-mcp/bowline/features/server"
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

	// before puts something between a client and a server in this process; nil: nothing.
	before func(s *server.Server) (*server.Server, error)

	// asksToken is set if the child asks for a token of the file tokensOfChild.
	asksToken bool

	// agent is the package of a program that does agentWork.
	agent string

	// program is the command of a program of others, which listens at an address and has the server as its child.
	program func(host, port string, server []string) []string
}

// agents are the programs that do agentWork.
const agents = "github.com/bowline-mcp/bowline/peers/cmd/agents/"

// serving is what a server in memory does beyond echo.
type serving struct {
	tools     int    // to list, beside its own
	resources int    // to list
	schema    int    // bytes of the schema of one of its own tools
	notified  func() // called for each notification of the client; nil: there are none
	received  func() // called by the client for each notification of the server; nil: there are none
	parks     int    // how many calls may be parked
	many      bool   // it has many clients, which are idle most of the time
}

// A dial opens a session.
type dial func(context.Context) (*session, error)

// A session is what a row works with. Its calls may overlap. Those that are nil
// its contestant cannot make.
type session struct {
	// echo prepares a call that fails if its answer is not the text.
	echo func(text string) call

	// order prepares a call that fails if its answer is not the same nested object.
	order func(o order) call

	// list lists all tools.
	list func(ctx context.Context) (tools int, err error)

	// wide calls the tool with the schema of serving.
	wide call

	// resources lists all resources.
	resources func(ctx context.Context) (int, error)

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

// An order is nested objects: the argument of the tool order, and its result.
type order struct {
	Customer customer `json:"customer"`
	Lines    []line   `json:"lines"`
}

type customer struct {
	Name    string   `json:"name"`
	Address address  `json:"address"`
	Tags    []string `json:"tags"`
}

type address struct {
	Street string    `json:"street"`
	City   string    `json:"city"`
	Place  []float64 `json:"place"`
}

type line struct {
	Article string            `json:"article"`
	Count   int               `json:"count"`
	Price   float64           `json:"price"`
	Options map[string]string `json:"options"`
	Gift    bool              `json:"gift"`
}

// orderOf is an order of about so many bytes.
func orderOf(bytes int) order {
	o := order{Customer: customer{"Ada Lovelace", address{"St James's Square 12", "London", []float64{51.5076, -0.1356}}, []string{"new", "abroad"}}}
	for i := range bytes / 100 {
		o.Lines = append(o.Lines, line{fmt.Sprintf("part-%04d", i), i % 7, 0.25 * float64(i), map[string]string{"colour": "red", "size": "12"}, i%2 == 0})
	}
	return o
}

// sameOrder compares what its contestants decode by themselves.
func sameOrder(got, want order) error {
	if got.Customer.Name != want.Customer.Name || len(got.Lines) != len(want.Lines) || got.Lines[len(got.Lines)-1].Price != want.Lines[len(want.Lines)-1].Price {
		return fmt.Errorf("the answer to an order of %d lines is another of %d", len(want.Lines), len(got.Lines))
	}
	return nil
}

// orderInText prepares the call of a client that knows no type of results, so that a program finds the order in the text.
func orderInText(callTool func(ctx context.Context, tool string, arguments any) (string, error)) func(order) call {
	return func(o order) call {
		return func(ctx context.Context) error {
			text, err := callTool(ctx, "order", o)
			if err != nil {
				return err
			}
			var got order
			return cmp.Or(json.Unmarshal([]byte(text), &got), sameOrder(got, o))
		}
	}
}

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
