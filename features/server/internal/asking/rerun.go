package asking

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A Rerun is the courier for one round of a feature that uses Reruns. It never waits: the first question without an answer ends
// the run, whose result is dropped. Everything that the handler asks after that fails, so that a client is asked only what its
// answers so far have led to.
//
// The handler must ask the same in each run. What it has asked in this run is therefore kept apart from what the call has asked: if a
// key stands for two questions in one run, that is the program's mistake and an error for the handler; if it stands for
// another one than in an earlier run, the call ends, whatever the handler makes of the error.
type Rerun struct {
	Conversation // the questions of all rounds; number is that of this run

	caller Caller
	mu     sync.Mutex
	now    Exchange               // the questions of this run
	open   protocol.InputRequests // questions of this run that have no answer yet
	broken error                  // an error that ends the call, whatever the handler returns
	end    context.CancelCauseFunc
}

// NewRerun returns the questioner of a round. Before is what was asked in earlier ones, early what was answered there and with
// this one.
func NewRerun(c Caller, before map[string]Digest, early ...protocol.InputResponses) *Rerun {
	a := new(Rerun)
	a.caller = c
	a.Begin(a)
	a.Resume(before)
	// What came last wins. It is not only for the first questions: any of the run may have its answer there.
	if len(early) > 0 {
		all := make(protocol.InputResponses)
		for _, some := range early {
			maps.Copy(all, some)
		}
		a.SetEarly(all, false)
	}
	return a
}

// RunAgain runs the handler once, from its beginning. The numbers of its questions begin anew, so that the same question has the
// same key. Goroutines of an earlier run must not ask any more: they would take numbers of this one.
func RunAgain[R any](ctx context.Context, a *Rerun, run func(context.Context) (R, error)) (R, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	a.mu.Lock()
	a.open, a.end = nil, end
	a.now.Forget()
	// The keys are the numbers, so each run must count from the same one.
	a.number.Store(0)
	a.mu.Unlock()
	result, err := run(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	// The handler may have made a result of the error. Ask refuses the questions of a broken call, so none is open.
	if a.broken != nil {
		return *new(R), a.broken
	}
	return result, err
}

// Ask implements Questioner.
// It takes the place of that of the Conversation: the mutex is the turn, since nothing here waits. The questions of
// this run are recorded first: a key for two of them is an error of the handler, which may go on.
func (a *Rerun) Ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil || len(a.open) > 0 {
		return nil, cmp.Or(a.broken, ErrInputRequired)
	}
	asked, err := a.Fitting(asked)
	if err != nil {
		return nil, err
	}
	if _, err := a.now.Ask(asked, nil); err != nil {
		return nil, err
	}
	answers, err := a.askFitting(ctx, asked)
	switch {
	case errors.Is(err, ErrKeyUsed): // in another round, this key had a different question
		return nil, a.stop(refusal.New(jsonrpc.CodeInternalError, "the handler asks differently when it runs again: %v", err))
	case errors.As(err, new(*AnswerError)):
		return nil, a.stop(err)
	}
	return answers, err
}

// Fitting implements Courier.
func (a *Rerun) Fitting(asked protocol.InputRequests) (protocol.InputRequests, error) {
	return a.caller.Fitting(asked)
}

// Open returns the questions that have ended the run; none if the handler has returned.
func (a *Rerun) Open() protocol.InputRequests { return a.open }

// Deliver ends the run. The questions are asked when the handler has returned.
func (a *Rerun) Deliver(_ context.Context, open protocol.InputRequests) (protocol.InputResponses, error) {
	a.open = open
	a.end(ErrInputRequired)
	return nil, ErrInputRequired
}

// stop ends the call with an error.
func (a *Rerun) stop(err error) error {
	a.broken = err
	a.end(err)
	return err
}
