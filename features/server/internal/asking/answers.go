package asking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
	"github.com/bowline-mcp/bowline/protocol/schema"
)

// An AnswerError says that an answer from the client does not fit its question.
type AnswerError struct {
	Key string // the key of the question
	Err error
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("the answer to %q is not valid: %v", e.Key, e.Err)
}

// Unwrap returns what does not fit.
func (e *AnswerError) Unwrap() error { return e.Err }

// Fitting returns what checks answers while ctx lasts.
func Fitting(ctx context.Context) Fits {
	return func(key string, q protocol.InputRequest, answer protocol.InputResponse) error {
		return CheckAnswer(ctx, key, q, answer)
	}
}

// CheckAnswer returns an error if an answer does not fit its question.
func CheckAnswer(ctx context.Context, key string, q protocol.InputRequest, answer protocol.InputResponse) error {
	var problem error
	switch q := q.(type) {
	case *protocol.ElicitParams:
		problem = checkElicited(ctx, q, answer)
	case *protocol.CreateMessageParams:
		if message, ok := answer.(*protocol.CreateMessageResult); !ok || message.Role == "" || message.Content == nil {
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

// checkElicited may set the content of an answer: that belongs to the request which brought it.
func checkElicited(ctx context.Context, q *protocol.ElicitParams, answer protocol.InputResponse) error {
	result, ok := answer.(*protocol.ElicitResult)
	if !ok {
		return errors.New("it is no answer to an elicitation")
	}
	switch result.Action {
	// Whatever content the client has sent along is not looked at: no form has to be filled in to say no.
	case protocol.ElicitDecline, protocol.ElicitCancel:
		return nil
	case protocol.ElicitAccept:
	default:
		return fmt.Errorf("unknown action %q", refusal.Shorten(result.Action, refusal.LongestName))
	}
	if q.Mode == protocol.ElicitURL || len(q.RequestedSchema) == 0 {
		return nil
	}
	form, err := schema.CompileForm(ctx, q.RequestedSchema)
	if err != nil {
		return err
	}
	// A user may agree to a form and leave all of it empty. The schema decides whether that is enough.
	if len(result.Content) == 0 {
		result.Content = json.RawMessage("{}")
	}
	if err := form.Validate(ctx, result.Content); err != nil {
		return errors.New(refusal.Explain(err))
	}
	return nil
}

// checkKinds is for a client that answers what this process has not asked, so that the questions are unknown. It rejects answers that fit no kind of question, before a state is used up.
// Whether a form is filled in as its schema says is seen when a handler that Reruns asks for it again.
func checkKinds(ctx context.Context, answers protocol.InputResponses) error {
	for key, answer := range answers {
		switch answer := answer.(type) {
		case *protocol.UnknownInputResponse:
			return refusal.New(jsonrpc.CodeInvalidParams, "%v", &AnswerError{key, errors.New("it is no answer to any question")})
		case *protocol.ElicitResult:
			if err := checkElicited(ctx, &protocol.ElicitParams{}, answer); err != nil {
				return refusal.New(jsonrpc.CodeInvalidParams, "%v", &AnswerError{key, err})
			}
		}
	}
	return nil
}
