package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A questioner asks the questions of one call.
type questioner interface {
	// nextKey returns the number of the next question, as its key.
	nextKey() string

	// ask returns an answer for each question. Concurrent calls wait for each other.
	ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error)
}

func questionerFrom(ctx context.Context) (questioner, error) {
	r := RequestFrom(ctx)
	switch {
	case r == nil || r.call == nil:
		return nil, ErrNoRequest
	case r.call.asked == nil || r.call.asked.questioner == nil:
		return nil, ErrNotAsking
	default:
		return r.call.asked.questioner, nil
	}
}

// A conversation is the part of a courier that all have: questions of one call come to it one after the other, and its
// exchange says which of them the client must see. The courier only brings those to the client, and waits:
//
//	direct   requests of the legacy revisions, on the stream of the call
//	rerun    the round ends, and the handler runs again in the next one
//	waiting  the round ends, and the handler waits for the next one
//	task     the status of the task shows them
//
// A courier never decides whether a question is new, or whether an answer is one to it: then the four would differ. A
// conversation contains what the handler of one call has asked, and the answers that it
// has. What differs between the ways to ask is how questions get to the client: deliver.
type conversation struct {
	client  func() *Client // returns the client to ask
	deliver func(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error)

	turn   chan struct{} // holds one token while questions are being asked
	number atomic.Int64  // the number of the last question without an explicit key

	asking.Exchange // what was asked and answered; guarded by turn
}

func (v *conversation) begin(client func() *Client, deliver func(context.Context, protocol.InputRequests) (protocol.InputResponses, error)) {
	v.client, v.deliver, v.turn = client, deliver, make(chan struct{}, 1)
}

func (v *conversation) nextKey() string { return fmt.Sprint(v.number.Add(1)) }

// ask implements questioner. It runs on goroutines of the handler.
func (v *conversation) ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error) {
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, unansweredBy(ctx)
	}
	asked, err := v.client().fitting(asked)
	if err != nil {
		return nil, err
	}
	return v.askFitting(ctx, asked)
}

// askFitting asks questions that have the form for the client. The caller makes sure that
// nothing else asks meanwhile.
func (v *conversation) askFitting(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error) {
	open, err := v.Ask(asked, fitting(ctx))
	if err != nil {
		return nil, err
	}
	if len(open) > 0 {
		answers, err := v.deliver(ctx, open)
		if err != nil {
			return nil, err
		}
		v.Answer(answers)
	}
	return v.Answers(asked), nil
}

// direct asks a legacy client, by requests on the stream of the call.
type direct struct {
	conversation
	call *call
}

func newDirect(c *call) *direct {
	d := &direct{call: c}
	d.begin(func() *Client { return c.Client }, d.deliver)
	return d
}

// deliver asks the client, unless the call has already asked too often.
func (d *direct) deliver(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error) {
	rs := &d.call.peer.server.rounds
	if before, may := d.Round(rs.options.MaxRounds); !may {
		return nil, fmt.Errorf("%w: the call has asked %d times already", ErrUnanswered, before)
	}
	return rs.askClient(ctx, d.call, open)
}

// unanswered returns why a question has no answer: the client's error, or the reason why
// the wait ended.
func unanswered(ctx context.Context, err error) error {
	var fault *jsonrpc.Error
	switch {
	case errors.As(err, &fault) && fault.Code == protocol.CodeUserRejected:
		return fmt.Errorf("%w: %s", ErrDeclined, refusal.Shorten(fault.Message, refusal.LongestMessage))
	case errors.As(err, &fault): // an error of the client must not become the answer to the call
		return fmt.Errorf("the client refused the question: %s (%d)", refusal.Shorten(fault.Message, refusal.LongestMessage), fault.Code)
	case ctx.Err() != nil:
		return unansweredBy(ctx)
	default:
		return err
	}
}

// unansweredBy returns why a question has no answer: the reason why ctx ended. The context
// of a task that has ended may be about to end.
func unansweredBy(ctx context.Context) error {
	why := cmp.Or(context.Cause(ctx), ErrTaskExpired)
	if errors.Is(why, ErrUnanswered) {
		return why
	}
	return fmt.Errorf("%w: %w", ErrUnanswered, why)
}
