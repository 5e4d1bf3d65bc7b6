package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/internal/reports"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A handler serves the server's messages. The dialect answers pings.
type handler struct{ session *session }

// ServeNotification implements conn.Handler.
func (h handler) ServeNotification(ctx context.Context, in *conn.Incoming) {
	s := h.session
	s.restore.SawEpoch(host{s}, in.Epoch)
	if in.Method == protocol.NotificationAcknowledged {
		s.restore.Acknowledged(host{s}, in)
		return
	}
	s.cache.Receive(in.Method, in.Params)
	r := &Request{Method: in.Method, Params: in.Params, Session: s.view(), Incoming: true, Notification: true}
	if known, ok := s.client.table.notifications[in.Method]; ok {
		r.Params = known.params()
		err := protocol.UnmarshalParams(in.Params, r.Params)
		if _, plain := r.Params.(*protocol.NotificationParams); err != nil && !plain {
			return // a malformed notification is ignored, as the specification asks
		}
	}
	if s.client.options.OnLog != nil {
		ctx = context.WithValue(ctx, askingKey{}, asking{calls: &s.raw, by: in.For()})
	}
	if s.client.chain == nil {
		s.receive(ctx, r)
		return
	}
	_, _ = s.client.chain(ctx, r) // there is no answer to a notification
}

// receive handles a notification that has passed the middleware.
func (s *session) receive(ctx context.Context, r *Request) {
	known, ok := s.client.table.notifications[r.Method]
	if !ok {
		raw, _ := r.Params.(json.RawMessage)
		s.events.deliver(&Notification{Method: r.Method, Params: raw})
		return
	}
	e := known.event(r.Params)
	if updated, ok := e.(*ResourceUpdated); ok {
		s.restore.Updated(updated.URI)
	}
	if message, ok := e.(*LogMessage); ok && s.logs(ctx, message) {
		return
	}
	s.events.deliver(e)
}

// logs gives a log message to Options.OnLog. It reports false if that is not there, or if the call of the message is none of those
// that Asking knows: it must not be taken for one of no call.
func (s *session) logs(ctx context.Context, m *LogMessage) bool {
	on := s.client.options.OnLog
	if of, _ := ctx.Value(askingKey{}).(asking); on == nil || of.by != 0 && len(Asking(ctx)) == 0 {
		return false
	}
	on(ctx, s.view(), m)
	return true
}

// A notification describes one notification that a server sends.
type notification struct {
	params func() any // returns a new value for the params
	event  func(params any) Event
}

// A question describes one request that a server makes.
type question struct {
	// offered reports whether the client has a handler for it.
	offered func(*Options) bool
	params  func() any // returns a new value for the params
	answer  func(context.Context, *Session, any) (any, error)
}

// ServeRequest implements conn.Handler. Only legacy servers make requests.
func (h handler) ServeRequest(ctx context.Context, in *conn.Incoming) (json.RawMessage, error) {
	s := h.session.view()
	q, ok := s.client.table.questions[in.Method]
	if p := s.peer.Load(); !ok || !q.offered(&s.client.options) || p != nil && p.Modern() {
		return nil, methodNotFound(in.Method)
	}
	params := q.params()
	if err := protocol.UnmarshalParams(in.Params, params); err != nil {
		return nil, invalidParams("%v", err)
	}
	progress := s.reports(ctx, in, params)
	if progress != nil {
		defer func() { // no report may follow the answer
			in.Leave()
			progress.End()
		}()
	}
	result, err := s.ask(context.WithValue(ctx, askingKey{}, asking{&s.raw, in.For(), progress}), in, in.Method, params)
	if err != nil && in.Method == protocol.MethodElicit && !errors.As(err, new(*jsonrpc.Error)) {
		if ctx.Err() == nil {
			s.tell(&NotAnswered{err})
		}
		result, err = &protocol.ElicitResult{Action: protocol.ElicitCancel}, nil
	}
	if err != nil {
		return nil, err
	}
	return protocol.Marshal(result)
}

// reports returns the reports of a question; nil if the server wants none.
func (s *Session) reports(ctx context.Context, in *conn.Incoming, params any) *reports.Reports {
	var token jsonrpc.ID
	if raw, asked := protocol.MetaOf(params)[protocol.MetaProgressToken]; !asked || token.UnmarshalJSON(raw) != nil || token.IsZero() {
		return nil // a server whose token is neither a string nor an integer gets no progress, but its answer
	}
	return reports.New(ctx, token, func(ctx context.Context, params *protocol.ProgressParams) {
		_ = s.guarded(protocol.NotificationProgress, func() error {
			return s.notifyThrough(ctx, &Request{Method: protocol.NotificationProgress, Params: params, Session: s, Notification: true, asked: in})
		}) // if this fails, the server is gone, or the report is lost
	})
}

// ask passes a question from the server to the program, through the middleware. If the
// question came with the answer to a call, in is nil.
func (s *Session) ask(ctx context.Context, in *conn.Incoming, method string, params any) (any, error) {
	r := &Request{Method: method, Params: params, Session: s, Incoming: true, asked: in}
	if s.client.chain == nil {
		return s.answer(ctx, r)
	}
	return s.client.chain(ctx, r)
}

// answer answers a question that has passed the middleware.
func (s *Session) answer(ctx context.Context, r *Request) (any, error) {
	q, ok := s.client.table.questions[r.Method]
	if !ok || !q.offered(&s.client.options) {
		return nil, methodNotFound(r.Method)
	}
	return q.answer(ctx, s, r.Params)
}

