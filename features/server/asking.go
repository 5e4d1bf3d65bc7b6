package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/bowline-mcp/bowline/protocol"
)

// Asking says how a feature goes on after it has asked its client. In the legacy
// revisions a question is a request on the stream of the call. In 2026-07-28 the
// call ends with the question and comes back with the answer, as a new round.
// Waits and Reruns each mean the same in both eras (ADR-0031).
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

// CallID names the call of a feature that asks. It stays the same in all rounds
// of the call. A client that begins the call again gets another one. Use it as an
// idempotency key for what the handler calls.
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
// to, which does not mean that the user has finished there: a server of 2025-11-25
// that tells by Session.ElicitationComplete asks by Ask, with an ElicitationID of its
// own.
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

// Ask asks several questions at once and returns the answers, under the same
// keys. Choose the keys yourself: each names one question of the call. Asking the
// same question under the same key again returns the same answer; a different
// question under that key fails with ErrKeyUsed. A user who declines has
// answered, too: see the Action of an ElicitResult.
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
