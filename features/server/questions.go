package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/bowline-mcp/bowline/features/internal/refusal"
	"github.com/bowline-mcp/bowline/features/internal/sampling"
	"github.com/bowline-mcp/bowline/features/server/internal/asking"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// canBeAsked returns an UnsupportedError if the client lacks a capability that a
// question needs. It also refuses a conversation that leaves the use of a tool unanswered.
func canBeAsked(c *Client, asked protocol.InputRequests) error {
	for key, q := range asked {
		if err := hasAll(c, neededBy(q)); err != nil {
			return err
		}
		if q, ok := q.(*protocol.CreateMessageParams); ok && revision.Has(c.ProtocolVersion, revision.SamplingTools) {
			if err := sampling.CheckToolUses(q.Messages); err != nil {
				return fmt.Errorf("server: the question %q: %w", key, err)
			}
		}
	}
	return nil
}

// neededBy returns the capabilities that a client needs for a question.
func neededBy(q protocol.InputRequest) []string {
	switch q := q.(type) {
	case *protocol.ElicitParams:
		if q.Mode == protocol.ElicitURL {
			return []string{"elicitation.url"}
		}
		return []string{"elicitation.form"}
	case *protocol.CreateMessageParams:
		names := []string{"sampling"}
		if q.Tools != nil || q.ToolChoice != nil {
			names = append(names, "sampling.tools")
		}
		if q.IncludeContext != "" && q.IncludeContext != "none" {
			names = append(names, "sampling.context")
		}
		return names
	default:
		return []string{"roots"}
	}
}

// fitting returns questions in the form for a client.
func (c *Client) fitting(asked protocol.InputRequests) (protocol.InputRequests, error) {
	if err := canBeAsked(c, asked); err != nil {
		return nil, err
	}
	return questionsIn(c.ProtocolVersion, asked)
}

// checkClient returns an UnsupportedError if the client lacks a capability that a feature needs.
func (o *askingOption) checkClient(c *Client) error {
	var names []string
	if o.needs.Elicitation != nil {
		if o.needs.Elicitation.CanForm() {
			names = append(names, "elicitation.form")
		}
		if o.needs.Elicitation.CanURL() {
			names = append(names, "elicitation.url")
		}
	}
	for _, name := range []string{"sampling", "sampling.tools", "sampling.context", "roots"} {
		if o.needs.Has(name) {
			names = append(names, name)
		}
	}
	for name := range o.needs.Extensions {
		names = append(names, "extensions."+name)
	}
	return hasAll(c, names)
}

// hasAll returns an UnsupportedError unless the client has all these capabilities. A
// capability that the client's revision does not have counts as missing, because the
// client would not understand the questions that need it. Only "sampling.context" is not
// needed there: a client of an older revision may always be asked for context.
// It is checked twice: for what the feature has declared, before its handler runs, and for each question, which may
// need more.
func hasAll(c *Client, names []string) error {
	for _, name := range names {
		if name == "sampling.context" && !revision.Has(c.ProtocolVersion, revision.SamplingContextCapability) {
			continue
		}
		if !c.Capabilities.Has(name) || !revisionHas(c.ProtocolVersion, name) {
			return &UnsupportedError{Capability: name, required: declaring(name)}
		}
	}
	return nil
}

// revisionHas reports whether a revision has a capability of clients.
func revisionHas(version, name string) bool {
	switch name {
	case "elicitation.form":
		return revision.Has(version, revision.Elicitation)
	case "elicitation.url":
		return revision.Has(version, revision.URLElicitation)
	case "sampling.tools":
		return revision.Has(version, revision.SamplingTools)
	default:
		return true
	}
}

// declaring returns capabilities with only this one.
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

// askClient asks a legacy client several questions concurrently, and waits for all answers.
// The first failure cancels the others.
func (c *call) askClient(ctx context.Context, open protocol.InputRequests) (protocol.InputResponses, error) {
	count := int32(len(open))
	// Counted before anything is sent, and until nothing of the questions is left: a client never has more than
	// mostQuestions, whatever number of calls asks it.
	defer c.peer.questions.Add(-count)
	if c.peer.questions.Add(count) > mostQuestions {
		return nil, fmt.Errorf("%w: the client has %d open questions", ErrUnanswered, mostQuestions)
	}
	ctx, cancel := c.peer.server.askingCalls.Bound(ctx)
	defer cancel(nil)
	return c.askAll(ctx, cancel, open)
}

// askAll asks all questions at the same time, and waits for all of them, also after a failure: nothing of a question may
// be left when the call goes on. The last is asked on the goroutine that waits: mostly there is only one, and then the
// call holds no second stack while a person thinks.
func (c *call) askAll(ctx context.Context, cancel context.CancelCauseFunc, open protocol.InputRequests) (protocol.InputResponses, error) {
	answers := make(protocol.InputResponses, len(open))
	var first error
	var mu sync.Mutex
	ask := func(key string, q protocol.InputRequest) {
		var answer protocol.InputResponse
		err := c.peer.guarded(q.Method(), func() (err error) {
			answer, err = c.askOne(ctx, key, q)
			return err
		})
		mu.Lock()
		defer mu.Unlock()
		answers[key] = answer
		// The first failure is the one that is told; those that it causes in the others say nothing new.
		if err != nil && first == nil {
			first = err
			cancel(err)
		}
	}
	var waiting sync.WaitGroup
	left := len(open)
	for key, q := range open {
		if left--; left == 0 {
			ask(key, q)
		} else {
			waiting.Go(func() { ask(key, q) })
		}
	}
	waiting.Wait()
	return answers, first
}

// mostQuestions limits the unanswered questions to one legacy client.
const mostQuestions = 32

// askOne asks a legacy client one question, through the middleware, and waits for the answer.
func (c *call) askOne(ctx context.Context, key string, q protocol.InputRequest) (protocol.InputResponse, error) {
	if page, ok := q.(*protocol.ElicitParams); ok && page.Mode == protocol.ElicitURL && page.ElicitationID == "" {
		// The revision requires an id (2025-11-25 client/elicitation), by which the client would learn that the user
		// has finished. The program may ask the same question elsewhere, so a copy gets it.
		copied := *page
		copied.ElicitationID = rand.Text()
		q = &copied
	}
	result, err := c.peer.server.handle(ctx, &Request{
		Method: q.Method(), Params: q, Client: c.Client, Session: c.Session, Origin: c.Origin,
		Outgoing: true, call: c, peer: c.peer, sent: new(int64),
	})
	if err != nil {
		return nil, unanswered(ctx, err)
	}
	answer, ok := result.(protocol.InputResponse)
	if !ok {
		return nil, &AnswerError{Key: key, Err: fmt.Errorf("it is a %T", result)}
	}
	return answer, asking.CheckAnswer(ctx, key, q, answer)
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
		return asking.UnansweredBy(context.Cause(ctx))
	default:
		return err
	}
}

// undeclared refuses a modern client that did not declare an extension.
func undeclared(c *call, extension string) error {
	name := "extensions." + extension
	return c.fault(&UnsupportedError{Capability: name, required: declaring(name)})
}

// declared refuses modern clients that did not declare an extension.
func declared(c *call, extension string) error {
	if c.modern && !c.Client.Capabilities.Has("extensions."+extension) {
		return undeclared(c, extension)
	}
	return nil
}
