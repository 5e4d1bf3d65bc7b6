package client

import (
	"context"
	"fmt"

	"github.com/bowline-mcp/bowline/protocol"
)

func (s *Session) sample(ctx context.Context, p *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
	if (p.Tools != nil || p.ToolChoice != nil) && !s.client.options.SampleTools {
		return nil, invalidParams("the client did not declare sampling.tools")
	}
	if err := checkToolUses(p.Messages); err != nil {
		return nil, err
	}
	result, err := s.client.options.Sample(ctx, s, p)
	switch {
	case err != nil:
		return nil, err
	case result == nil:
		return nil, errNoAnswer
	case len(result.Content) != 1 && s.Server().ProtocolVersion < protocol.Version20251125:
		return inOneBlock(result)
	}
	return result, nil
}

// checkToolUses refuses a conversation in which a use of a tool has no result in the next
// message, or in which a message with results holds anything else (2025-11-25
// client/sampling).
func checkToolUses(messages protocol.SamplingMessages) error {
	var open map[string]bool // the ids of the uses in the last message
	for _, message := range messages {
		uses, results := make(map[string]bool), 0
		for _, block := range message.Content {
			switch block := block.(type) {
			case *protocol.ToolUseContent:
				uses[block.ID] = true
			case *protocol.ToolResultContent:
				if results++; message.Role == protocol.RoleUser {
					delete(open, block.ToolUseID)
				}
			}
		}
		if results > 0 && results < len(message.Content) {
			return invalidParams("a message with a tool_result holds something else")
		}
		if err := allAnswered(open); err != nil {
			return err
		}
		open = uses
	}
	return allAnswered(open)
}

func allAnswered(open map[string]bool) error {
	for id := range open {
		return invalidParams("the tool_use %.100q has no tool_result in the next message", id)
	}
	return nil
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
