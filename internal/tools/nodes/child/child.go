// Package child is a server behind the gateways of a cluster, for faults of these: it writes down which calls it has executed, and notices what must not be.
//
// One goroutine of its own waits for the end of standard input; Run returns after it.
package child

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/private"
	"github.com/bowline-mcp/bowline/internal/tools/nodes/marks"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport/stdio"
)

// Variables of the environment.
const (
	Variable  = "BOWLINE_NODES_CHILD"  // says what the process is: One, Own, or nothing of this
	Ledger    = "BOWLINE_NODES_LEDGER" // the file for marks
	Lock      = "BOWLINE_NODES_LOCK"   // the file that One locks
	Violation = "BOWLINE_NODES_WRONG"  // the file for what must not be
)

// One is the server of which the cluster has one, Own the server of which each user has his own at each node.
const (
	One = "one"
	Own = "own"
)

// The tools of both do the same. A persona forbids Erase to most users.
const (
	Tool  = "mark"
	Erase = "erase"
)

// Arguments are those of the tool.
type Arguments struct {
	marks.Arguments
	User string `json:"user"`
}

// Run serves on standard input and output until that ends.
func Run(kind string) error {
	ledger, err := marks.Open(os.Getenv(Ledger))
	if err != nil {
		return err
	}
	defer ledger.Close()
	c := &child{ledger: ledger}
	if kind == One {
		// The lock ends with the process, however that ends: whoever finds it taken runs beside a server that lives.
		if c.lock, err = private.Lock(os.Getenv(Lock)); err != nil {
			return wrong("another process runs: %v", err)
		}
		defer func() { _ = private.Unlock(c.lock) }()
	}
	s := server.New(protocol.Implementation{Name: kind, Version: "1"}, server.Options{})
	c.addTools(s)
	return s.Serve(context.Background(), &stdio.Server{})
}

func (c *child) addTools(s *server.Server) {
	for _, name := range []string{Tool, Erase} {
		server.AddTool(s, protocol.Tool{Name: name, Description: "Writes the id of the call to a file."}, c.mark)
	}
}

// wrong writes down what must not be.
func wrong(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	file, openErr := marks.Open(os.Getenv(Violation))
	if openErr != nil {
		return openErr
	}
	defer file.Close()
	if _, writeErr := fmt.Fprintf(file, "process %d: %v\n", os.Getpid(), err); writeErr != nil {
		return writeErr
	}
	return err
}

type child struct {
	ledger io.Writer
	lock   *os.File // nil: this server is not alone

	mu   sync.Mutex
	user string // whose calls this process has had
}

// mark executes a call. A process that has a user's calls must get none of another: it would know what the other has stored.
func (c *child) mark(ctx context.Context, in Arguments) (string, error) {
	c.mu.Lock()
	// One is shared by all users, and has the lock.
	if c.lock == nil && c.user != "" && c.user != in.User {
		defer c.mu.Unlock()
		return "", wrong("a call of %s comes to the process of %s", in.User, c.user)
	}
	c.user = in.User
	c.mu.Unlock()
	return marks.Do(ctx, c.ledger, in.Arguments)
}
