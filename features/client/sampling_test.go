package client_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// A tool_use must be answered in the next message, and a message with a tool_result holds
// nothing else (2025-11-25 client/sampling). Other conversations do not reach Sample, in
// either era.
func TestToolUseMustBeAnswered(t *testing.T) {
	const (
		use1, use2 = `{"type":"tool_use","id":"1","name":"t","input":{}}`, `{"type":"tool_use","id":"2","name":"t","input":{}}`
		got1, got2 = `{"type":"tool_result","toolUseId":"1","content":[]}`, `{"type":"tool_result","toolUseId":"2","content":[]}`
		text       = `{"type":"text","text":"hi"}`
	)
	message := func(role string, blocks ...string) string {
		return `{"role":"` + role + `","content":[` + strings.Join(blocks, ",") + `]}`
	}
	for name, test := range map[string]struct {
		messages []string
		valid    bool
	}{
		"no tools":                  {[]string{message("user", text, text), message("assistant", text)}, true},
		"answered":                  {[]string{message("user", text), message("assistant", text, use1), message("user", got1)}, true},
		"a single block":            {[]string{`{"role":"assistant","content":` + use1 + `}`, `{"role":"user","content":` + got1 + `}`}, true},
		"two answered":              {[]string{message("assistant", use1, use2), message("user", got2, got1), message("assistant", text)}, true},
		"one after the other":       {[]string{message("assistant", use1), message("user", got1), message("assistant", use2), message("user", got2)}, true},
		"no answer":                 {[]string{message("assistant", use1)}, false},
		"one of two answers":        {[]string{message("assistant", use1, use2), message("user", got1)}, false},
		"the answer to another":     {[]string{message("assistant", use1), message("user", got2)}, false},
		"an answer too late":        {[]string{message("assistant", use1), message("user", text), message("user", got1)}, false},
		"an answer too early":       {[]string{message("user", got1), message("assistant", use1)}, false},
		"an answer by the model":    {[]string{message("assistant", use1), message("assistant", got1)}, false},
		"an answer with more":       {[]string{message("assistant", use1), message("user", got1, text)}, false},
		"an answer with a tool use": {[]string{message("assistant", use1), message("user", got1, use1), message("user", got1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var called atomic.Int64
			o := answers(&called)
			o.SampleTools = true
			params := `{"messages":[` + strings.Join(test.messages, ",") + `],"maxTokens":5}`
			wants, calls := "error -32602", int64(0)
			if test.valid {
				wants, calls = `{"role":"assistant","content":{"type":"text","text":"hello"},"model":"m"}`, 1
			}
			if got := asked(t, o, protocol.MethodCreateMessage, params); got != wants || called.Load() != calls {
				t.Errorf("legacy: got the answer %s and %d calls of Sample, want %s and %d", got, called.Load(), wants, calls)
			}
			called.Store(0)
			o.ProtocolVersion = protocol.Latest
			session := openFake(t, askingServer(`{"s":{"method":"sampling/createMessage","params":`+params+`}}`, nil), o)
			_, err := callTool(t, session, "x", "")
			var fault *jsonrpc.Error
			refused := errors.As(err, &fault) && fault.Code == jsonrpc.CodeInvalidParams
			if refused == test.valid || test.valid && err != nil || called.Load() != calls {
				t.Errorf("modern: got %v and %d calls of Sample, want valid: %t", err, called.Load(), test.valid)
			}
		})
	}
}

// Before 2025-11-25 an answer is one block. Text blocks become one, and other blocks are
// not sent.
func TestAnswerOfOneBlock(t *testing.T) {
	text, picture := protocol.Text, protocol.Image([]byte("x"), "image/png")
	sampling := func(blocks ...protocol.Content) client.Options {
		return client.Options{Sample: func(context.Context, *client.Session, *protocol.CreateMessageParams) (*protocol.CreateMessageResult, error) {
			return &protocol.CreateMessageResult{Role: "assistant", Model: "m", Content: blocks}, nil
		}}
	}
	answer := func(content string) string { return `{"role":"assistant","content":` + content + `,"model":"m"}` }
	block := func(text string) string { return `{"type":"text","text":"` + text + `"}` }
	image := `{"type":"image","data":"eA==","mimeType":"image/png"}`
	for name, test := range map[string]struct {
		o            client.Options
		older, newer string
	}{
		"one text":        {sampling(text("a")), answer(block("a")), answer(block("a"))},
		"two texts":       {sampling(text("a"), text("b")), answer(block(`a\nb`)), answer(`[` + block("a") + `,` + block("b") + `]`)},
		"nothing":         {sampling(), answer(block("")), answer(`[]`)},
		"an image":        {sampling(picture), answer(image), answer(image)},
		"text and images": {sampling(text("a"), picture), "error -32603", answer(`[` + block("a") + `,` + image + `]`)},
	} {
		for _, revision := range []string{protocol.Version20241105, protocol.Version20250326, protocol.Version20250618} {
			if got := askedIn(t, revision, test.o, protocol.MethodCreateMessage, sampleText); got != test.older {
				t.Errorf("%s in %s: got the answer %s, want %s", name, revision, got, test.older)
			}
		}
		if got := askedIn(t, protocol.Version20251125, test.o, protocol.MethodCreateMessage, sampleText); got != test.newer {
			t.Errorf("%s in %s: got the answer %s, want %s", name, protocol.Version20251125, got, test.newer)
		}
	}
}
