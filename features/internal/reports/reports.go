// Package reports sends and reads the progress reports of a request.
package reports

import (
	"context"
	"encoding/json"
	"math"
	"sync"

	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// mostUnsent limits the reports that wait.
const mostUnsent = 16

// Reports are the progress reports of one request. They reach the peer in order, and before the answer, and whoever
// reports never waits.
type Reports struct {
	request context.Context
	token   jsonrpc.ID
	send    func(context.Context, *protocol.ProgressParams)

	mu      sync.Mutex
	over    bool           // the request is answered
	sends   bool           // a goroutine is sending the unsent reports
	unsent  []report       // reports that wait, oldest first
	highest float64        // the greatest progress that was reported so far
	sending sync.WaitGroup // waits for that goroutine
}

// A report is what the program reported, and the context in which it did.
type report struct {
	ctx    context.Context
	params *protocol.ProgressParams
}

// A reportContext ends with the request. It has the values of the context in which the program
// reported, so that the report belongs to the trace of the handler.
type reportContext struct {
	context.Context
	values context.Context
}

func (c reportContext) Value(key any) any { return c.values.Value(key) }

// New returns the reports of a request whose peer has given a token. Send sends one. It is called on one goroutine at a
// time, and must not panic; its context ends with that of the request.
func New(request context.Context, token jsonrpc.ID, send func(context.Context, *protocol.ProgressParams)) *Reports {
	return &Reports{request: request, token: token, send: send, highest: math.Inf(-1)}
}

// Add reports progress, which must grow. It may be called by any goroutine, also after End: then it does nothing.
func (r *Reports) Add(ctx context.Context, done, total float64, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || done <= r.highest || math.IsNaN(done) {
		return
	}
	r.highest = done
	// The newest replaces the last one that waits: a peer that reads slowly wants to know how far the request is, and
	// not how it got there.
	if len(r.unsent) == mostUnsent {
		r.unsent = r.unsent[:mostUnsent-1]
	}
	params := &protocol.ProgressParams{ProgressToken: r.token, Progress: done, Total: total, Message: message}
	r.unsent = append(r.unsent, report{reportContext{r.request, ctx}, params})
	// Under the mutex, like over: End has set that before it waits, so no goroutine begins behind its back.
	if !r.sends {
		r.sends = true
		r.sending.Go(r.sendAll)
	}
}

// sendAll sends reports until none waits.
// It holds no mutex while it sends, because middleware runs then, which may report progress itself.
func (r *Reports) sendAll() {
	for {
		r.mu.Lock()
		if len(r.unsent) == 0 {
			r.sends = false
			r.mu.Unlock()
			return
		}
		oldest := r.unsent[0]
		r.unsent = r.unsent[1:]
		r.mu.Unlock()
		r.send(oldest.ctx, oldest.params)
	}
}

// End sends what waits, and returns when nothing follows any more.
func (r *Reports) End() {
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	r.sending.Wait()
}

// To returns a function that reads the params of a report and calls tell. Malformed reports are ignored.
func To(tell func(*protocol.ProgressParams)) func(json.RawMessage) {
	return func(params json.RawMessage) {
		var progress struct {
			protocol.ProgressParams
			Progress *float64 `json:"progress"` // a pointer, because the member may be absent
		}
		if protocol.Unmarshal(params, &progress) != nil || progress.Progress == nil {
			return
		}
		progress.ProgressParams.Progress = *progress.Progress
		tell(&progress.ProgressParams)
	}
}
