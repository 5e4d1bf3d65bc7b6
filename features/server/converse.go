package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/protocol"
)

// An invocation is one request for a feature whose handler may ask.
// How its questions reach the client depends on the era and on the feature (ADR-0031):
//
//	             legacy                              modern
//	Waits        direct: a request for each           asking.Waiting: the handler stays between two rounds
//	Reruns       asking.Rerun, and direct for each    asking.Rerun: one run in each round
//	returns      repeat: direct, and another run      require: the next round runs the handler anew
//	InputRequired
//
// For a feature with Asks, the first thing is to check what the client can be asked: the handler must not have had
// any effect when that turns out to be missing (G-0031.3).
type invocation[R any] struct {
	of    *settings
	given *protocol.InputParams            // what the client has answered
	about asking.Subject                   // what the request is about
	run   func(context.Context) (R, error) // the handler
}

// converse runs the handler. It returns the handler's result, or the questions that the
// client must answer first.
func converse[R any](ctx context.Context, c *call, i invocation[R]) (result R, required *protocol.InputRequired, err error) {
	if c.asked == nil {
		c.asked = new(asked)
	}
	if i.of.asking != nil {
		if err := i.of.asking.checkClient(c.Client); err != nil {
			return result, nil, err
		}
	}
	if c.modern {
		return converseModern(ctx, c, i)
	}
	rs := c.peer.server.askingCalls
	if i.of.asking == nil {
		result, err = i.run(ctx)
	} else {
		bounded, cancel := rs.BoundCall(ctx)
		defer cancel()
		ctx = bounded
		result, err = converseLegacy(ctx, c, i)
	}
	// Any handler may return InputRequired. Without Asks, the time of the call begins only now; with it, ctx has its end already.
	if requiresInput(err) {
		ctx, cancel := rs.BoundCall(ctx)
		defer cancel()
		result, err = repeat(ctx, c, result, err, i.run)
	}
	return result, nil, err
}

// converseLegacy runs the handler for a legacy client. Its questions are requests.
func converseLegacy[R any](ctx context.Context, c *call, i invocation[R]) (result R, err error) {
	if i.of.asking.how == Waits {
		c.asked.questioner = newDirect(c)
		return i.run(ctx)
	}
	a := asking.NewRerun(c, nil)
	c.asked.questioner = a
	questions := newDirect(c)
	// Everything stays in this process, so no state is sealed. The answers are kept by a; questions counts the rounds
	// of all runs.
	for result, err = asking.RunAgain(ctx, a, i.run); len(a.Open()) > 0; result, err = asking.RunAgain(ctx, a, i.run) {
		answers, err := questions.Ask(ctx, a.Open())
		if err != nil {
			return *new(R), err
		}
		a.Answer(answers)
	}
	return result, err
}

// repeat asks what a legacy handler has returned as InputRequired, and runs the handler
// again.
func repeat[R any](ctx context.Context, c *call, result R, err error, run func(context.Context) (R, error)) (R, error) {
	var none R
	questions := newDirect(c)
	for {
		var required *InputRequired
		if !errors.As(err, &required) {
			return result, err
		}
		// In the modern revision this means: come again with the state. A legacy client cannot.
		if len(required.Requests) == 0 {
			return none, errors.New("busy, try again")
		}
		questions.Forget() // in the next round, the same key may have another question
		answers, failed := questions.Ask(ctx, required.Requests)
		if failed != nil {
			return none, failed
		}
		// The handler does not run now, so nobody reads these meanwhile.
		c.Answers = answers
		if c.asked.state, failed = required.state(); failed != nil {
			return none, failed
		}
		result, err = run(ctx)
	}
}

// state returns the encoded State; nil if there is none.
func (r *InputRequired) state() (json.RawMessage, error) {
	if r.State == nil {
		return nil, nil
	}
	return protocol.Marshal(r.State)
}

// converseModern serves one round. Whatever the client presents is refused here before the handler runs, or goes on.
func converseModern[R any](ctx context.Context, c *call, i invocation[R]) (result R, required *protocol.InputRequired, err error) {
	rs, waits := c.peer.server.askingCalls, i.of.asking != nil && i.of.asking.how == Waits
	st, answers := rs.First(), i.given.InputResponses
	if i.given.RequestState != nil {
		if st, answers, err = rs.Open(ctx, i.about, i.given); err != nil {
			return result, nil, err
		}
		c.asked.id = st.Call
		// The last check, because it uses the state up. For a call that waits, Resume does that.
		if err := rs.MayGoOn(ctx, st, waits); err != nil {
			return result, nil, err
		}
	}
	// Also a handler with Waits may return InputRequired. Then nothing of it waits, and the next round runs it anew.
	if waits && (i.given.RequestState == nil || st.Process != "" && !st.Again) {
		return converseWaiting(ctx, c, i, st, answers)
	}
	return converseRound(ctx, c, i, st, answers)
}

