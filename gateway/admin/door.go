package admin

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/gateway/audit"
)

// A Gateway is what the door shows and does. All its methods may be called at the same time.
type Gateway interface {
	// Report returns what is known now, without waiting for anything. The caller does not change it.
	Report() Report

	// Detail returns more of a server; ok is false if there is no such server. It never waits.
	Detail(server string) (d Detail, ok bool)

	// Changed returns a channel that is closed when Report may say something else. The door calls it before Report.
	Changed() <-chan struct{}

	// Do does something to a server. It fails with ErrNoServer, or with an error for people.
	Do(ctx context.Context, server string, action Action) error

	// Call calls a tool by the name that clients use, as a client of its own: with their limits, and in their sight. The result is that of tools/call.
	Call(ctx context.Context, tool string, arguments json.RawMessage) (result json.RawMessage, err error)

	// Pins returns the tools that are not as they were approved. It never waits.
	Pins() []Pin

	// Approve approves tools of a server as they are now, or all that have changed if none is named. One that is named with an @ and the Version of its Pin must still be
	// that. It fails as Do does.
	Approve(ctx context.Context, server string, tools ...string) error

	// Logout ends the login of a user, by an identity, at a server: it is removed and revoked, and the user's connections end. It fails as Do does.
	Logout(ctx context.Context, server, user string) error

	// Reload reads the file again. If that fails, nothing has changed.
	Reload(ctx context.Context) error

	// End begins to end the gateway, and does not wait. It is reached by the socket only.
	End()

	// Records returns the newest records of the audit trail, the oldest first, and a channel that is closed when there is another one; ok is false if there is no
	// trail. It never waits. A *audit.Trail has them.
	Records() (records []audit.Record, changed <-chan struct{}, ok bool)

	// Stderr returns the last lines of a child's standard error; ok is false if there is no such server.
	Stderr(server string) (log Log, ok bool)
}

// A Clustered is a Gateway that is one of a cluster.
type Clustered interface {
	Gateway

	// Nodes returns the name of this gateway, and what is known of the others, without changing it later. It asks them if what is known is some seconds old, and waits for that until ctx ends. Report may say
	// something else, and Changed tells of it, as long as Nodes is called every few seconds.
	Nodes(ctx context.Context) (self string, others []NodeReport)

	// Move has a node of the cluster run a server of which the cluster has one, and returns when it is ready there. It fails with an error for people.
	Move(ctx context.Context, server, node string) error
}

// A Log is a bounded list of lines, of which the oldest go first. A [Tail] is one.
type Log interface {
	// Read returns the lines after a number, the number of the last line, and a channel that is closed when there
	// is another line. Lines that have gone are left out.
	Read(after uint64) (lines []string, last uint64, changed <-chan struct{})
}

// An Action is what can be done to a server.
type Action string

// The actions. Stop holds until Start or a change of the file; Wake ends the wait for the next attempt.
const (
	Restart Action = "restart"
	Stop    Action = "stop"
	Start   Action = "start"
	Wake    Action = "wake"
)

// ErrNoServer means that the file has no such server.
var ErrNoServer = errors.New("no such server")

const (
	// MaxViewers is how many streams of events may be open at each entrance, and how many more by those who have no token.
	MaxViewers = 64

	actTime   = 30 * time.Second // for an action
	moveTime  = time.Minute      // for a move from node to node, which has a bound of its own
	nodesTime = 2 * time.Second  // for other gateways of a cluster
	writeTime = 5 * time.Second  // for a viewer to read, and for one who acts to send
	maxForm   = 256 << 10        // bytes
)

// A Door shows a gateway and passes actions on to it.
type Door struct {
	gateway Gateway
	closing chan struct{}
	once    sync.Once
	codes   codes
}

// New returns a Door to a gateway.
func New(g Gateway) *Door { return &Door{gateway: g, closing: make(chan struct{})} }

// Close ends all streams, so that a http.Server can shut down. Streams that begin later end at once.
func (d *Door) Close() { d.once.Do(func() { close(d.closing) }) }