const (
	// maxQuestions is how many questions one result may have.
	maxQuestions = 64

	// A server that asks nothing may still want the call to be repeated later. The delay
	// is retryMin, and doubles each time up to retryMax (± 20 %).
	retryMin = 100 * time.Millisecond
	retryMax = 2 * time.Second
)

// answerFor answers the questions in the result of an attempt. When the server of that
// attempt is lost, or the session ends, the context of the handlers ends, with the reason as its
// cause, and the call ends as LinkLost or ShutDown unless they have answered nevertheless. An
// attempt without a server waits for the end of the session only.
func (s *Session) answerFor(ctx context.Context, method string, last attempt, all protocol.InputRequests) (protocol.InputResponses, error) {
	asking, end := context.WithCancelCause(ctx)
	watched := make(chan error, 1)
	go func() { watched <- s.awaitLoss(asking, last.peer, end) }()
	answers, err := s.answerAll(asking, all)
	end(nil)
	lost := <-watched
	switch {
	case err == nil:
		return answers, nil
	case lost == nil || ctx.Err() != nil:
		return nil, interrupted(ctx, method, last.id, err)
	}
	cause := conn.LinkLost
	if s.conn.State() == conn.Closing {
		cause = conn.ShutDown
	}
	return nil, explain(&conn.CallError{Method: method, ID: last.id, Cause: cause, Delivery: conn.Sent, Err: fmt.Errorf("%w: %w", lost, err)})
}

// awaitLoss waits until a server is lost or the session ends, and then calls end with the reason and
// returns it. If the context ends first, it returns nil.
func (s *Session) awaitLoss(ctx context.Context, of *peer, end context.CancelCauseFunc) error {
	for {
		status := s.conn.Status()
		switch {
		case ctx.Err() != nil:
			return nil
		case status.State == conn.Closing:
			end(status.Reason)
			return status.Reason
		case of != nil && !of.isCurrent(status):
			end(status.LastFailure)
			return status.LastFailure
		}
		select {
		case <-status.Changed():
		case <-ctx.Done():
		}
	}
}

// sleep waits between two requests of a call. If ctx or the session ends first, it returns the
// error of the call.
func (s *session) sleep(ctx context.Context, d time.Duration, method string, id int64) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return interrupted(ctx, method, id, context.Cause(ctx))
	case <-s.conn.Done():
		return explain(&conn.CallError{Method: method, ID: id, Cause: conn.ShutDown, Delivery: conn.Sent})
	}
}

// interrupted returns the error of a call whose questions were not answered.
func interrupted(ctx context.Context, method string, id int64, err error) error {
	cause := conn.Answered
	if ctx.Err() != nil {
		cause = waitEnded(ctx)
	}
	return explain(&conn.CallError{Method: method, ID: id, Cause: cause, Delivery: conn.Sent, Err: err})
}

// canAnswer refuses questions that the server must not ask.
func (s *Session) canAnswer(asks *protocol.InputRequired) error {
	switch {
	case len(asks.InputRequests) == 0 && asks.RequestState == nil:
		return errors.New("it asks for input without a question")
	case len(asks.InputRequests) > maxQuestions:
		return fmt.Errorf("it asks %d questions, and this client takes %d", len(asks.InputRequests), maxQuestions)
	}
	for key, question := range asks.InputRequests {
		if !s.client.table.questions[question.Method()].offered(&s.client.options) {
			return fmt.Errorf("it asks %s under %.100q, which this client did not declare", question.Method(), key)
		}
	}
	return nil
}

// answerAll answers the questions of one round concurrently. If one fails, the others
// are cancelled.
func (s *Session) answerAll(ctx context.Context, all protocol.InputRequests) (protocol.InputResponses, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var asking sync.WaitGroup
	var failed error
	answers := make(protocol.InputResponses, len(all))
	for key, question := range all {
		asking.Go(func() {
			var answer protocol.InputResponse
			err := errLeft // also if the handler ends this goroutine
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					answers[key] = answer
				case failed == nil:
					failed = &InputError{Key: key, Method: question.Method(), Err: err}
					cancel(failed)
				}
			}()
			answer, err = s.askGuarded(ctx, question)
		})
	}
	asking.Wait()
	return answers, failed
}

var errLeft = errors.New("client: the handler has ended its goroutine")

// guarded runs code of the program on a goroutine whose panics the Conn does not recover. A panic becomes an error and is reported,
// and so is the end of the goroutine.
func (s *session) guarded(where string, f func() error) (err error) {
	returned := false
	defer func() {
		value := recover()
		if value == nil && returned {
			return
		}
		panicked := &conn.PanicError{Value: value, Stack: debug.Stack()}
		s.conn.Control().ReportPanic(where, panicked)
		err = panicked
	}()
	err = f()
	returned = true
	return err
}

// askGuarded asks one question.
func (s *Session) askGuarded(ctx context.Context, question protocol.InputRequest) (protocol.InputResponse, error) {
	var result any
	err := s.guarded(question.Method(), func() (err error) {
		result, err = s.ask(ctx, nil, question.Method(), question)
		return err
	})
	if err != nil {
		return nil, err
	}
	answer, ok := result.(protocol.InputResponse)
	if !ok {
		return nil, fmt.Errorf("client: middleware returned %T for %s", result, question.Method())
	}
	return answer, nil
}

// about varies d by up to a fifth, so that not all clients return at the same time.
func about(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
