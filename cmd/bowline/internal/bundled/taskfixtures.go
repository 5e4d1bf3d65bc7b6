package bundled

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bowline-mcp/bowline/features/server"
	"github.com/bowline-mcp/bowline/internal/wait"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/protocol/jsonrpc"
)

// addTaskFixtures adds the tools whose calls become tasks.
func addTaskFixtures(s *server.Server) {
	addWorkingTasks(s)
	addAskingTasks(s)
}

func task(name, description string, support protocol.TaskSupport) protocol.Tool {
	t := tool(name, description)
	t.Execution = &protocol.ToolExecution{TaskSupport: support}
	return t
}

// addWorkingTasks adds those that need nothing more from their client.
func addWorkingTasks(s *server.Server) {
	server.AddTool(s, tool("greet", "Greets."), func(_ context.Context, in struct {
		Name string `json:"name"`
	}) (string, error) {
		return "Hello, " + in.Name + "!", nil
	})
	server.AddTool(s, task("slow_compute", "Takes its time.", protocol.TaskOptional), func(ctx context.Context, in struct {
		Seconds float64 `json:"seconds"`
		Label   string  `json:"label,omitzero"`
	}) (string, error) {
		if err := wait.Sleep(ctx, time.Duration(in.Seconds*float64(time.Second))); err != nil {
			return "", err
		}
		return "computed " + in.Label, nil
	})
	server.AddTool(s, task("failing_job", "Works for a second, and fails.", protocol.TaskRequired), func(ctx context.Context, _ nothing) (string, error) {
		if err := wait.Sleep(ctx, time.Second); err != nil {
			return "", err
		}
		return "", errors.New("the job has failed")
	})
	server.AddTool(s, task("protocol_error_job", "Ends with an error of the protocol.", protocol.TaskRequired), func(ctx context.Context, _ nothing) (string, error) {
		if err := interval(ctx); err != nil {
			return "", err
		}
		return "", &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the job has broken the protocol"}
	})
}

// addAskingTasks adds those that ask it something.
func addAskingTasks(s *server.Server) {
	server.AddTool(s, task("confirm_delete", "Deletes a file, if its user agrees.", protocol.TaskRequired), func(ctx context.Context, in struct {
		Filename string `json:"filename"`
	}) (string, error) {
		answers, err := server.Ask(ctx, protocol.InputRequests{"confirm": form("Delete "+in.Filename+"?", `{"confirm":{"type":"boolean"}}`, "confirm")})
		if err != nil {
			return "", err
		}
		return answerText(answers["confirm"])
	}, server.Asks(server.Waits, forms))
	server.AddTool(s, task("multi_input", "Asks two things at once.", protocol.TaskRequired), func(ctx context.Context, _ nothing) (string, error) {
		either := `{"name":{"type":"string"},"confirm":{"type":"boolean"}}`
		answers, err := server.Ask(ctx, protocol.InputRequests{"name": form("Who are you?", either), "confirm": form("Are you sure?", either)})
		return fmt.Sprintf("%d answers", len(answers)), err
	}, server.Asks(server.Waits, forms))
	server.AddTool(s, task("test_tool_with_task", "Asks in a round, and then works as a task.", protocol.TaskRequired), func(ctx context.Context, _ nothing) (string, error) {
		answers, err := server.Ask(ctx, protocol.InputRequests{"user_name": form("What is your name?", `{"name":{"type":"string"}}`, "name")})
		if err != nil {
			return "", err
		}
		if err := wait.Sleep(ctx, 1500*time.Millisecond); err != nil { // longer than the time for rounds
			return "", err
		}
		return answerText(answers["user_name"])
	}, server.Asks(server.Reruns, forms))
}
