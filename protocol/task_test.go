package protocol_test

import (
	"testing"

	"github.com/bowline-mcp/bowline/protocol"
)

func TestACallThatBecameATaskIsEncodedAsSuch(t *testing.T) {
	ttl := int64(60_000)
	result := &protocol.CallToolResult{Task: &protocol.Task{
		TaskID: "a", Status: protocol.TaskWorking, CreatedAt: "2026-11-22T00:00:00Z", LastUpdatedAt: "2026-11-22T00:00:00Z", TTLMs: &ttl,
	}}
	result.Stamp(nil)
	const task = `"taskId":"a","status":"working","createdAt":"2026-11-22T00:00:00Z","lastUpdatedAt":"2026-11-22T00:00:00Z","ttlMs":60000`
	if got := encode(t, result); got != `{"resultType":"task",`+task+`}` {
		t.Errorf("got %s", got)
	}
	got := &protocol.GetTaskResult{DetailedTask: protocol.DetailedTask{Task: *result.Task, FinalResult: []byte(`{"content":[]}`)}}
	got.Stamp(nil)
	if got := encode(t, got); got != `{"resultType":"complete",`+task+`,"result":{"content":[]}}` {
		t.Errorf("got %s", got)
	}
}

func TestWhichTasksHaveEnded(t *testing.T) {
	for status, ended := range map[protocol.TaskStatus]bool{
		protocol.TaskWorking: false, protocol.TaskInputRequired: false, "": false,
		protocol.TaskCompleted: true, protocol.TaskFailed: true, protocol.TaskCancelled: true,
	} {
		if status.Ended() != ended {
			t.Errorf("%q has ended: %t", status, !ended)
		}
	}
}

func TestStampOfACreatedTask(t *testing.T) {
	for given, want := range map[string]string{"": protocol.ResultTask, "other": "other"} {
		result := protocol.CreateTaskResult{Result: protocol.Result{ResultType: given}}
		if result.Stamp(nil); result.ResultType != want {
			t.Errorf("the type %q became %q, want %q", given, result.ResultType, want)
		}
	}
}
