package sampling

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/bowline-mcp/bowline/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The error of a conversation says which message to change. The tests of client and server check
// more conversations.
func TestErrorsNameTheMessage(t *testing.T) {
	use, result, text := &protocol.ToolUseContent{ID: "a"}, &protocol.ToolResultContent{ToolUseID: "a"}, protocol.Text("hi")
	user, assistant := protocol.RoleUser, protocol.RoleAssistant
	message := func(role protocol.Role, blocks ...protocol.Content) protocol.SamplingMessage {
		return protocol.SamplingMessage{Role: role, Content: blocks}
	}
	for want, messages := range map[string][]protocol.SamplingMessage{
		"": {message(user, text), message(assistant, use), message(user, result)},
		"message 1 holds a tool_result and something else":                    {message(assistant, use), message(user, result, text)},
		`message 1 does not answer the tool_use "a"`:                          {message(assistant, use), message(assistant, result)},
		`the tool_use "a" of the last message is not answered: add a message`: {message(assistant, text, use)},
	} {
		err := CheckToolUses(messages)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
