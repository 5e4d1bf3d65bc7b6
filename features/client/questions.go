package client

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"strings"

	"github.com/bowline-mcp/bowline/features/internal/sampling"
	"github.com/bowline-mcp/bowline/internal/revision"
	"github.com/bowline-mcp/bowline/protocol"
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
// the form: in MCP the action "cancel", which cancels no call.
func Dismiss() (*protocol.ElicitResult, error) {
	return &protocol.ElicitResult{Action: protocol.ElicitCancel}, nil
}

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
	lists := revision.Has(s.Server().ProtocolVersion, revision.ListFields)
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
	return &protocol.ListRootsResult{Roots: append([]protocol.Root{}, roots...)}, nil
}

func (s *Session) sample(ctx context.Context, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
	if (p.Tools != nil || p.ToolChoice != nil) && !s.client.options.SampleTools {
		return nil, invalidParams("the client did not declare sampling.tools")
	}
	if err := sampling.CheckToolUses(p.Messages); err != nil {
		return nil, invalidParams("%v", err)
	}
	result, err := s.client.options.Sample(ctx, s, p)
	switch {
	case err != nil:
		return nil, err
	case result == nil:
		return nil, errNoAnswer
	case len(result.Content) != 1 && !revision.Has(s.Server().ProtocolVersion, revision.SamplingTools):
		return inOneBlock(result)
	}
	return result, nil
}

// inOneBlock returns an answer with one block, the only form before 2025-11-25. Text blocks
// become one.
func inOneBlock(result *protocol.CreateMessageResult) (*protocol.CreateMessageResult, error) {
	for _, block := range result.Content {
		if _, ok := block.(*protocol.TextContent); !ok {
			return nil, fmt.Errorf("client: the handler returned %d blocks, and before 2025-11-25 an answer has one, or only text", len(result.Content))
		}
	}
	one := *result
	one.Content = protocol.SamplingContents{protocol.Text(result.Content.Text())}
	return &one, nil
}
