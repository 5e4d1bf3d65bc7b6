package client

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/protocol/schema"
	"github.com/go-json-experiment/json"
)

// Accept returns the answer of a user who agreed. Content holds the fields of the
// form: a struct, a map, or nil for none. For a URL, pass nil.
func Accept(content any) (*protocol.ElicitResult, error) {
	raw, err := marshalParams(protocol.MethodElicit, content)
	if err != nil {
		return nil, fmt.Errorf("client: the content of an answer: %w", err)
	}
	return &protocol.ElicitResult{Action: protocol.ElicitAccept, Content: raw}, nil
}

// Decline returns the answer of a user who said no.
func Decline() (*protocol.ElicitResult, error) {
	return &protocol.ElicitResult{Action: protocol.ElicitDecline}, nil
}

// Dismiss returns the answer for a user who did not decide, and for instance closed
// the form.
func Dismiss() (*protocol.ElicitResult, error) {
	return &protocol.ElicitResult{Action: protocol.ElicitCancel}, nil
}

// ServeRequest implements conn.Handler. Only legacy servers make requests.
func (h handler) ServeRequest(ctx context.Context, in *conn.Incoming) (stdjson.RawMessage, error) {
	s := h.session.view()
	q, ok := questions[in.Method]
	if p := s.peer.Load(); !ok || !q.offered(&s.client.options) || p != nil && p.Modern() {
		return nil, methodNotFound(in.Method)
	}
	params := q.params()
	if err := protocol.UnmarshalParams(in.Params, params); err != nil {
		return nil, invalidParams("%v", err)
	}
	result, err := s.ask(ctx, in, in.Method, params)
	if err != nil && in.Method == protocol.MethodElicit && !errors.As(err, new(*jsonrpc.Error)) {
		if ctx.Err() == nil {
			s.tell(&NotAnswered{err})
		}
		result, err = Dismiss()
	}
	if err != nil {
		return nil, err
	}
	return protocol.Marshal(result)
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
	q, ok := questions[r.Method]
	if !ok || !q.offered(&s.client.options) {
		return nil, methodNotFound(r.Method)
	}
	return q.answer(ctx, s, r.Params)
}

func invalidParams(format string, args ...any) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// errNoAnswer is the error of a handler that returns neither an answer nor an error.
var errNoAnswer = errors.New("client: the handler returned no answer")

func (s *Session) elicit(ctx context.Context, p *protocol.ElicitParams) (*protocol.ElicitResult, error) {
	var handle func(context.Context, *Session, *protocol.ElicitParams) (*protocol.ElicitResult, error)
	switch p.Mode {
	case "", protocol.ElicitForm:
		handle = s.client.options.Elicit
	case protocol.ElicitURL:
		handle = s.client.options.ElicitURL
	}
	if handle == nil {
		return nil, invalidParams("the client did not declare the elicitation mode %.40q", p.Mode)
	}
	isForm := p.Mode != protocol.ElicitURL
	if isForm {
		if err := s.checkForm(ctx, p.RequestedSchema, nil); err != nil {
			return nil, err
		}
	}
	result, err := handle(ctx, s, p)
	switch {
	case err != nil:
		return nil, err
	case result == nil:
		return nil, errNoAnswer
	}
	switch result.Action {
	case protocol.ElicitAccept:
	case protocol.ElicitDecline, protocol.ElicitCancel:
		isForm = false
	default:
		return nil, fmt.Errorf("client: the handler returned the unknown action %.40q", result.Action)
	}
	if !isForm {
		return &protocol.ElicitResult{Meta: result.Meta, Action: result.Action}, nil
	}
	filled := *result
	lists := s.Server().ProtocolVersion >= protocol.Version20251125
	if filled.Content, err = fillDefaults(result.Content, p.RequestedSchema, lists); err != nil {
		return nil, fmt.Errorf("client: the answer cannot be read: %w", err)
	}
	// The budget of the schema bounds the check, also for an answer that came after the server was lost.
	if err := s.checkForm(context.WithoutCancel(ctx), p.RequestedSchema, filled.Content); err != nil {
		return nil, err
	}
	return &filled, nil
}

// checkForm checks a form and, unless it is nil, an answer. A server may send many forms at
// once, and one may need much memory. So they are compiled one after the other, and not kept
// while the user thinks.
func (s *Session) checkForm(ctx context.Context, raw, answer stdjson.RawMessage) error {
	s.forms.Lock()
	defer s.forms.Unlock()
	form, err := schema.CompileForm(ctx, raw)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return invalidParams("requestedSchema: %v", err)
	case answer == nil:
		return nil
	}
	if err := form.Validate(ctx, answer); err != nil {
		return fmt.Errorf("client: the answer does not fit the form: %w", err)
	}
	return nil
}

// fillDefaults adds the default values of fields that an answer leaves out. Lists are
// left out unless lists is set: an answer in 2025-06-18 has none.
func fillDefaults(content, form stdjson.RawMessage, lists bool) (stdjson.RawMessage, error) {
	var fields struct {
		Properties map[string]struct {
			Default stdjson.RawMessage `json:"default"`
		} `json:"properties"`
	}
	answer := map[string]stdjson.RawMessage{}
	if err := protocol.Unmarshal(content, &answer); err != nil {
		return nil, err
	}
	if err := protocol.Unmarshal(form, &fields); err != nil {
		return nil, err
	}
	for name, field := range fields.Properties {
		if _, given := answer[name]; !given && field.Default != nil && (lists || field.Default[0] != '[') {
			answer[name] = field.Default
		}
	}
	return json.Marshal(answer, json.Deterministic(true))
}

func (s *Session) roots(ctx context.Context) (*protocol.ListRootsResult, error) {
	roots, err := s.client.options.Roots(ctx, s)
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		if !strings.HasPrefix(root.URI, "file://") {
			return nil, fmt.Errorf("client: a root must begin with file://: %.200q", root.URI)
		}
	}
	return &protocol.ListRootsResult{Roots: append(protocol.Roots{}, roots...)}, nil
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
// attempt is lost, the context of the handlers ends, with the reason as its cause, and the
// call ends as LinkLost unless they have answered nevertheless.
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

// awaitLoss waits until a server is lost, and then calls end with the reason and returns it.
// If the context ends first, it returns nil.
func (s *Session) awaitLoss(ctx context.Context, of *peer, end context.CancelCauseFunc) error {
	for {
		status := s.conn.Status()
		switch {
		case ctx.Err() != nil:
			return nil
		case status.State == conn.Closing:
			end(status.Reason)
			return status.Reason
		case !of.isCurrent(status):
			end(status.LastFailure)
			return status.LastFailure
		}
		select {
		case <-status.Changed():
		case <-ctx.Done():
		}
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
		if !questions[question.Method()].offered(&s.client.options) {
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
			answer, err := s.askGuarded(ctx, question)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				answers[key] = answer
			case failed == nil:
				failed = &InputError{Key: key, Method: question.Method(), Err: err}
				cancel(failed)
			}
		})
	}
	asking.Wait()
	return answers, failed
}

// askGuarded asks one question. A panic becomes an error and is reported.
func (s *Session) askGuarded(ctx context.Context, question protocol.InputRequest) (answer protocol.InputResponse, err error) {
	returned := false
	defer func() {
		value := recover()
		if value == nil && returned {
			return
		}
		panicked := &conn.PanicError{Value: value, Stack: debug.Stack()}
		s.conn.ReportPanic(question.Method(), panicked)
		err = panicked
	}()
	result, err := s.ask(ctx, nil, question.Method(), question)
	returned = true
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
