package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/bowline-mcp/bowline/features/server/internal/typed"
	"github.com/bowline-mcp/bowline/protocol"
)

// Asks is the option for a feature that asks its client something. It says how the
// handler continues after a question, and which capabilities the client must have.
// The server checks the capabilities before the handler runs. Without Asks, questions
// fail with ErrNotAsking, because only the author knows whether Waits or Reruns is
// right.
func Asks(how Asking, needs protocol.ClientCapabilities) FeatureOption {
	if how != Waits && how != Reruns {
		panic("server: Asks takes Waits or Reruns")
	}
	return &askingOption{how, needs}
}

// Form is the option for a feature that shows a form by Elicit[T]. It panics if T can be no
// form, so that the mistake is found when the feature is added, and not by the first user.
func Form[T any]() FeatureOption {
	formOf[T](reflect.TypeFor[T](), nil)
	return formOption{}
}

type formOption struct{}

func (formOption) apply(*settings) {}

// InputRequired is an error that a handler returns to ask questions itself, as an
// alternative to Confirm, Elicit and the others. When the client has answered, the
// handler runs again and finds the answers in Request.Answers and its own state in
// Request.State. The state is encrypted: the client cannot read it, change it, use it
// twice, or use it in another call.
//
// If Here is set, the handler runs again in this process only, since what it needs is
// here. The state then names Options.Node, so that a handler with a Router forwards the
// next round to this node from any other. If this process has ended, that round is refused.
type InputRequired struct {
	Requests protocol.InputRequests
	State    any // encoded as JSON; nil: there is no state
	Here     bool
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

// CallID identifies the call of a feature that asks. It stays the same in all rounds
// of the call, and differs if the client starts the call again. Use it as an
// idempotency key for what the handler calls.
func (r *Request) CallID() string {
	if r.call == nil {
		return ""
	}
	// Goroutines of the handler may ask for it at the same time, and must get the same. A state that is sealed later
	// contains it.
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

// Confirm asks the user to agree. It returns nil only if the user agreed. It returns
// ErrDeclined if the user said no, and ErrDismissed if the user gave no answer.
func Confirm(ctx context.Context, message string) error {
	result, err := question[*protocol.ElicitResult](ctx, &protocol.ElicitParams{
		Message: message, RequestedSchema: json.RawMessage(`{"type":"object","properties":{}}`),
	})
	if err != nil {
		return err
	}
	return accepted(result)
}

// Elicit asks the user to fill in a form. T is a flat struct of strings, numbers,
// bools and enums, described by tags as in AddTool. Elicit panics for any other type. Add
// the feature with Form[T] to find that out when it is added.
// The first element of suggest fills the form initially. Whatever it suggests, a field that
// the user leaves empty has the default of its tag in the result, or is zero. Never ask for
// secrets.
//
// For a client of 2025-06-18, only bool fields have initial values. Slice fields are left
// out, because that revision has no multiple choice. If such a field is required, Elicit
// fails with ErrUnsupported.
func Elicit[T any](ctx context.Context, message string, suggest ...T) (T, error) {
	var value T
	form, missing := formOf(reflect.TypeFor[T](), suggest)
	result, err := question[*protocol.ElicitResult](ctx, &protocol.ElicitParams{Message: message, RequestedSchema: form.MustMarshal()})
	if err != nil {
		return value, err
	}
	if err := accepted(result); err != nil {
		return value, err
	}
	return typed.Decoder[T](missing)(result.Content)
}

// ElicitURL asks the user to open a page. It returns nil when the user has agreed,
// which does not mean that the user has finished there. To tell a client of
// 2025-11-25 that the user has finished, use Ask with an ElicitationID, and call
// Session.ElicitationComplete later.
func ElicitURL(ctx context.Context, message, url string) error {
	result, err := question[*protocol.ElicitResult](ctx, &protocol.ElicitParams{Mode: protocol.ElicitURL, Message: message, URL: url})
	if err != nil {
		return err
	}
	return accepted(result)
}

// Sample asks the client's model to continue a conversation.
func Sample(ctx context.Context, params *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
	return question[*protocol.CreateMessageResult](ctx, params)
}

// Roots asks the client for its roots: the directories that the server may work in. It asks each time, since behind
// one session there may be several clients, each with its own calls: a gateway. Session.Roots keeps what it was told.
func Roots(ctx context.Context) ([]protocol.Root, error) {
	result, err := question[*protocol.ListRootsResult](ctx, &protocol.ListRootsParams{})
	if err != nil {
		return nil, err
	}
	return result.Roots, nil
}

// Ask asks several questions together and returns the answers under the same keys.
// You choose the keys: each identifies one question of the call. Asking the same
// question under the same key again returns the same answer. A different question
// under that key fails with ErrKeyUsed. If a user declines, that is an answer, too;
// see the Action of an ElicitResult.
func Ask(ctx context.Context, asked protocol.InputRequests) (protocol.InputResponses, error) {
	a, err := questionerFrom(ctx)
	if err != nil {
		return nil, err
	}
	return a.Ask(ctx, asked)
}

// question asks one question, with its number in the call as its key.
func question[A protocol.InputResponse](ctx context.Context, q protocol.InputRequest) (answer A, err error) {
	a, err := questionerFrom(ctx)
	if err != nil {
		return answer, err
	}
	// Before anything waits: with Reruns, the order in which the handler asks is what makes the same question the
	// same in each run.
	key := a.NextKey()
	all, err := a.Ask(ctx, protocol.InputRequests{key: q})
	if err != nil {
		return answer, err
	}
	answer, ok := all[key].(A)
	if !ok {
		return answer, &AnswerError{Key: key, Err: fmt.Errorf("it is a %T", all[key])}
	}
	return answer, nil
}

// accepted returns nil only if the user agreed.
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

// formOf returns the schema of a form, and the defaults of fields that the user leaves
// empty. It panics if the type is not a flat struct.
func formOf[T any](t reflect.Type, suggest []T) (form typed.Schema, missing typed.Defaults) {
	defer prefix("form of", t.String())
	form = typed.InferObject(t, nil)
	// A form has a flat schema, without this keyword and with one type for each field (2025-11-25
	// client/elicitation).
	form.AdditionalProperties = nil
	for name, property := range form.Properties {
		if slices.Contains(property.Types, "null") { // a pointer
			property.Type = slices.DeleteFunc(property.Types, func(kind string) bool { return kind == "null" })[0]
			property.Types = nil
		}
		enums := property.Type == "array" && property.Items != nil && len(property.Items.Enum) > 0
		if !enums && !slices.Contains([]string{"string", "integer", "number", "boolean"}, property.Type) {
			panic(fmt.Sprintf("the field %q is neither text, number, bool nor enum", name))
		}
	}
	// Before the suggestions are put in: what the user leaves out has the default of its tag, and not what was
	// suggested (G-0031.11).
	missing = form.Defaults()
	if len(suggest) == 0 {
		return form, missing
	}
	raw, err := typed.Encode(suggest[0])
	var values map[string]json.RawMessage
	if err = errors.Join(err, protocol.Unmarshal(raw, &values)); err != nil {
		panic(err)
	}
	for name, value := range values {
		if string(value) != `""` && string(value) != "null" { // neither says anything
			form.Properties[name].Default = value
		}
	}
	return form, missing
}
