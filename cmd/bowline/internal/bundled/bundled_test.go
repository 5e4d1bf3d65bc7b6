package bundled_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/bundled"
	"github.com/bowline-mcp/bowline/conn"
	"github.com/bowline-mcp/bowline/features/client"
	"github.com/bowline-mcp/bowline/mcptest"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/transport"
	"github.com/bowline-mcp/bowline/transport/inmem"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect serves the bundled server in memory, for one session. The function
// ends both; the test reads its log after that.
func connect(t *testing.T, o bundled.Options) (session *client.Session, end func()) {
	t.Helper()
	served := make(chan error, 1)
	accept := func(link transport.Link) {
		go func() { served <- bundled.New(o).ServeLink(context.Background(), link) }()
	}
	c := client.New(protocol.Implementation{Name: "test", Version: "1"}, client.Options{FailFast: true})
	session, err := c.Connect(t.Context(), mcptest.Check(t, inmem.New(accept, inmem.Options{})))
	if err != nil {
		t.Fatal(err)
	}
	return session, func() {
		if err := errors.Join(session.Close(context.Background()), <-served); err != nil {
			t.Error(err)
		}
	}
}

// TestToolsExplainThemselves checks that each tool and each argument has a description.
func TestToolsExplainThemselves(t *testing.T) {
	session, end := connect(t, bundled.Options{})
	defer end()
	var names []string
	for tool, err := range session.Tools(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
		var schema struct {
			Properties           map[string]struct{ Description string }
			AdditionalProperties *bool
		}
		if err := json.Unmarshal(tool.InputSchema, &schema); err != nil {
			t.Fatal(err)
		}
		if tool.Description == "" || schema.AdditionalProperties == nil || *schema.AdditionalProperties {
			t.Errorf("%s has no description, or accepts any arguments", tool.Name)
		}
		for key, property := range schema.Properties {
			if property.Description == "" {
				t.Errorf("%s: %s has no description", tool.Name, key)
			}
		}
	}
	if got := strings.Join(names, " "); got != "add big crash echo fail slow" {
		t.Errorf("the tools are %s", got)
	}
}

func TestArgumentsHaveBounds(t *testing.T) {
	session, end := connect(t, bundled.Options{})
	defer end()
	for _, c := range []struct{ tool, arguments string }{
		{"echo", `{}`},
		{"echo", `{"message": "a", "volume": 11}`},
		{"add", `{"a": 1e300, "b": 1}`},
		{"big", `{"bytes": 8388609}`},
		{"big", `{"bytes": -1}`},
		{"slow", `{"seconds": -1}`},
		{"slow", `{"seconds": 1, "steps": 0}`},
		{"crash", `{"status": 256}`},
	} {
		result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: c.tool, Arguments: json.RawMessage(c.arguments)})
		if err != nil || !result.IsError || !strings.HasPrefix(result.Content.Text(), "invalid arguments") {
			t.Errorf("%s %s: %+v, %v", c.tool, c.arguments, result, err)
		}
	}
}

// TestSlowIsCancelled checks that a cancelled tool stops and logs that.
func TestSlowIsCancelled(t *testing.T) {
	var log bytes.Buffer
	session, end := connect(t, bundled.Options{Log: &log})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := session.With(client.CallOptions{OnProgress: func(*protocol.ProgressParams) { cancel() }}).
		CallTool(ctx, &protocol.CallToolParams{Name: "slow", Arguments: json.RawMessage(`{"seconds": 60, "steps": 1000}`)})
	var call *conn.CallError
	if !errors.As(err, &call) || call.Cause != conn.Cancelled {
		t.Errorf("the call ended with %v", err)
	}
	end()
	if want := "steps: " + conn.ErrPeerCancelled.Error(); !strings.Contains(log.String(), want) {
		t.Errorf("the log is %q, want %q in it", log.String(), want)
	}
}

func TestCrashExitsWithItsStatus(t *testing.T) {
	for arguments, want := range map[string]int{`{}`: 1, `{"status": 0}`: 0, `{"status": 42}`: 42} {
		var log bytes.Buffer
		exited := make(chan int, 1)
		session, end := connect(t, bundled.Options{Log: &log, Exit: func(status int) { exited <- status }})
		if _, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: "crash", Arguments: json.RawMessage(arguments)}); err != nil {
			t.Error(err)
		}
		end()
		if got := <-exited; got != want || !strings.Contains(log.String(), "crash: ending") {
			t.Errorf("%s: status %d, want %d; log %q", arguments, got, want, log.String())
		}
	}
}

// TestFixturesAnswer calls each fixture of the conformance suite once.
func TestFixturesAnswer(t *testing.T) {
	session, end := connect(t, bundled.Options{Fixtures: true})
	defer end()
	names := map[string]bool{}
	for tool, err := range session.Tools(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names[tool.Name] = true
		if tool.Description == "" {
			t.Errorf("%s has no description", tool.Name)
		}
	}
	for _, name := range []string{"test_simple_text", "test_image_content", "test_audio_content", "test_embedded_resource", "test_multiple_content_types",
		"test_tool_with_progress", "test_tool_with_logging", "test_logging_tool", "test_trigger_tool_change", "test_trigger_prompt_change"} {
		result, err := session.CallTool(t.Context(), &protocol.CallToolParams{Name: name})
		if !names[name] || err != nil || result.IsError || len(result.Content) == 0 {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
	for uri, want := range map[string]string{
		"test://static-text": "This is the content of the static text resource.", "test://template/123/data": `{"data":"Data for ID: 123","id":"123","templateTest":true}`,
	} {
		result, err := session.ReadResource(t.Context(), &protocol.ReadResourceParams{URI: uri})
		if err != nil || result.Text() != want {
			t.Errorf("%s: %+v, %v", uri, result, err)
		}
	}
	prompt, err := session.GetPrompt(t.Context(), &protocol.GetPromptParams{Name: "test_prompt_with_arguments", Arguments: map[string]string{"arg1": "a", "arg2": "b"}})
	if err != nil || len(prompt.Messages) != 1 {
		t.Errorf("%+v, %v", prompt, err)
	}
}
