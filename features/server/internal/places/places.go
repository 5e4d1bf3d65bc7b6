// Package places is what handlers share that outlive their request: those of tasks, and those that wait for an answer
// of their client. A handler has a place from before it runs until nothing of it is left, or it does not run at all.
// At its end a server waits for all of them, and names those that do not return.
//
// Places may be used by any goroutine. WhenDone starts one of its own, which ends with the last handler.
package places

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/internal/share"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// Places are a number of handlers, and the bytes of their requests.
type Places struct{ Handlers, Bytes *share.Pool }

// Piece returns how many bytes of such a pool each client has for sure. Less than 16 MiB go to whom comes first, unless that is the default.
func Piece(bytes, byDefault int) int {
	if bytes < min(16<<20, byDefault) {
		return bytes
	}
	return 64 << 10
}

// Enter takes a place for a call whose request takes so much memory. A request that takes more than its client ever
// gets counts that, so it is served when nobody else holds much.
// It takes all or nothing, and never waits: a handler that is refused has had no effect, and its client may try
// again.
func (p Places) Enter(of share.Client, bytes int) error {
	bytes = p.fit(of, bytes)
	if !p.Handlers.Take(of, 1) {
		return refusal.New(jsonrpc.CodeOverloaded, "overloaded: %d handlers are running, and %s", p.Handlers.Held(), p.Handlers.Refused(1))
	}
	if !p.Bytes.Take(of, bytes) {
		p.Handlers.Give(of, 1)
		return refusal.New(jsonrpc.CodeOverloaded, "overloaded: the requests of running handlers hold %d bytes, and %s", p.Bytes.Held(), p.Bytes.Refused(bytes))
	}
	return nil
}

// Leave gives a place back. It must not be called twice for one Enter: then others would get more than there is.
func (p Places) Leave(of share.Client, bytes int) {
	p.Handlers.Give(of, 1)
	p.Bytes.Give(of, p.fit(of, bytes))
}

func (p Places) fit(of share.Client, bytes int) int {
	if p.Bytes.Limit() < 16<<20 { // a program that sets so little means what it says
		return bytes
	}
	return p.Bytes.Fit(of, bytes)
}

// Await waits for handlers until the deadline of ctx, and at least for the grace.
// It returns the names of those that are still running.
// The handlers are not ended here; whoever calls has done that. The goroutine that waits for them may outlive Await.
func Await(ctx context.Context, grace time.Duration, running *sync.WaitGroup, names func() []string) []string {
	over := WhenDone(running)
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-over:
		return nil
	case <-patience.C:
	}
	if _, bounded := ctx.Deadline(); bounded {
		select {
		case <-over:
			return nil
		case <-ctx.Done():
		}
	}
	return slices.Sorted(slices.Values(names()))
}

// WhenDone returns a channel that is closed when the group is done. Its goroutine ends then,
// perhaps long after the caller.
func WhenDone(group *sync.WaitGroup) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	return done
}