// converseRound runs the handler from its beginning. If it asks, its result is dropped.
func converseRound[R any](ctx context.Context, c *call, i invocation[R], st *asking.State, answers protocol.InputResponses) (result R, required *protocol.InputRequired, err error) {
	rs := c.peer.server.askingCalls
	c.Answers, c.asked.state = answers, st.Own
	var a *asking.Rerun // nil if the handler must not ask
	if i.of.asking != nil && i.of.asking.how == Reruns {
		a = asking.NewRerun(c, st.Asked, st.Answers, answers)
		c.asked.questioner = a
		result, err = asking.RunAgain(ctx, a, i.run)
	} else {
		result, err = i.run(ctx)
	}
	// The call stays the same: its id, and its end. Only what was asked is new.
	next := &asking.State{Call: c.CallID(), Round: st.Round, End: st.End}
	var requires *InputRequired
	switch {
	case errors.As(err, &requires):
		required, err = c.require(i.about, next, requires)
		return *new(R), required, err
	case a != nil && len(a.Open()) > 0:
		next.Asked, next.Answers = a.Asked(), a.Known()
		required, err = rs.Ask(i.about, next, a.Open())
		return *new(R), required, err
	default:
		return result, nil, err
	}
}

// converseWaiting starts the handler of a call that waits, or brings the answers to it, and serves the round until it asks or returns.
func converseWaiting[R any](ctx context.Context, c *call, i invocation[R], st *asking.State, answers protocol.InputResponses) (own R, required *protocol.InputRequired, err error) {
	var w *asking.Waiting
	var result any // rounds keep the waiting calls of all features together, so they know nothing of the types of results
	if rs := c.peer.server.askingCalls; i.given.RequestState != nil {
		w, result, required, err = rs.Resume(ctx, c, st, answers)
	} else {
		c.Answers = answers // of a client that knows the questions already
		if w, err = rs.Begin(c, i.about, c.client(), c.size, answers); err != nil {
			// So that a record says that the call was refused, and not that it has failed.
			c.noPlace = true
			return own, nil, err
		}
		// Only its values go on. The call has an end of its own, and the request ends with its round.
		first := context.WithoutCancel(ctx)
		w.Run(func(ctx context.Context) (any, error) { return i.run(waitingContext{ctx, first, w}) })
		result, required, err = w.Await(ctx)
	}
	if requires := (*InputRequired)(nil); errors.As(err, &requires) {
		required, err = c.require(i.about, w.State(), requires)
		return own, required, err
	}
	own, _ = result.(R)
	return own, required, err
}

// require ends a round with the InputRequired that the handler returned.
func (c *call) require(about asking.Subject, next *asking.State, required *InputRequired) (*protocol.InputRequired, error) {
	own, err := required.state()
	if err != nil {
		return nil, err
	}
	return c.peer.server.askingCalls.Require(c, about, next, required.Requests, own, required.Here)
}

// A waitingContext is the context of a handler that waits. It ends with the call, not
// with a round. It has the values of the first round, but its Request is that of the
// present round.
type waitingContext struct {
	context.Context
	first   context.Context
	waiting *asking.Waiting
}

// Value shows a request that is complete: before a call waits, its _meta was added.
func (c waitingContext) Value(key any) any {
	if key == (requestKey{}) {
		return &c.waiting.Round().(*call).Request
	}
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.first.Value(key)
}

// Fitting implements asking.Caller.
func (c *call) Fitting(asked protocol.InputRequests) (protocol.InputRequests, error) {
	return c.Client.fitting(asked)
}

// Guarded implements asking.Caller.
func (c *call) Guarded(where string, f func() error) error { return c.peer.guarded(where, f) }

// Joined implements asking.Caller.
// It is called before the handler can see the request.
func (c *call) Joined(q asking.Questioner, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked.questioner, c.asked.id = q, id
}

func questionerFrom(ctx context.Context) (asking.Questioner, error) {
	r := RequestFrom(ctx)
	switch {
	case r == nil:
		return nil, ErrNoRequest
	case r.call.asked == nil || r.call.asked.questioner == nil:
		return nil, ErrNotAsking
	default:
		return r.call.asked.questioner, nil
	}
}

// direct is the courier of the legacy revisions: a question is a request on the stream of the call. What fits
// the client is the call's own Fitting.
// One serves all runs of a handler that Reruns, so that its rounds are counted together.
type direct struct {
	asking.Conversation
	*call
}

func newDirect(c *call) *direct {
	d := &direct{call: c}
	d.Begin(d)
	return d
}

// Deliver asks the client, unless the call has already asked too often.
func (d *direct) Deliver(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error) {
	if before, may := d.Round(d.peer.server.askingCalls.MaxRounds()); !may {
		return nil, fmt.Errorf("%w: the call has asked %d times already", ErrUnanswered, before)
	}
	return d.askClient(ctx, open)
}
