package clustertest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/cluster"
	"github.com/bowline-mcp/bowline/cluster/internal/rules"
)

// The bounds of an answer: how many of its functions run, and how many requests wait.
const (
	maxRunning = 64
	maxWaiting = 1024
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
		responses := make(chan result[[]byte], maxWaiting) // the next ones are lost
		lost, err := e.start(ctx, Op{Name: name, Subject: subject}, func(f Fault) { e.request(f, subject, bytes.Clone(body), responses) })
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
			q := question{body, func(response []byte) {
				e.respond(Fault{DelayResult: f.DelayResult, LoseResult: f.LoseResult}, func() { respond(result[[]byte]{value: response}) })
			}}
			other.receive(Op{Name: "question", Subject: subject}, func() { a.push(q) })
			if f.Double {
				other.receive(Op{Name: "question", Subject: subject}, func() { a.push(q) })
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

// A question is a request that has arrived, with the way back.
type question struct {
	body    []byte
	respond func([]byte)
}

// An answer calls its function with each request, at most maxRunning at a time.
type answer struct {
	engine  *Engine
	subject string
	respond func(context.Context, []byte) []byte
	ctx     context.Context // of each call of respond
	cancel  context.CancelFunc
	running sync.WaitGroup

	// The mutex of the Service guards the rest.
	stopped bool
	busy    int
	waiting []question
}

// Answer implements cluster.Engine.
func (e *Engine) Answer(ctx context.Context, subject string, f func(context.Context, []byte) []byte) (func(), error) {
	if err := rules.Subject(subject); err != nil {
		return nil, err
	}
	a := &answer{engine: e, subject: subject, respond: f}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	_, err := call(ctx, e, Op{Name: "answer", Subject: subject}, func() (bool, error) {
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
	a.waiting = nil
	a.engine.answers = slices.DeleteFunc(a.engine.answers, func(other *answer) bool { return other == a })
	a.engine.service.mu.Unlock()
	a.cancel()
	a.running.Wait()
}

// push starts to answer a question, lets it wait, or loses it.
func (a *answer) push(q question) {
	switch {
	case a.stopped:
	case a.busy < maxRunning:
		a.busy++
		a.running.Go(func() { a.run(q) })
	case len(a.waiting) < maxWaiting:
		a.waiting = append(a.waiting, q)
	}
}

// run answers a question, and what waits then.
func (a *answer) run(q question) {
	for more := true; more; {
		response := a.respond(a.ctx, bytes.Clone(q.body))
		q, more = a.next(q, response)
	}
}

// next sends a response, and returns the next question.
func (a *answer) next(answered question, response []byte) (q question, more bool) {
	e := a.engine
	e.service.mu.Lock()
	defer e.service.mu.Unlock()
	if f := e.fault(Op{Name: "response", Subject: a.subject}); !e.cut && !e.denied && !f.Lose && len(response) <= cluster.MaxMessage {
		e.sent.Add(1)
		body := bytes.Clone(response)
		e.up.send(f.Delay, func() {
			answered.respond(body)
			if f.Double {
				answered.respond(body)
			}
		})
	}
	if len(a.waiting) == 0 {
		a.busy--
		return q, false
	}
	q, a.waiting = a.waiting[0], a.waiting[1:]
	return q, true
}
