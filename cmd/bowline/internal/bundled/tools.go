package bundled

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/protocol"
)

func addTools(s *server.Server, o Options) {
	server.AddTool(s, echoTool, echo)
	server.AddTool(s, addTool, add)
	server.AddTool(s, slowTool, o.slow)
	server.AddTool(s, failTool, fail)
	server.AddTool(s, bigTool, big)
	server.AddTool(s, crashTool, o.crash)
}

var (
	echoTool = protocol.Tool{
		Name:        "echo",
		Description: "Answers with the message it is given.",
		Annotations: &protocol.ToolAnnotations{ReadOnlyHint: true},
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"message": {"type": "string", "description": "what to answer"}
			},
			"required": ["message"],
			"additionalProperties": false
		}`),
	}
	addTool = protocol.Tool{
		Name:        "add",
		Description: "Adds two numbers, and answers with structured content.",
		Annotations: &protocol.ToolAnnotations{ReadOnlyHint: true},
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"a": {"type": "number", "description": "the first number", "minimum": -1e15, "maximum": 1e15},
				"b": {"type": "number", "description": "the second number", "minimum": -1e15, "maximum": 1e15}
			},
			"required": ["a", "b"],
			"additionalProperties": false
		}`),
	}
	slowTool = protocol.Tool{
		Name:        "slow",
		Description: "Takes its time, and tells how far it has come. It ends early when the call is cancelled.",
		Annotations: &protocol.ToolAnnotations{ReadOnlyHint: true},
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"seconds": {"type": "number", "description": "how long to take", "minimum": 0, "maximum": 3600},
				"steps": {"type": "integer", "description": "how many times to tell of progress", "minimum": 1, "maximum": 1000, "default": 10}
			},
			"required": ["seconds"],
			"additionalProperties": false
		}`),
	}
	failTool = protocol.Tool{
		Name:        "fail",
		Description: "Fails, with the message it is given.",
		Annotations: &protocol.ToolAnnotations{ReadOnlyHint: true},
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"message": {"type": "string", "description": "what went wrong", "minLength": 1}
			},
			"required": ["message"],
			"additionalProperties": false
		}`),
	}
	bigTool = protocol.Tool{
		Name:        "big",
		Description: "Answers with a text of the size it is asked for.",
		Annotations: &protocol.ToolAnnotations{ReadOnlyHint: true},
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"bytes": {"type": "integer", "description": "how long the text shall be; 8 MiB at most", "minimum": 0, "maximum": 8388608}
			},
			"required": ["bytes"],
			"additionalProperties": false
		}`),
	}
	crashTool = protocol.Tool{
		Name:        "crash",
		Description: "Ends the server's process at once, without an answer.",
		InputSchema: json.RawMessage(`{
			"type": "object",
			"properties": {
				"status": {"type": "integer", "description": "the exit status", "minimum": 0, "maximum": 255, "default": 1}
			},
			"additionalProperties": false
		}`),
	}
)

type message struct {
	Message string `json:"message"`
}

func echo(_ context.Context, in message) (string, error) {
	return in.Message, nil
}

func fail(_ context.Context, in message) (string, error) {
	return "", errors.New(in.Message)
}

type addends struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

type sum struct {
	Sum float64 `json:"sum" jsonschema:"the two numbers added"`
}

func add(_ context.Context, in addends) (sum, error) {
	return sum{in.A + in.B}, nil
}

type duration struct {
	Seconds float64 `json:"seconds"`
	Steps   *int    `json:"steps"`
}

func (o Options) slow(ctx context.Context, in duration) (string, error) {
	steps := 10
	if in.Steps != nil {
		steps = *in.Steps
	}
	whole := time.Duration(in.Seconds * float64(time.Second))
	timer := time.NewTimer(0)
	defer timer.Stop()
	for step := range steps {
		timer.Reset(whole / time.Duration(steps))
		if err := oneStep(ctx, timer, step+1, steps); err != nil {
			if ctx.Err() != nil {
				fmt.Fprintf(o.Log, "bowline: slow: given up after %d of %d steps: %v\n", step, steps, context.Cause(ctx))
			}
			return "", err
		}
	}
	return fmt.Sprintf("took %v in %d steps", whole, steps), nil
}

// oneStep waits for the timer and reports progress.
func oneStep(ctx context.Context, timer *time.Timer, step, steps int) error {
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	server.Progress(ctx, step, steps, fmt.Sprintf("step %d of %d", step, steps))
	return nil
}

type size struct {
	Bytes int `json:"bytes"`
}

const ruler = "0123456789abcdef"

func big(_ context.Context, in size) (string, error) {
	return strings.Repeat(ruler, in.Bytes/len(ruler)+1)[:in.Bytes], nil
}

type exit struct {
	Status *int `json:"status"`
}

func (o Options) crash(_ context.Context, in exit) (string, error) {
	status := 1
	if in.Status != nil {
		status = *in.Status
	}
	fmt.Fprintf(o.Log, "bowline: crash: ending with status %d, as asked\n", status)
	o.Exit(status)
	return "", errors.New("the process has not ended")
}
