package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/protocol/schema"
)

// Asking says how a feature goes on after it has asked its client. In the legacy
// revisions a question is a request on the stream of the call. In 2026-07-28 the
// call ends with the question and comes back with the answer, as a new round.
// Either way means the same in both (ADR-0031).
type Asking uint8

const (
	// Waits is a handler that runs once. It waits on this node for each answer, for
	// 10 minutes at most. Locks, transactions and deadlines of its own last for that
	// long too. If no answer comes the question fails, and the handler cleans up.
	Waits Asking = iota + 1

	// Reruns is a handler that runs from its start in each round, on any node. Until
	// its last question is answered it only reads: it has no effects, and asks the
	// same questions in the same order. Answers that came are returned at once. When
	// one is missing, the context ends and whatever the handler returns is dropped.
	Reruns
)

// Asks is an option of a feature that asks its client: how it goes on, and what
// the client has to be able to do. The capabilities are checked before the handler
// runs. A question of a feature without Asks fails with ErrNotAsking: nobody but
// the author can tell which of the two is right.
func Asks(how Asking, needs protocol.ClientCapabilities) FeatureOption {
	if how != Waits && how != Reruns {
		panic("server: Asks takes Waits or Reruns")
	}
	return &asks{how, needs}
}

type asks struct {
	how   Asking
	needs protocol.ClientCapabilities
}

func (a *asks) apply(s *settings) { s.asks = a }

// InputRequired is an error that a handler returns to ask by itself, in place of
// the functions that ask. The handler runs again when the client has answered, and
// finds the answers in Request.Answers and its own state in Request.State. The
// state is sealed: the client can neither read nor change it, nor use it twice, nor
// present it with another call.
type InputRequired struct {
	Requests protocol.InputRequests
	State    any // encoded as JSON; nil: none
}

func (*InputRequired) Error() string { return "server: the client has to answer first" }

func requiresInput(err error) bool {
	var required *InputRequired
	return errors.As(err, &required)
}

// State reads the state that the handler returned in InputRequired. It reports
// false in the first round.
func (r *Request) State(into any) (bool, error) {
	if r.call == nil || r.call.asked == nil || r.call.asked.state == nil {
		return false, nil
	}
	return true, protocol.Unmarshal(r.call.asked.state, into)
}

// CallID names the call of a feature that asks. It stays the same in all rounds of
// the call, and is another one when the client begins anew: an idempotency key for
// what the handler calls.
func (r *Request) CallID() string {
	if r.call == nil {
		return ""
	}
	r.call.mu.Lock()
	defer r.call.mu.Unlock()
	if r.call.asked == nil {
		r.call.asked = new(asked)
	}
	if r.call.asked.id == "" {
		r.call.asked.id = rand.Text()
	}
	return r.call.asked.id
}

