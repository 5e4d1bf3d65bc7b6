// Package sampling checks the conversations of sampling/createMessage, which both a server that
// asks and a client that is asked must do.
package sampling

import (
	"fmt"
	"maps"
	"slices"

	"github.com/bowline-mcp/bowline/protocol"
)

// CheckToolUses returns an error unless each use of a tool is answered in the very next message,
// which is the user's and holds nothing but such results (2025-11-25 client/sampling).
func CheckToolUses(messages []protocol.SamplingMessage) error {
	unanswered := make(map[string]bool) // the uses of the message before
	for i, message := range messages {
		uses, results := make(map[string]bool), 0
		for _, block := range message.Content {
			switch block := block.(type) {
			case *protocol.ToolUseContent:
				uses[block.ID] = true
			case *protocol.ToolResultContent:
				if results++; message.Role == protocol.RoleUser {
					delete(unanswered, block.ToolUseID)
				}
			}
		}
		if results > 0 && results < len(message.Content) {
			return fmt.Errorf("message %d holds a tool_result and something else: put the results into a message of their own", i)
		}
		if len(unanswered) > 0 {
			return fmt.Errorf("message %d does not answer the tool_use %.100q of the message before: add its tool_result", i, firstOf(unanswered))
		}
		unanswered = uses
	}
	if len(unanswered) > 0 {
		return fmt.Errorf("the tool_use %.100q of the last message is not answered: add a message with its tool_result", firstOf(unanswered))
	}
	return nil
}

func firstOf(ids map[string]bool) string { return slices.Min(slices.Collect(maps.Keys(ids))) }
