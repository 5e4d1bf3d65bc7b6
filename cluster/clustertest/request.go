package clustertest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/answers"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
)

// Request implements cluster.Engine.
func (e *Engine) Request(ctx context.Context, subject string, body []byte) ([]byte, error) {
	for response, err := range e.ask(ctx, "request", subject, body) {
		return response, err
	}
	return nil, fmt.Errorf("request to %s: %w", subject, outOfTime(ctx))
}

// Collect implements cluster.Engine.
func (e *Engine) Collect(ctx context.Context, subject string, body []byte) iter.Seq2[[]byte, error] {
	return e.ask(ctx, "collect", subject, body)
}

// ask yields the responses to a request until ctx ends.
func (e *Engine) ask(ctx context.Context, name, subject string, body []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if err := rules.Message(subject, body); err != nil {
			yield(nil, err)
			return
		}
		responses := make(chan result[[]byte], 1024) // the next ones are lost
		lost, err := e.start(ctx, Operation{Name: name, Subject: subject}, func(f Fault) { e.request(f, subject, bytes.Clone(body), responses) })
		if err != nil {
			yield(nil, fmt.Errorf("%s to %s: %w", name, subject, err))
			return
		}
		for {
			response, err := await(ctx, responses, lost)
			if err != nil && ctx.Err() != nil && name == "collect" {
				return
			}
			if err != nil {
				err = fmt.Errorf("%s to %s: %w", name, subject, err)
			}
			if !yield(response, err) || err != nil {
				return
			}
		}
	}
}

// request passes a request on to everybody who answers it.
func (e *Engine) request(f Fault, subject string, body []byte, responses chan<- result[[]byte]) {
	respond := func(r result[[]byte]) {
		select {
		case responses <- r:
		default: // too many responses
		}
	}
	answered := false
	for _, other := range e.service.engines {
		for _, a := range other.answers {
			if a.subject != subject || other == e || !other.connected {
				continue
			}
			answered = true
			arrive := func(response []byte) {
				e.respond(Fault{DelayResult: f.DelayResult, LoseResult: f.LoseResult}, func() { respond(result[[]byte]{value: response}) })
			}
			push := func() { a.pool.Push(bytes.Clone(body), func(response []byte) { a.respond(response, arrive) }) }
			other.receive(Operation{Name: "question", Subject: subject}, push)
			if f.Double {
				other.receive(Operation{Name: "question", Subject: subject}, push)
			}
		}
	}
	switch {
	case !answered:
		e.respond(f, func() { respond(result[[]byte]{err: cluster.ErrNoResponder}) })
	case f.Cut:
		e.cutOff()
	}
}

// An answer is what somebody answers with.
type answer struct {
	engine  *Engine
	subject string
	pool    *answers.Pool
	stopped bool // the mutex of the Service guards it
}

// Answer implements cluster.Engine.
func (e *Engine) Answer(ctx context.Context, subject string, f func(context.Context, []byte) []byte) (func(), error) {
	if err := rules.Subject(subject); err != nil {
		return nil, err
	}
	a := &answer{engine: e, subject: subject, pool: answers.New(f)}
	_, err := call(ctx, e, Operation{Name: "answer", Subject: subject}, func() (bool, error) {
		if !slices.Contains(e.answers, a) && !a.stopped {
			e.answers = append(e.answers, a)
		}
		return true, nil
	})
	if err != nil {
		a.stop()
		return nil, err
	}
	return a.stop, nil
}

func (a *answer) stop() {
	a.engine.service.mu.Lock()
	a.stopped = true
	a.engine.answers = slices.DeleteFunc(a.engine.answers, func(other *answer) bool { return other == a })
	a.engine.service.mu.Unlock()
	a.pool.Stop()
}

// respond sends a response on its way.
func (a *answer) respond(response []byte, arrive func([]byte)) {
	e := a.engine
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	f := e.fault(Operation{Name: "response", Subject: a.subject})
	if e.cut || e.denied || f.Lose || len(response) > cluster.MaxMessage {
		return
	}
	e.sent.Add(1)
	response = bytes.Clone(response)
	e.up.send(f.Delay, func() {
		arrive(response)
		if f.Double {
			arrive(response)
		}
	})
}
