package peers

import (
	"context"
	"fmt"
	"net/http"
)

// A Session is a session of any of the clients with a server.
// Its calls may overlap, except those of the TypeScript client.
type Session interface {
	// Revision is the one that the session speaks.
	Revision() string

	Ping(ctx context.Context) error

	// ListTools fetches the names on one page of tools, and the cursor of the
	// next. The first page's cursor is empty, and so is the last one's next.
	ListTools(ctx context.Context, cursor string) (names []string, next string, err error)

	// CallTool fails with a *ProtocolError when the server has answered with one.
	CallTool(ctx context.Context, call Call) (*Result, error)

	// ToolsChanged waits until the server has announced, since the last time,
	// that its tools have changed.
	ToolsChanged(ctx context.Context) error

	// Close ends the session. Over standard input and output it waits for the
	// server's process.
	Close(ctx context.Context) error
}

// An Endpoint is where a server is: a command that runs one, or a URL.
type Endpoint struct {
	Command []string
	URL     string // empty: run Command
}

// newPool returns a pool that keeps as many connections as the callers need. All
// clients in Go use the same, so that the comparison does not measure their
// default pools.
func newPool() *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 64}
}

// A Connect opens a session with a server in a revision.
type Connect func(ctx context.Context, server Endpoint, revision string) (Session, error)

// A Call is a call of a tool.
type Call struct {
	Tool       string
	Arguments  map[string]any
	OnProgress func() // may run after the call has ended; nil: the call asks for no progress
}

// A Result is what a tool has answered.
type Result struct {
	Text    string
	IsError bool
}

// A ProtocolError is the server's answer to a request it refuses.
type ProtocolError struct {
	Code    int64
	Message string
}

func (e *ProtocolError) Error() string { return fmt.Sprintf("error %d: %s", e.Code, e.Message) }
