package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// An invocation is one request for a feature whose handler may ask.
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
	rs := &c.peer.server.rounds
	if i.of.asking == nil {
		result, err = i.run(ctx)
	} else {
		bounded, cancel := rs.boundCall(ctx)
		defer cancel()
		ctx = bounded
		result, err = converseLegacy(ctx, c, i)
	}
	if err != nil && requiresInput(err) {
		ctx, cancel := rs.boundCall(ctx)
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
	a := newRerun(c, nil)
	c.asked.questioner = a
	questions := newDirect(c)
	for result, err = runAgain(ctx, a, i.run); len(a.open) > 0; result, err = runAgain(ctx, a, i.run) {
		answers, err := questions.ask(ctx, a.open)
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
		if len(required.Requests) == 0 {
			return none, errors.New("busy, try again")
		}
		questions.Forget() // in the next round, the same key may have another question
		answers, failed := questions.ask(ctx, required.Requests)
		if failed != nil {
			return none, failed
		}
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

// converseModern serves one round.
func converseModern[R any](ctx context.Context, c *call, i invocation[R]) (result R, required *protocol.InputRequired, err error) {
	rs := &c.peer.server.rounds
	st := &asking.State{Round: 0, End: time.Now().Add(rs.options.CallExpiry).Unix()}
	answers := i.given.InputResponses
	if i.given.RequestState != nil {
		if st, err = rs.sealer.Open(i.about, *i.given.RequestState); err != nil {
			return result, nil, err
		}
		answers = make(protocol.InputResponses)
		for key, answer := range i.given.InputResponses {
			if _, asked := st.Asked[key]; asked && st.Answers[key] == nil {
				answers[key] = answer
			}
		}
		if err := checkKinds(ctx, answers); err != nil {
			return result, nil, err
		}
		c.asked.id = st.Call
	}
	waits := i.of.asking != nil && i.of.asking.how == Waits
	switch {
	case waits && i.given.RequestState == nil:
		return asResult[R](rs.start(ctx, c, i.about, answers, func(ctx context.Context) (any, error) { return i.run(ctx) }))
	case st.Process != "" && st.Process != rs.process && st.Node != "":
		return result, nil, asking.Refuse("the call is over, because its node has ended: make it anew")
	case st.Process != "" && (!waits || st.Process != rs.process):
		return result, nil, asking.Refuse("the call waits on another node, or is over: make it anew")
	case st.Process != "":
		return asResult[R](rs.resume(ctx, c, i.about, st, answers))
	case i.given.RequestState != nil:
		if first, err := rs.spend(ctx, st); err != nil || !first {
			return result, nil, asking.Refuse("the requestState was used: the call is over, make it anew")
		}
	}
	c.Answers, c.asked.state = answers, st.Own
	var a *rerun // nil if the handler must not ask
	if i.of.asking != nil && !waits {
		a = newRerun(c, st.Asked, st.Answers, answers)
		c.asked.questioner = a
		result, err = runAgain(ctx, a, i.run)
	} else {
		result, err = i.run(ctx)
	}
	next := &asking.State{Call: c.CallID(), Round: st.Round, End: st.End}
	var requires *InputRequired
	switch {
	case errors.As(err, &requires):
		required, err = rs.require(c, i.about, next, requires)
		return *new(R), required, err
	case a != nil && len(a.open) > 0:
		next.Asked, next.Answers = a.Asked(), a.Known()
		required, err = rs.ask(c, i.about, next, a.open)
		return *new(R), required, err
	default:
		return result, nil, err
	}
}

// asResult converts what start and resume return. They know nothing of the types of results,
// because rounds keeps the waiting calls of all features together.
func asResult[R any](result any, required *protocol.InputRequired, err error) (R, *protocol.InputRequired, error) {
	own, _ := result.(R)
	return own, required, err
}

// checkKinds rejects answers that fit no kind of question, before a state is used up.
func checkKinds(ctx context.Context, answers protocol.InputResponses) error {
	for key, answer := range answers {
		switch answer := answer.(type) {
		case *protocol.UnknownInputResponse:
			return refusal.New(jsonrpc.CodeInvalidParams, "%v", &AnswerError{key, errors.New("it is no answer to any question")})
		case *protocol.ElicitResult:
			if err := checkElicited(ctx, &protocol.ElicitParams{}, answer); err != nil {
				return refusal.New(jsonrpc.CodeInvalidParams, "%v", &AnswerError{key, err})
			}
		}
	}
	return nil
}

// require ends a round with the InputRequired that the handler returned.
func (rs *rounds) require(c *call, about asking.Subject, next *asking.State, required *InputRequired) (*protocol.InputRequired, error) {
	if len(required.Requests) == 0 && required.State == nil {
		return nil, refusal.New(jsonrpc.CodeInternalError, "the handler requires input, and has neither question nor state")
	}
	if err := canBeAsked(c.Client, required.Requests); err != nil {
		return nil, err
	}
	var asked asking.Exchange
	_, err := asked.Ask(required.Requests, nil) // nothing was said before
	if err != nil {
		return nil, err
	}
	next.Asked = asked.Asked()
	if next.Own, err = required.state(); err != nil {
		return nil, err
	}
	return rs.ask(c, about, next, required.Requests)
}

// ask ends a round with questions.
func (rs *rounds) ask(c *call, about asking.Subject, next *asking.State, open protocol.InputRequests) (*protocol.InputRequired, error) {
	if next.Round++; next.Round > rs.options.MaxRounds {
		return nil, refusal.New(jsonrpc.CodeInternalError, "the call has asked %d times already", next.Round-1)
	}
	if next.ID == nil {
		next.ID = make([]byte, 16)
		_, _ = rand.Read(next.ID) // rand.Read never fails
	}
	next.Until = time.Now().Add(rs.options.Expiry).Unix()
	sealed, err := rs.sealer.Seal(about, next)
	if err != nil {
		return nil, err
	}
	return &protocol.InputRequired{InputRequests: open, RequestState: &sealed}, nil
}

// A rerun is a questioner for one round of a feature that uses Reruns.
type rerun struct {
	conversation // the questions of all rounds; number is that of this run

	mu     sync.Mutex
	now    asking.Exchange        // the questions of this run
	open   protocol.InputRequests // questions of this run that have no answer yet
	broken error                  // an error that ends the call, whatever the handler returns
	end    context.CancelCauseFunc
}

// newRerun returns the questioner of a round. Before is what was asked in earlier ones, early what was answered there and with
// this one.
func newRerun(c *call, before map[string]asking.Digest, early ...protocol.InputResponses) *rerun {
	a := new(rerun)
	a.begin(func() *Client { return c.Client }, a.deliver)
	a.Resume(before)
	if len(early) > 0 {
		all := make(protocol.InputResponses)
		for _, some := range early {
			maps.Copy(all, some)
		}
		a.SetEarly(all, false)
	}
	return a
}

// runAgain runs the handler once, from its beginning.
func runAgain[R any](ctx context.Context, a *rerun, run func(context.Context) (R, error)) (R, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	a.mu.Lock()
	a.open, a.end = nil, end
	a.now.Forget()
	a.number.Store(0)
	a.mu.Unlock()
	result, err := run(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil {
		a.open = nil
		return *new(R), a.broken
	}
	return result, err
}

// ask implements questioner.
func (a *rerun) ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.broken != nil || len(a.open) > 0 {
		return nil, cmp.Or(a.broken, ErrInputRequired)
	}
	asked, err := a.client().fitting(asked)
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

// deliver ends the run. The questions are asked when the handler has returned.
func (a *rerun) deliver(_ context.Context, open protocol.InputRequests) (protocol.InputResponses, error) {
	a.open = open
	a.end(ErrInputRequired)
	return nil, ErrInputRequired
}

// stop ends the call with an error.
func (a *rerun) stop(err error) error {
	a.broken = err
	a.end(err)
	return err
}
