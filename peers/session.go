package peers

import (
	"context"
	"fmt"
)

// A Session is a client's session with a server, whoever wrote the client.
// Its calls may overlap, except those of the TypeScript client.
type Session interface {
	// Revision is the one that initialize has negotiated.
	Revision() string

	Ping(ctx context.Context) error

	// ListTools fetches the names on one page of tools, and the cursor of the
	// next. The first page's cursor is empty, and so is the last one's next.
	ListTools(ctx context.Context, cursor string) (names []string, next string, err error)

	// CallTool fails with a *ProtocolError when the server has answered with one.
	CallTool(ctx context.Context, call Call) (*Result, error)

	// Close ends the session and waits for the server's process.
	Close(ctx context.Context) error
}

// A Connect starts a server and opens a session with it in a revision.
type Connect func(ctx context.Context, server []string, revision string) (Session, error)

// A Call is a call of a tool.
type Call struct {
	Tool       string
	Arguments  map[string]any
	OnProgress func() // nil: no progress is asked for
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
