package client

import (
	"context"
	"fmt"

	"github.com/bowline-mcp/bowline/features/internal/sampling"
	"github.com/bowline-mcp/bowline/protocol"
)

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
	case len(result.Content) != 1 && s.Server().ProtocolVersion < protocol.Version20251125:
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
