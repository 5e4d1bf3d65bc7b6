package nats

import (
	"context"
	"errors"
	"fmt"
	"iter"

	natsgo "github.com/nats-io/nats.go"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/answers"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
)

// Request implements cluster.Engine.
func (e *engine) Request(ctx context.Context, subject string, body []byte) ([]byte, error) {
	if err := rules.Message(subject, body); err != nil {
		return nil, err
	}
	response, err := e.request(ctx, e.requests+subject, &natsgo.Msg{Data: body})
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", subject, err)
	}
	return response.Data, nil
}

// request sends a message to a subject of the server and returns the first response.
func (e *engine) request(ctx context.Context, subject string, m *natsgo.Msg) (*natsgo.Msg, error) {
	op, err := e.begin(ctx, subjectOf(subject))
	if err != nil {
		return nil, err
	}
	defer op.end()
	m.Subject = subject
	e.sent.Add(1)
	response, err := e.conn.RequestMsgWithContext(op, m)
	switch {
	case errors.Is(err, natsgo.ErrNoResponders):
		e.received.Add(1)
		return nil, cluster.ErrNoResponder
	case err != nil:
		return nil, op.explain(err)
	}
	e.received.Add(1)
	return response, nil
}

// Collect implements cluster.Engine.
func (e *engine) Collect(ctx context.Context, subject string, body []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		err := rules.Message(subject, body)
		if err == nil {
			err = e.collect(ctx, subject, body, yield)
		}
		if err != nil {
			yield(nil, fmt.Errorf("collect from %s: %w", subject, err))
		}
	}
}

// collect returns nil if ctx has ended after the request was sent, or the loop was left.
func (e *engine) collect(ctx context.Context, subject string, body []byte, yield func([]byte, error) bool) error {
	op, err := e.begin(ctx, subjectOf(e.requests+subject))
	if err != nil {
		return err
	}
	defer op.end()
	inbox := e.conn.NewInbox()
	sub, err := e.conn.SubscribeSync(inbox)
	if err != nil {
		return op.explain(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // without a connection the server has forgotten it
	e.sent.Add(1)
	if err := e.conn.PublishRequest(e.requests+subject, inbox, body); err != nil {
		return op.explain(err)
	}
	return e.yieldAnswers(ctx, op, sub, yield)
}

func (e *engine) yieldAnswers(ctx context.Context, op *operation, sub *natsgo.Subscription, yield func([]byte, error) bool) error {
	for {
		m, err := sub.NextMsgWithContext(op)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, natsgo.ErrNoResponders):
			e.received.Add(1)
			return cluster.ErrNoResponder
		case err != nil:
			return op.explain(err)
		}
		e.received.Add(1)
		if !yield(m.Data, nil) {
			return nil
		}
	}
}

// Answer implements cluster.Engine.
func (e *engine) Answer(ctx context.Context, subject string, f func(context.Context, []byte) []byte) (func(), error) {
	if err := rules.Subject(subject); err != nil {
		return nil, err
	}
	pool := answers.New(f)
	receive := func(m *natsgo.Msg) {
		e.received.Add(1)
		pool.Push(m.Data, func(response []byte) { e.respond(m, subject, response) })
	}
	stop, err := e.subscribe(ctx, e.requests+subject, receive, -1, nil, pool.Stop)
	if err != nil {
		pool.Stop()
		return nil, fmt.Errorf("answer %s: %w", subject, err)
	}
	return stop, nil
}

// respond sends a response. Whoever asked waits for nothing if that fails.
func (e *engine) respond(request *natsgo.Msg, subject string, response []byte) {
	if len(response) > cluster.MaxMessage {
		e.log.Warn("a response is too long and was not sent", "subject", subject, "bytes", len(response))
		return
	}
	e.sent.Add(1)
	if err := request.Respond(response); err != nil {
		e.log.Warn("a response was not sent", "subject", subject, "err", err)
	}
}
