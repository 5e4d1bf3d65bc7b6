package asking

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/protocol"
)

var (
	// ErrUnanswered means that no answer came and none will come. The text says why.
	ErrUnanswered = errors.New("the question was not answered")

	// ErrInputRequired is why the run of a handler with Reruns ends.
	ErrInputRequired = errors.New("server: the client has to answer first")
)

// A Caller is a request for which a handler asks: the first one of a call, or that of a later round.
type Caller interface {
	// CallID returns what identifies the call in all its rounds.
	CallID() string

	// Fitting returns questions in the form for the client, or why it cannot be asked.
	Fitting(asked protocol.InputRequests) (protocol.InputRequests, error)

	// Guarded runs code of the program, and turns its panic into an error.
	Guarded(where string, f func() error) error

	// Joined says who asks the questions of the request from now on, and for which call.
	Joined(q Questioner, id string)
}

// A Questioner asks the questions of one call.
type Questioner interface {
	// NextKey returns the number of the next question, as its key.
	NextKey() string

	// Ask returns an answer for each question. Concurrent calls wait for each other.
	Ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error)
}

// A Courier brings questions to the client, and waits for the answers. There are four:
//
//	a legacy request   on the stream of the call (package server, direct)
//	a Rerun            the round ends, and the handler runs again in the next one
//	a Waiting          the round ends, and the handler waits for the next one
//	a task             its status shows them; a client of 2025-11-25 also gets requests (package tasks, Task.attend)
//
// A courier never decides whether a question is new, or whether an answer is one to it: then the four would differ. But
// it has an answer that came from the client checked, with CheckAnswer or Parked.Take, before it hands it on. One that
// ends no round (direct, a task) counts its deliveries against Rounds.MaxRounds; rounds are counted in Rounds.Ask. A call
// that becomes a task keeps the answers of a Rerun (Task.make): another courier whose answers must survive that has to be
// named there.
type Courier interface {
	// Fitting is that of the request whose client is asked now.
	Fitting(asked protocol.InputRequests) (protocol.InputRequests, error)

	// Deliver returns an answer to each of the questions, which fits it. The questions fit the client already. One delivery
	// is made at a time.
	Deliver(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error)
}

// A Conversation is what the handler of one call has asked, and the answers that it has: an Exchange, to which questions
// come one after the other, and a courier for those that the client must see.
type Conversation struct {
	courier  Courier
	turn     chan struct{} // holds one token while questions are being asked
	number   atomic.Int64  // the number of the last question without an explicit key
	Exchange               // what was asked and answered; guarded by turn
}

// Begin sets the courier. Nothing may have been asked before.
func (v *Conversation) Begin(c Courier) { v.courier, v.turn = c, make(chan struct{}, 1) }

// NextKey implements Questioner.
func (v *Conversation) NextKey() string { return fmt.Sprint(v.number.Add(1)) }

// Ask implements Questioner. It runs on goroutines of the handler, which may ask several things at the same time. They come
// one after the other: a client shows one question at a time, and two that have the same key must not both be new.
// Waiting for the turn ends with ctx, as that for an answer does.
func (v *Conversation) Ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error) {
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, UnansweredBy(context.Cause(ctx))
	}
	// Only with the turn: in a call that waits, the round may have changed meanwhile, and with it what its client
	// says that it can be asked.
	asked, err := v.courier.Fitting(asked)
	if err != nil {
		return nil, err
	}
	return v.askFitting(ctx, asked)
}

// askFitting asks questions that have the form for the client. The caller makes sure that
// nothing else asks meanwhile. Only the courier is slow here: a question that was answered before returns at once, even if
// the client has left since.
func (v *Conversation) askFitting(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error) {
	open, err := v.Exchange.Ask(asked, Fitting(ctx))
	if err != nil {
		return nil, err
	}
	if len(open) > 0 {
		answers, err := v.courier.Deliver(ctx, open)
		if err != nil {
			return nil, err
		}
		// A delivery brings an answer to each of its questions, or fails: what is recorded is never a part.
		v.Answer(answers)
	}
	return v.Answers(asked), nil
}

// UnansweredBy returns why a question has no answer, by the reason why the wait for it ended.
func UnansweredBy(why error) error {
	if errors.Is(why, ErrUnanswered) {
		return why
	}
	return fmt.Errorf("%w: %w", ErrUnanswered, why)
}

// Required is the error of a handler that asks by what it returns, which is Err.
type Required struct {
	Requests protocol.InputRequests
	Err      error
}

func (r *Required) Error() string { return r.Err.Error() }

// Unwrap returns Err.
func (r *Required) Unwrap() error { return r.Err }

// A Parked is what a handler has asked together, and waits for while the client has the questions. The handler must
// not go on with some of the answers: it gets all of them, once, or an error.
type Parked struct {
	*Questions // replaced when some are answered. Guarded by the courier
	answers    chan protocol.InputResponses
	refused    chan error
}

// Park returns questions for a handler that is about to wait for them.
func Park(q *Questions) *Parked {
	return &Parked{q, make(chan protocol.InputResponses, 1), make(chan error, 1)} // nobody who answers ever waits for the handler
}

// Take takes the answers to open questions, as Questions.Answer does.
// The courier holds the mutex of its questions meanwhile. It may call Take again, until nothing is open.
func (p *Parked) Take(answers protocol.InputResponses, fits Fits) (taken bool, err error) {
	left, taken, err := p.Questions.Answer(answers, fits)
	if err == nil {
		p.Questions = left
	}
	return taken, err
}

// Settle gives the handler its answers, if there is one to each question, and else reports false. It must not be called
// again after it has reported true.
func (p *Parked) Settle() bool {
	got, all := p.Answered()
	if all {
		p.answers <- got
	}
	return all
}

// Refuse ends the wait with an error. Only the first one counts.
// It may be called by any goroutine, and never waits, since there is room for one error and the others are dropped.
func (p *Parked) Refuse(why error) {
	select {
	case p.refused <- why:
	default:
	}
}

// Await waits for the answers. If both are there, answers and an end, either may be returned: the handler has to bear that a question
// fails although its client has answered. It waits until the questions are refused or one of the contexts ends: that of the questions, of their
// call, or of the server.
func (p *Parked) Await(ctx, call, server context.Context) (protocol.InputResponses, error) {
	select {
	case answers := <-p.answers:
		return answers, nil
	case err := <-p.refused:
		return nil, err
	case <-ctx.Done():
		return nil, UnansweredBy(context.Cause(ctx))
	case <-call.Done():
		return nil, UnansweredBy(context.Cause(call))
	case <-server.Done():
		return nil, UnansweredBy(context.Cause(server))
	}
}
