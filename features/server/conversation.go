package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"

	"github.com/bowline-mcp/bowline/features/server/internal/refusal"
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

// A conversation contains what the handler of one call has asked, and the answers that it
// has. What differs between the ways to ask is how questions get to the client: deliver.
type conversation struct {
	client  func() *Client // returns the client to ask
	deliver func(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error)

	turn   chan struct{}           // holds one token while questions are being asked
	number atomic.Int64            // the number of the last question without an explicit key
	before askedBefore             // the questions asked before; guarded by turn
	early  protocol.InputResponses // answers that the client gave before it was asked; guarded by turn
	once   bool                    // early is for the first questions only
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
	open, err := v.before.take(asked)
	if err != nil {
		return nil, err
	}
	for key, q := range open {
		if answer, ok := v.early[key]; ok {
			if err := checkAnswer(ctx, key, q, answer); err != nil {
				return nil, err
			}
			v.before.give(protocol.InputResponses{key: answer})
			delete(open, key)
		}
	}
	if v.once {
		v.early = nil
	}
	if len(open) > 0 {
		answers, err := v.deliver(ctx, open)
		if err != nil {
			return nil, err
		}
		v.before.give(answers)
	}
	return v.before.to(asked), nil
}

// askedBefore contains the questions that a call has asked, and the answers to them.
type askedBefore struct {
	digests map[string]digest
	answers protocol.InputResponses
}

// A digest identifies the content of a question.
type digest [12]byte

func digestOf(q protocol.InputRequest) (d digest, err error) {
	raw, err := protocol.Marshal(q)
	if err != nil {
		return d, err
	}
	sum := sha256.Sum256(append(append([]byte(q.Method()), 0), raw...))
	copy(d[:], sum[:])
	return d, nil
}

// take records questions, and returns those without an answer. It fails with ErrKeyUsed
// if a key belongs to a different question.
func (b *askedBefore) take(asked protocol.InputRequests) (open protocol.InputRequests, err error) {
	if b.digests == nil {
		b.digests = make(map[string]digest)
	}
	for key, q := range asked {
		d, err := digestOf(q)
		if err != nil {
			return nil, err
		}
		if before, ok := b.digests[key]; ok && before != d {
			return nil, fmt.Errorf("%w: %q", ErrKeyUsed, key)
		}
		b.digests[key] = d
		if _, answered := b.answers[key]; !answered {
			if open == nil {
				open = make(protocol.InputRequests)
			}
			open[key] = q
		}
	}
	return open, nil
}

// give records answers.
func (b *askedBefore) give(answers protocol.InputResponses) {
	if b.answers == nil {
		b.answers = make(protocol.InputResponses)
	}
	maps.Copy(b.answers, answers)
}

// to returns the answers to some questions.
func (b *askedBefore) to(asked protocol.InputRequests) protocol.InputResponses {
	all := make(protocol.InputResponses, len(asked))
	for key := range asked {
		all[key] = b.answers[key]
	}
	return all
}

// direct asks a legacy client, by requests on the stream of the call.
type direct struct {
	conversation
	call   *call
	rounds int // how often it has asked
}

func newDirect(c *call) *direct {
	d := &direct{call: c}
	d.begin(func() *Client { return c.Client }, d.deliver)
	return d
}

// deliver asks the client, unless the call has already asked too often.
func (d *direct) deliver(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error) {
	rs := &d.call.peer.server.rounds
	if d.rounds++; d.rounds > rs.options.MaxRounds {
		return nil, fmt.Errorf("%w: the call has asked %d times already", ErrUnanswered, d.rounds-1)
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
