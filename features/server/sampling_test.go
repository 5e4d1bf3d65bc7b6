package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

// modelClient returns the options of a client whose model says hello. Calls counts them.
func modelClient(calls *atomic.Int64) client.Options {
	return client.Options{SampleTools: true,
		Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			calls.Add(1)
			return &protocol.CreateMessageResult{Role: protocol.RoleAssistant, Model: "m", Content: protocol.SamplingContents{protocol.Text("hello")}}, nil
		}}
}

// Before 2025-11-25, every client with a model may be asked to include the context of the
// server. Since then, only a client that has declared it.
//
// Guarantees: G-0031.3
func TestContextNeedsACapabilityOnlySinceItExists(t *testing.T) {
	needs := protocol.ClientCapabilities{Sampling: &protocol.SamplingCapability{Context: &protocol.Capability{}}}
	newAsking := func() *server.Server {
		s := newServer(server.Options{})
		for name, needs := range map[string]protocol.ClientCapabilities{"asks": {}, "needs": needs} {
			server.AddTool(s, protocol.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) {
				answer, err := server.Sample(ctx, &protocol.CreateMessageParams{MaxTokens: 1, IncludeContext: "thisServer",
					Messages: []protocol.SamplingMessage{{Role: protocol.RoleUser, Content: protocol.SamplingContents{protocol.Text("hi")}}}})
				if err != nil {
					return "", err
				}
				return answer.Content.Text(), nil
			}, server.Asks(server.Reruns, needs))
		}
		return s
	}
	var calls atomic.Int64
	everywhere(t, newAsking, modelClient(&calls), func(t *testing.T, _ *server.Server, session *client.Session) {
		for _, name := range []string{"asks", "needs"} {
			result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
			if asked := err == nil && !result.IsError && result.Content.Text() == "hello"; asked != (session.Server().ProtocolVersion < protocol.Version20251125) {
				t.Errorf("%s: got %+v, %v, want an answer only before %s", name, result, err, protocol.Version20251125)
			}
		}
	})
}

// A conversation in which the next message does not answer every use of a tool, and nothing
// else, is refused before it is sent (2025-11-25 client/sampling).
//
// Guarantees: G-0031.12
func TestEveryUseOfAToolMustBeAnswered(t *testing.T) {
	use := func(id string) protocol.Content {
		return &protocol.ToolUseContent{ID: id, Name: "t", Input: json.RawMessage(`{}`)}
	}
	result := func(id string) protocol.Content {
		return &protocol.ToolResultContent{ToolUseID: id, Content: protocol.Texts("sunny")}
	}
	text := protocol.Text("and?")
	conversations := map[string][][]protocol.Content{
		"answered":             {{text}, {text, use("a"), use("b")}, {result("b"), result("a")}, {text}},
		"never_answered":       {{text}, {use("a")}},
		"not_answered_at_once": {{text}, {use("a")}, {text}, {result("a")}},
		"one_is_not_answered":  {{text}, {use("a"), use("b")}, {result("a")}},
		"answered_with_text":   {{text}, {use("a")}, {result("a"), text}},
		"another_was_answered": {{text}, {use("a")}, {result("b")}},
		"text_with_a_result":   {{text, result("a")}},
	}
	newAsking := func() *server.Server {
		s := newServer(server.Options{})
		for name, conversation := range conversations {
			params := &protocol.CreateMessageParams{MaxTokens: 1, Tools: []*protocol.Tool{{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)}}}
			for i, content := range conversation {
				role := []protocol.Role{protocol.RoleUser, protocol.RoleAssistant}[i%2]
				params.Messages = append(params.Messages, protocol.SamplingMessage{Role: role, Content: content})
			}
			server.AddTool(s, protocol.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) {
				_, err := server.Sample(ctx, params)
				return "asked", err
			}, server.Asks(server.Reruns, protocol.ClientCapabilities{}))
			server.AddTool(s, protocol.Tool{Name: name + "_explicitly"}, func(ctx context.Context, _ struct{}) (string, error) {
				if len(server.RequestFrom(ctx).Answers) > 0 {
					return "asked", nil
				}
				return "", &server.InputRequired{Requests: protocol.InputRequests{"q": params}}
			})
		}
		return s
	}
	var calls atomic.Int64
	everywhereSince(t, protocol.Version20251125, newAsking, modelClient(&calls), func(t *testing.T, _ *server.Server, session *client.Session) {
		for name := range conversations {
			for _, name := range []string{name, name + "_explicitly"} {
				calls.Store(0)
				result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
				if strings.HasPrefix(name, "answered") && !strings.HasPrefix(name, "answered_with") {
					if err != nil || result.IsError || calls.Load() != 1 {
						t.Errorf("%s: got %+v, %v, want no error", name, result, err)
					}
					continue
				}
				if err == nil && result.IsError {
					err = errors.New(result.Content.Text())
				}
				if err == nil || !strings.Contains(err.Error(), "tool") || calls.Load() != 0 {
					t.Errorf("%s: got %+v, %v after %d questions, want an error about the use of a tool, and no question", name, result, err, calls.Load())
				}
			}
		}
	})
}
