package command

import (
	"strings"
	"testing"
	"time"

	"github.com/bowline-mcp/bowline/cmd/bowline/internal/ask"
	"github.com/bowline-mcp/bowline/cmd/bowline/internal/process"
	"github.com/bowline-mcp/bowline/protocol"
	"github.com/bowline-mcp/bowline/telemetry"
)

// TestTasksOfAServerOverHTTP starts tasks in one run of the command, and reads, awaits and
// cancels them in others.
func TestTasksOfAServerOverHTTP(t *testing.T) {
	url, _ := served(t, "--fixtures")
	begin := func(seconds string) string {
		t.Helper()
		begun := bowline(t, "", "call", "slow_compute", "seconds="+seconds, "label=x", "--detach", "--url", url)
		begun.want(t, 0, "\n", "")
		return strings.TrimSpace(begun.stdout)
	}
	id := begin("60")
	bowline(t, "", "tasks", id, "--url", url).want(t, 0, id+"  working", "")
	bowline(t, "", "tasks", id, "--wait", "--timeout", "300ms", "--url", url).want(t, process.ExitCallFailed, "", "has not ended within --timeout 300ms; it continues")
	bowline(t, "", "call", "slow_compute", "seconds=60", "label=z", "--timeout", "300ms", "--url", url).want(t, process.ExitCallFailed, "", "has not ended within --timeout 300ms; it was cancelled")
	bowline(t, "", "tasks", id, "--cancel", "--url", url).want(t, 0, "", "")
	bowline(t, "", "tasks", id, "--json", "--url", url).want(t, 0, `"status": "cancelled"`, "")
	bowline(t, "", "tasks", id, "--wait", "--url", url).want(t, process.ExitCallFailed, "", "cancelled")
	bowline(t, "", "tasks", begin("0.1"), "--wait", "--url", url).want(t, 0, "computed x\n", "")
	bowline(t, "", "call", "slow_compute", "seconds=0.1", "label=y", "--url", url).want(t, 0, "computed y\n", "")
	bowline(t, "", "call", "greet", "name=Ada", "--detach", "--url", url).want(t, 0, "Hello, Ada!\n", "there is no task, and this is the result")
	bowline(t, "", "tasks", "unknown", "--url", url).want(t, process.ExitCallFailed, "", "unknown task")
	bowline(t, "", "tasks", "--url", url).want(t, process.ExitCallFailed, "", "2026-07-28 has no tasks/list")
	bowline(t, "", "tasks", "--wait", "--url", url).want(t, process.ExitUsage, "", "name the task")
	bowline(t, "", "tasks", id, "--wait", "--cancel", "--url", url).want(t, process.ExitUsage, "", "cannot be used together")
}

// The default timeout ends when the run begins to wait for a task, and a timeout that the user has
// set does not.
func TestDefaultTimeoutIsNotForTasks(t *testing.T) {
	for _, given := range []bool{false, true} {
		limit := &ask.Timeout{Given: given}
		ctx, cancel := limit.Bound(t.Context(), 50*time.Millisecond)
		defer cancel()
		limit.NoteTask(ctx, telemetry.RequestStarted{Method: protocol.MethodGetTask}) // of a run that only asks for the state of a task
		limit.AwaitTask()
		limit.NoteTask(ctx, telemetry.RequestStarted{Method: protocol.MethodCallTool})
		if limit.Timer == nil {
			t.Fatal("the timeout of the call itself is lifted, want that of a task only")
		}
		limit.NoteTask(ctx, telemetry.RequestStarted{Method: protocol.MethodGetTask})
		if lifted := limit.Timer == nil; lifted == given {
			t.Errorf("given is %v: lifted is %v", given, lifted)
		}
		limit.Resume() // after a question
		if given {
			<-ctx.Done()
		}
	}
}