// Confirm asks the user to agree. It returns nil if the user did, and for nothing
// else: ErrDeclined if the user said no, ErrDismissed if there was no answer.
func Confirm(ctx context.Context, message string) error {
	result, err := question[*protocol.ElicitResult](ctx, &protocol.ElicitParams{
		Message: message, RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`),
	})
	if err != nil {
		return err
	}
	return accepted(result)
}

// Elicit asks the user to fill in a form. T is a flat struct: texts, numbers,
// bools and enums, described by tags as at AddTool; Elicit panics for any other
// type. The first of suggest is what the form begins with. Never ask for secrets.
func Elicit[T any](ctx context.Context, message string, suggest ...T) (T, error) {
	var value T
	form := formOf(reflect.TypeFor[T](), suggest)
	result, err := question[*protocol.ElicitResult](ctx, &protocol.ElicitParams{Message: message, RequestedSchema: form.mustMarshal()})
	if err != nil {
		return value, err
	}
	if err := accepted(result); err != nil {
		return value, err
	}
	return decoderOf[T](form.defaults())(result.Content)
}

// ElicitURL asks the user to open a page. It returns nil when the user has agreed
// to, which does not mean that the user has finished there.
func ElicitURL(ctx context.Context, message, url string) error {
	result, err := question[*protocol.ElicitResult](ctx, &protocol.ElicitParams{Mode: protocol.ElicitURL, Message: message, URL: url})
	if err != nil {
		return err
	}
	return accepted(result)
}

// Sample asks the client's model to go on with a conversation.
func Sample(ctx context.Context, params *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
	return question[*protocol.CreateMessageResult](ctx, params)
}

// Roots asks the client for the places that it lets the server work in.
func Roots(ctx context.Context) ([]protocol.Root, error) {
	result, err := question[*protocol.ListRootsResult](ctx, &protocol.ListRootsParams{})
	if err != nil {
		return nil, err
	}
	return result.Roots, nil
}

// Ask asks several questions at once, each under a key that is its own within the
// call. It returns an answer for each of them. The same question under the same
// key is not asked twice; another one fails with ErrKeyUsed. A user who declines
// has answered.
func Ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error) {
	a, err := askerFrom(ctx)
	if err != nil {
		return nil, err
	}
	return a.ask(ctx, asked)
}

// question asks one question, under its number in the call.
func question[A protocol.InputResponse](ctx context.Context, q protocol.InputRequest) (answer A, err error) {
	a, err := askerFrom(ctx)
	if err != nil {
		return answer, err
	}
	key := a.nextKey()
	all, err := a.ask(ctx, protocol.InputRequests{key: q})
	if err != nil {
		return answer, err
	}
	answer, ok := all[key].(A)
	if !ok {
		return answer, &AnswerError{key, fmt.Errorf("it is a %T", all[key])}
	}
	return answer, nil
}

// accepted returns nil if the user agreed, and for nothing else.
func accepted(result *protocol.ElicitResult) error {
	switch result.Action {
	case protocol.ElicitAccept:
		return nil
	case protocol.ElicitDecline:
		return ErrDeclined
	default:
		return ErrDismissed
	}
}

// formOf returns the schema of a form. It panics if the type is not flat.
func formOf[T any](t reflect.Type, suggest []T) inferred {
	form := inferObject(t)
	form.AdditionalProperties = nil
	for name, property := range form.Properties {
		if len(property.Types) == 2 && slices.Contains(property.Types, "null") { // a pointer
			property.Type = slices.DeleteFunc(property.Types, func(kind string) bool { return kind == "null" })[0]
			property.Types = nil
		}
		enums := property.Type == "array" && property.Items != nil && len(property.Items.Enum) > 0
		if !enums && !slices.Contains([]string{"string", "integer", "number", "boolean"}, property.Type) {
			panic(fmt.Sprintf("server: a form of %v: the field %q is neither text, number, bool nor enum", t, name))
		}
	}
	if len(suggest) == 0 {
		return form
	}
	raw, err := encodeTyped(suggest[0])
	var values map[string]json.RawMessage
	if err = errors.Join(err, protocol.Unmarshal(raw, &values)); err != nil {
		panic(fmt.Sprintf("server: a form of %v: %v", t, err))
	}
	for name, value := range values {
		if property := form.Properties[name]; property != nil && string(value) != `""` && string(value) != "null" {
			property.Default = value
		}
	}
	return form
}

// An asker stands behind the questions of one call.
type asker interface {
	// nextKey returns the number of the next question, as its key.
	nextKey() string

	// ask returns an answer for each question. Several calls wait for each other.
	ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error)
}

func askerFrom(ctx context.Context) (asker, error) {
	r := RequestFrom(ctx)
	switch {
	case r == nil || r.call == nil:
		return nil, ErrNoRequest
	case r.call.asked == nil || r.call.asked.asker == nil:
		return nil, ErrNotAsking
	default:
		return r.call.asked.asker, nil
	}
}

// askedBefore holds what a call has asked, and the answers that came.
type askedBefore struct {
	digests map[string]digest
	answers protocol.InputResponses
}

// A digest tells questions apart.
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

// take notes questions, and returns those that have no answer yet. It fails with
// ErrKeyUsed if a key belongs to another question.
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

// give notes answers.
func (b *askedBefore) give(answers protocol.InputResponses) {
	if b.answers == nil {
		b.answers = make(protocol.InputResponses)
	}
	maps.Copy(b.answers, answers)
}

// to returns the answers to questions.
func (b *askedBefore) to(asked protocol.InputRequests) protocol.InputResponses {
	all := make(protocol.InputResponses, len(asked))
	for key := range asked {
		all[key] = b.answers[key]
	}
	return all
}

// checkAnswer reports what is wrong with an answer.
func checkAnswer(ctx context.Context, key string, q protocol.InputRequest, answer protocol.InputResponse) error {
	var problem error
	switch q := q.(type) {
	case *protocol.ElicitParams:
		problem = checkElicited(ctx, q, answer)
	case *protocol.CreateMessageParams:
		if _, ok := answer.(*protocol.CreateMessageResult); !ok {
			problem = errors.New("it is no message of a model")
		}
	case *protocol.ListRootsParams:
		if _, ok := answer.(*protocol.ListRootsResult); !ok {
			problem = errors.New("it is no list of roots")
		}
	}
	if problem != nil {
		return &AnswerError{key, problem}
	}
	return nil
}

func checkElicited(ctx context.Context, q *protocol.ElicitParams, answer protocol.InputResponse) error {
	result, ok := answer.(*protocol.ElicitResult)
	if !ok {
		return errors.New("it is no answer to an elicitation")
	}
	switch result.Action {
	case protocol.ElicitDecline, protocol.ElicitCancel:
		return nil
	case protocol.ElicitAccept:
	default:
		return fmt.Errorf("unknown action %q", shorten(result.Action, longestName))
	}
	if q.Mode == protocol.ElicitURL || len(q.RequestedSchema) == 0 {
		return nil
	}
	form, err := schema.Compile(q.RequestedSchema)
	if err != nil {
		return err
	}
	if len(result.Content) == 0 {
		result.Content = json.RawMessage("{}")
	}
	if err := form.Validate(ctx, result.Content); err != nil {
		return errors.New(explain(err))
	}
	return nil
}

// canBeAsked reports with an UnsupportedError what the client lacks for a question.
func canBeAsked(c *Client, asked protocol.InputRequests) error {
	for _, q := range asked {
		names := []string{"roots"}
		switch q := q.(type) {
		case *protocol.ElicitParams:
			names = []string{"elicitation.form"}
			if q.Mode == protocol.ElicitURL {
				names = []string{"elicitation.url"}
			}
		case *protocol.CreateMessageParams:
			names = []string{"sampling"}
			if q.Tools != nil || q.ToolChoice != nil {
				names = append(names, "sampling.tools")
			}
			if q.IncludeContext != "" && q.IncludeContext != "none" {
				names = append(names, "sampling.context")
			}
		}
		if err := hasAll(c, names); err != nil {
			return err
		}
	}
	return nil
}

// can reports with an UnsupportedError what the client lacks of what a feature
// needs.
func (a *asks) can(c *Client) error {
	var names []string
	if a.needs.Elicitation != nil {
		if a.needs.Elicitation.CanForm() {
			names = append(names, "elicitation.form")
		}
		if a.needs.Elicitation.CanURL() {
			names = append(names, "elicitation.url")
		}
	}
	for _, name := range []string{"sampling", "sampling.tools", "sampling.context", "roots"} {
		if a.needs.Has(name) {
			names = append(names, name)
		}
	}
	for name := range a.needs.Extensions {
		names = append(names, "extensions."+name)
	}
	return hasAll(c, names)
}

func hasAll(c *Client, names []string) error {
	for _, name := range names {
		if !c.Capabilities.Has(name) {
			return &UnsupportedError{Capability: name, required: declaring(name)}
		}
	}
	return nil
}

// declaring returns the capabilities of a client that declares just this.
func declaring(name string) (c protocol.ClientCapabilities) {
	here := &protocol.Capability{}
	switch name {
	case "elicitation.form":
		c.Elicitation = &protocol.ElicitationCapability{Form: here}
	case "elicitation.url":
		c.Elicitation = &protocol.ElicitationCapability{URL: here}
	case "sampling":
		c.Sampling = &protocol.SamplingCapability{}
	case "sampling.tools":
		c.Sampling = &protocol.SamplingCapability{Tools: here}
	case "sampling.context":
		c.Sampling = &protocol.SamplingCapability{Context: here}
	case "roots":
		c.Roots = &protocol.RootsCapability{}
	default:
		c.Extensions = map[string]json.RawMessage{name[len("extensions."):]: json.RawMessage("{}")}
	}
	return c
}

// direct asks a legacy client by requests on the stream of the call.
type direct struct {
	call   *call
	mu     sync.Mutex
	number int
	rounds int
	before askedBefore
}

func (d *direct) nextKey() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.number++
	return fmt.Sprint(d.number)
}

func (d *direct) ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := canBeAsked(d.call.Client, asked); err != nil {
		return nil, err
	}
	open, err := d.before.take(asked)
	if err != nil {
		return nil, err
	}
	if len(open) > 0 {
		answers, err := d.put(ctx, open)
		if err != nil {
			return nil, err
		}
		d.before.give(answers)
	}
	return d.before.to(asked), nil
}

// put asks the client side by side, and waits for all answers. The first failure
// ends the other questions.
func (d *direct) put(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error) {
	s := d.call.peer.server
	if d.rounds++; d.rounds > s.rounds.options.MaxRounds {
		return nil, fmt.Errorf("%w: the call has asked %d times already", ErrUnanswered, d.rounds-1)
	}
	if d.call.peer.questions.Add(int32(len(open))) > mostQuestions {
		d.call.peer.questions.Add(-int32(len(open)))
		return nil, fmt.Errorf("%w: the client has %d open questions", ErrUnanswered, mostQuestions)
	}
	defer d.call.peer.questions.Add(-int32(len(open)))
	ctx, cancel := s.rounds.bound(ctx)
	defer cancel(nil)
	answers := make(protocol.InputResponses, len(open))
	var first error
	var mu sync.Mutex
	var asking sync.WaitGroup
	for key, q := range open {
		asking.Go(func() {
			answer, err := d.call.put(ctx, key, q)
			mu.Lock()
			defer mu.Unlock()
			answers[key] = answer
			if err != nil && first == nil {
				first = err
				cancel(err)
			}
		})
	}
	asking.Wait()
	return answers, first
}

// mostQuestions bounds the questions that one legacy client has not answered.
const mostQuestions = 32

// put asks a legacy client one question, through the middleware.
func (c *call) put(ctx context.Context, key string, q protocol.InputRequest) (protocol.InputResponse, error) {
	if page, ok := q.(*protocol.ElicitParams); ok && page.Mode == protocol.ElicitURL && page.ElicitationID == "" {
		copied := *page
		copied.ElicitationID = rand.Text()
		q = &copied
	}
	result, err := c.peer.server.handle(ctx, &Request{
		Method: q.Method(), Params: q, Client: c.Client, Session: c.Session, Origin: c.Origin,
		Outgoing: true, call: c, peer: c.peer,
	})
	if err != nil {
		return nil, unanswered(ctx, err)
	}
	answer, ok := result.(protocol.InputResponse)
	if !ok {
		return nil, &AnswerError{key, fmt.Errorf("it is a %T", result)}
	}
	return answer, checkAnswer(ctx, key, q, answer)
}

// put is the innermost handler of a question.
func (r *Request) put(ctx context.Context) (any, error) {
	raw, err := protocol.Marshal(r.Params)
	if err != nil {
		return nil, err
	}
	reply, err := r.call.in.Call(ctx, conn.Request{Method: r.Method, Params: raw, Timeout: -1})
	if err != nil {
		return nil, err
	}
	var answer protocol.InputResponse
	switch r.Params.(type) {
	case *protocol.ElicitParams:
		answer = new(protocol.ElicitResult)
	case *protocol.CreateMessageParams:
		answer = new(protocol.CreateMessageResult)
	default:
		answer = new(protocol.ListRootsResult)
	}
	if err := protocol.Unmarshal(reply, answer); err != nil {
		return nil, &AnswerError{r.Method, errors.New(explain(err))}
	}
	return answer, nil
}

// unanswered says why a question has no answer: the client's error, or what ended
// the wait.
func unanswered(ctx context.Context, err error) error {
	var fault *jsonrpc.Error
	switch {
	case errors.As(err, &fault) && fault.Code == protocol.CodeUserRejected:
		return fmt.Errorf("%w: %s", ErrDeclined, shorten(fault.Message, longestMessage))
	case errors.As(err, &fault): // the client's error is not the answer to the call
		return fmt.Errorf("the client refused the question: %s (%d)", shorten(fault.Message, longestMessage), fault.Code)
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), ErrUnanswered):
		return fmt.Errorf("%w: %w", ErrUnanswered, context.Cause(ctx))
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return err
	}
}
